"""Made by scripts/stubs.py from the asynchronous classes: change it there."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from ariane import AVERAGELY as AVERAGELY
from ariane import BY_CIRCLE as BY_CIRCLE
from ariane import COMMIT as COMMIT
from ariane import ROLLBACK as ROLLBACK
from ariane import UNKNOWN as UNKNOWN
from ariane import ArianeError as ArianeError
from ariane import ClientClosed as ClientClosed
from ariane import ClientError as ClientError
from ariane import ClientSettings as ClientSettings
from ariane import ClientTlsSettings as ClientTlsSettings
from ariane import Decision as Decision
from ariane import FlowLimits as FlowLimits
from ariane import GroupConfig as GroupConfig
from ariane import Message as Message
from ariane import MessageModel as MessageModel
from ariane import MessageQueue as MessageQueue
from ariane import MessageRejected as MessageRejected
from ariane import NoReply as NoReply
from ariane import NoRoute as NoRoute
from ariane import Permission as Permission
from ariane import PullResult as PullResult
from ariane import PullStatus as PullStatus
from ariane import Received as Received
from ariane import Reply as Reply
from ariane import ReplyMessage as ReplyMessage
from ariane import RequestFailed as RequestFailed
from ariane import Retry as Retry
from ariane import Secret as Secret
from ariane import SendFailed as SendFailed
from ariane import SendResult as SendResult
from ariane import SendStatus as SendStatus
from ariane import SettingsError as SettingsError
from ariane import TopicConfig as TopicConfig
from ariane import TransactionResult as TransactionResult
from ariane import TransportError as TransportError
from ariane import by_config as by_config
from ariane import consistent_hash as consistent_hash
from ariane import machine_room as machine_room
from ariane import reply_message as reply_message
from ariane.client.admin.cluster import Runtime
from ariane.client.admin.groups import GroupSummary
from ariane.client.admin.lag import GroupLag
from ariane.client.admin.members import GroupMembers
from ariane.client.admin.messages import FoundMessages, QueuePage, Track
from ariane.client.admin.offsets import GroupOffsets, ResetPlan, To
from ariane.client.admin.replicas import ReplicaSet
from ariane.client.admin.requests import Broker, PerBroker, PerNameserver, PerServer
from ariane.client.admin.topics import TopicStats
from ariane.client.admin.traces import MessageTrace
from ariane.client.consumer.allocation import Allocation
from ariane.client.consumer.invocation import Handler, OnError, TopicCounts
from ariane.client.consumer.offsets import Start, StartWord
from ariane.client.consumer.push import PushOptions
from ariane.client.consumer.rebalance import QueuesChanged
from ariane.client.producer.result import Callback
from ariane.client.producer.sender import Choice
from ariane.client.producer.settings import ProducerOptions, ProducerSettings
from ariane.client.producer.transactional import Check, Execute
from ariane.clock import Clock
from ariane.model.message import MessageFields, StoredMessage
from ariane.model.route import ClusterMap, TopicRoute
from ariane.model.topic import DataVersion
from ariane.wire.requests.acl import AccessRules
from ariane.wire.requests.brokers import BrokerStats
from ariane.wire.requests.clients import ClientConnection, ConsumeResult, ConsumerRunningInfo, ProducerInfo
from ariane.wire.requests.groups import QueueTimeSpan
from ariane.wire.requests.replication import HaStatus

C = TypeVar("C", bound=Callable[[MessageQueue, PullContext], Any])
H = TypeVar("H", bound=Handler)

class Admin:
    """One attribute for each area of administration.

    Requests go to all brokers concerned concurrently. An incomplete result says so (`failures`, `is_complete`); a
    change that was not made everywhere raises an error that says where it was made.
    """

    topics: TopicAdmin
    groups: GroupAdmin
    offsets: OffsetAdmin
    queues: QueueAdmin
    messages: MessageAdmin
    clients: ClientAdmin
    cluster: ClusterAdmin
    brokers: BrokerAdmin
    nameservers: NameserverAdmin
    accounts: AccountAdmin
    client_settings: ClientSettings
    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        timeout_s: float = ...,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None: ...
    def start(self) -> None:
        """Opens no connection yet."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class TopicAdmin:
    def names(self, *, cluster: str | None = None) -> list[str]:
        """Every topic that a live broker has registered, including retry, dead letter and system topics."""
    def system_names(self) -> list[str]:
        """The internal topics of brokers and nameservers."""
    def route(self, topic: str) -> TopicRoute:
        """The current route of `topic` at the nameserver; NoRoute with cause and hint."""
    def clusters(self, topic: str) -> list[str]: ...
    def configs(self, topic: str, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[TopicConfig]:
        """The topic's settings at each broker that has it."""
    def stats(self, topic: str) -> TopicStats:
        """The minimum and maximum offset of each queue."""
    def groups(self, topic: str) -> list[str]:
        """Groups that consume `topic` now, or have an offset in it."""
    def create(
        self,
        topic: str,
        *,
        queues: int = ...,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = ...,
        order: bool = False,
        unit: bool = False,
        cluster: str | None = None,
        broker: str | None = None,
        wait_s: float = ...,
    ) -> list[Broker]:
        """Creates a topic at every master, or at those of one cluster, or at one broker; fails if it exists there.

        Returns when the nameserver has its route, so that the next send finds it.
        """
    def put(
        self, config: TopicConfig, *, cluster: str | None = None, broker: str | None = None, wait_s: float = ...
    ) -> list[Broker]:
        """Creates or replaces the topic's settings, as mqadmin's updateTopic does."""
    def update(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Changes only the given settings, at each broker that has the topic."""
    def set_permission(
        self, topic: str, perm: int, *, cluster: str | None = None, broker: str | None = None
    ) -> list[Broker]:
        """`Permission.READ` stops sends to the topic, `Permission.WRITE` stops its consumption."""
    def delete(self, topic: str, *, cluster: str | None = None) -> list[Broker]:
        """Deletes its messages and offsets, too, at every master and every nameserver; NoRoute if it does not exist."""
    def order_conf(self, topic: str) -> dict[str, int] | None:
        """How many queues each broker has for an ordered topic; None if that is not configured."""
    def set_order_conf(self, topic: str, queues: Mapping[str, int]) -> None:
        """Number of queues by broker name. Replaces the previous configuration."""
    def delete_order_conf(self, topic: str) -> None: ...

class GroupAdmin:
    def names(self, *, cluster: str | None = None) -> list[str]:
        """Every group that a broker has settings for: created explicitly, or by the first consumer."""
    def configs(self, group: str, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[GroupConfig]:
        """The group's settings at each broker that has some."""
    def members(self, group: str) -> GroupMembers:
        """The connected members, and the subscriptions of the group."""
    def lag(self, group: str, topic: str | None = None, *, owners: bool = False) -> GroupLag:
        """The lag of the group in each queue. With `owners`, each member is asked which queues it has."""
    def summaries(self, groups: Iterable[str] | None = None) -> list[GroupSummary]:
        """Members and lag of every group, or of the given ones."""
    def time_spans(self, group: str, topic: str) -> PerBroker[list[QueueTimeSpan]]:
        """Of each queue: when its oldest and newest message was stored, and the one that the group consumed last."""
    def put(self, config: GroupConfig, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Creates or replaces the settings of the group."""
    def update(
        self,
        group: str,
        *,
        consume_enable: bool | None = None,
        consume_from_min_enable: bool | None = None,
        consume_broadcast_enable: bool | None = None,
        retry_queue_nums: int | None = None,
        retry_max_times: int | None = None,
        notify_consumer_ids_changed_enable: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Changes only the given settings, at each broker that has the group; ClientError if none has."""
    def delete(
        self,
        group: str,
        *,
        offsets: bool = False,
        topics: bool = False,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Deletes the settings; with `offsets` also offsets, with `topics` also its retry and dead letter topics."""

class OffsetAdmin:
    def get(self, group: str, topic: str) -> GroupOffsets:
        """As the brokers store them. Running members are ahead of this by up to 5 s; see `clients.positions`."""
    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Stores one offset, unchecked. A running member of the queue overwrites it soon: `reset` handles that."""
    def preview(self, group: str, topic: str, to: To) -> ResetPlan:
        """What `reset` would do, queue by queue. Changes nothing."""
    def reset(self, group: str, topic: str, to: To, *, force: bool = True) -> ResetPlan:
        """Resets the group, whether its members run or not: to "earliest", "latest", a time, or an offset by queue.

        Without `force` no offset moves forward. Returns what was done; does nothing if a broker does not respond.
        """
    def skip(self, group: str, topic: str) -> ResetPlan:
        """Skips all messages that the group has not consumed yet."""
    def clone(self, source: str, target: str, topic: str | None = None, *, offline: bool = False) -> list[Broker]:
        """Copies the offsets of `source` to `target`. Stop the members of `target` first: they would overwrite them.

        `offline` also copies topics that `source`, being online, no longer subscribes to.
        """
    def correction(self, topic: str, compare_group: str) -> dict[MessageQueue, int | None]:
        """For each queue, the smallest offset of the topic's groups; None if all are ahead of `compare_group`."""

class QueueAdmin:
    """Contents of queues: offsets by time, index entries, and messages."""
    def at_time(self, topic: str, moment: datetime | int) -> dict[MessageQueue, int]:
        """For each queue, the offset of the first message not stored before `moment` (before 5.0: the nearest one)."""
    def earliest_store_time_ms(self, queue: MessageQueue) -> int | None:
        """When the oldest message that is still there was stored; None when the queue is empty."""
    def entries(self, queue: MessageQueue, index: int, count: int = 10, *, group: str | None = None) -> QueuePage:
        """The raw index entries; with `group`, also whether the group's filter matches each entry."""
    def message_at(self, queue: MessageQueue, offset: int) -> Received | None:
        """The message with exactly this queue offset; None when it is gone or not there yet."""
    def scan(
        self,
        topic: str,
        *,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        expression: str = ...,
        sql: str | None = None,
        queues: Collection[MessageQueue] | None = None,
    ) -> Iterator[Received]:
        """Every message that is stored now, queue after queue, without moving any group's offset.

        `begin` and `end` are times; `end` is exclusive.
        """

class MessageAdmin:
    """Messages: find, trace, resend, consume."""
    def by_id(self, offset_message_id: str) -> Received:
        """By the id that the broker assigned, which contains the broker's address and the offset."""
    def by_unique_key(self, topic: str, key: str) -> FoundMessages:
        """By the id that its producer set; more than one if it was resent or redelivered to the topic."""
    def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        count: int = ...,
    ) -> FoundMessages:
        """By one of its keys, stored between two times; at most `count` of each broker."""
    def by_offset(self, queue: MessageQueue, offset: int) -> Received | None:
        """None if it is deleted, or not there yet."""
    def by_time(
        self, topic: str, begin: datetime | int, end: datetime | int, *, expression: str = ..., count: int = ...
    ) -> FoundMessages:
        """Stored from `begin` and before `end`; at most `count`, and `is_cut` if there are more."""
    def tracks(self, message: Received) -> tuple[Track, ...]:
        """For each group of the topic, whether it has consumed the message."""
    def trace(self, message_id: str, *, topic: str = ...) -> MessageTrace:
        """The trace records of producers and consumers about the message with this unique key."""
    def resend(self, message: Received, *, topic: str | None = None) -> SendResult:
        """Sends a copy, which is a new message with an id of its own: to its topic, or to another one.

        A dead letter goes to the topic that it was originally sent to.
        """
    def consume_directly(self, group: str, message: Received | str, *, client_id: str | None = None) -> ConsumeResult:
        """Has one member consume the message (or the one with this offset id) now, whatever its offset is."""

class ClientAdmin:
    """Connected producers and consumers, and the running info of consumers."""
    def producers(self, group: str, *, topic: str | None = None) -> PerBroker[list[ClientConnection]]:
        """The connected producers of `group`: at the brokers of `topic`, or at any."""
    def all_producers(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[dict[str, list[ProducerInfo]]]:
        """Every producer by group, as each broker knows them."""
    def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """The running info of one member: subscriptions, queues, pending messages; with `stacks` also its threads."""
    def running_infos(self, group: str, *, stacks: bool = False) -> PerServer[str, ConsumerRunningInfo]:
        """The same for every member, by client id."""
    def positions(self, group: str, topic: str, *, client_id: str | None = None) -> dict[str, dict[MessageQueue, int]]:
        """The current offsets of each member, by client id: ahead of those that the brokers have stored."""

class ClusterAdmin:
    def map(self) -> ClusterMap:
        """As the nameserver has it."""
    def names(self) -> list[str]: ...
    def brokers(self, *, cluster: str | None = None, slaves: bool = True) -> list[Broker]: ...
    def runtime(self, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[Runtime]:
        """The runtime statistics of each broker, including slaves. A broker that is down is among the failures."""
    def replicas(self, name: str | None = None, *, cluster: str | None = None) -> tuple[ReplicaSet, ...]:
        """The master and slaves of each broker name, or of one: who is connected, and how far each is behind."""
    def ha_status(
        self, *, cluster: str | None = None, broker: str | None = None, slaves: bool = False
    ) -> PerBroker[HaStatus]:
        """What brokers of 5.x and of Ariane say about replication; those of 4.x do not know the request."""
    def stats(
        self, name: str, key: str, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[BrokerStats]:
        """A counter such as TOPIC_PUT_NUMS for a key such as a topic, by minute, hour and day."""
    def wipe_write_permission(self, broker_name: str) -> dict[str, int]:
        """Stops sends to a broker, so that it can be stopped without a failed send. Number of topics, by nameserver."""
    def add_write_permission(self, broker_name: str) -> dict[str, int]: ...

class BrokerAdmin:
    """Settings of brokers, and housekeeping on demand."""
    def config(self, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[dict[str, str]]:
        """The settings in force, under RocketMQ's names."""
    def set_config(
        self, settings: Mapping[str, str], *, cluster: str | None = None, broker: str | None = None
    ) -> list[Broker]:
        """Changes settings of running brokers. Ariane accepts live settings, until the next start; Apache's all."""
    def clean_expired_queues(self, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Removes queues whose messages have all been deleted from the log."""
    def clean_unused_topics(self, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Removes the queues of topics that no longer exist."""
    def delete_expired_files(self, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Removes expired commit log files now, instead of at the configured hour."""

class NameserverAdmin:
    """Key-value pairs and settings of nameservers. They do not replicate, so a change is sent to each of them."""
    @property
    def addresses(self) -> tuple[str, ...]: ...
    def get(self, namespace: str, key: str) -> str | None: ...
    def pairs(self, namespace: str) -> dict[str, str]:
        """All pairs of a namespace; empty if there is no such namespace."""
    def put(self, namespace: str, key: str, value: str) -> list[str]: ...
    def delete(self, namespace: str, key: str) -> list[str]: ...
    def config(self) -> PerNameserver[dict[str, str]]:
        """The settings in force, under RocketMQ's names."""
    def set_config(self, settings: Mapping[str, str]) -> list[str]:
        """Only Apache's nameservers accept it. Ariane's refuse it: this request once allowed writing any file."""

class AccountAdmin:
    def rules(self, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[AccessRules]:
        """The accounts and white lists of each broker. Secret keys, which Apache's brokers return, are left out."""
    def versions(self, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[DataVersion]:
        """The version of the rules of each broker: brokers of a cluster should have the same."""
    def file_versions(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[dict[str | None, DataVersion]]:
        """The same for each ACL file, by name; brokers before 4.9 have one file without a name."""
    def put(
        self,
        access_key: str,
        *,
        secret_key: str | None = None,
        admin: bool = False,
        white_address: str | None = None,
        default_topic_perm: str | None = None,
        default_group_perm: str | None = None,
        topic_perms: Mapping[str, str] | None = None,
        group_perms: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Creates an account, or changes the given fields; permissions are "DENY", "PUB", "SUB" or "PUB|SUB"."""
    def delete(self, access_key: str, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]: ...
    def set_white_list(
        self, addresses: Iterable[str], *, cluster: str | None = None, broker: str | None = None
    ) -> list[Broker]:
        """Addresses from which every request is allowed. Replaces the list."""

class LitePullConsumer:
    """A message counts as consumed when the next one is polled, so a crash repeats a message rather than losing it.

    With `auto_commit` the consumed offsets are committed every 5 s; without it, `commit()` does it. Choose the queues
    with `assign`, or share them with the group by `subscribe`; not both.
    """

    group: str
    client_settings: ClientSettings
    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        auto_commit: bool = True,
        start: Start | StartWord | datetime | int = "latest",
        allocation: Allocation = ...,
        pull_batch: int = 32,
        limits: FlowLimits | None = None,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None: ...
    def start(self) -> None:
        """Does not fail if topics or brokers do not exist yet: logs that, and waits for them."""
    def close(self) -> None:
        """Messages that were returned count as consumed."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def client_id(self) -> str: ...
    def subscribe(self, topic: str, expression: str = ..., *, sql: str | None = None) -> None:
        """Shares the queues of `topic` with the other members of the group."""
    def unsubscribe(self, topic: str) -> None: ...
    def assign(self, queues: Collection[MessageQueue], expression: str = ..., *, sql: str | None = None) -> None:
        """Assigns exactly these queues, and revokes all others. `expression` is for all of them."""
    def on_queues_changed(self, listener: QueuesChanged) -> None:
        """`listener` is called with all queues of a topic and with the assigned ones. Register before `start()`."""
    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of `topic`; NoRoute when it is not known."""
    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are assigned to this consumer now."""
    def poll(self, timeout_s: float = ..., count: int = 32) -> list[Received]:
        """Up to `count` messages, as soon as there are any; none after the timeout. The messages of the last
        call thereby count as consumed.
        """

    def __iter__(self) -> Self: ...
    def __next__(self) -> Received:
        """Waits without a timeout. `close()` in another task ends the loop with ClientClosed."""
    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continues at `offset`; messages that were fetched ahead are dropped."""
    def seek_to_begin(self, queue: MessageQueue) -> None: ...
    def seek_to_end(self, queue: MessageQueue) -> None: ...
    def offset_at(self, queue: MessageQueue, moment: datetime | int) -> int:
        """The offset of the first message stored at `moment` or later."""
    def position(self, queue: MessageQueue) -> int:
        """The offset of the first message not yet consumed."""
    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither fetches nor returns messages of these queues."""
    def resume(self, queues: Iterable[MessageQueue]) -> None: ...
    def commit(self) -> None:
        """Commits all messages that were returned, including the last one."""
    def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset as the broker has it; None if there is none."""

class Producer:
    """Open it with `with`, or with `start()` and `close()`. One producer may be shared by any number of tasks.

    Keyword arguments are those of `ProducerSettings`; what all clients have in common is in `settings`.
    """

    settings: ProducerSettings
    client_settings: ClientSettings
    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        send_timeout_s: float = 3.0,
        retries: int = 2,
        trace: bool = False,
        batch_linger_ms: float = 0.0,
        latency_fault: bool = False,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        **more: Unpack[ProducerOptions],
    ) -> None: ...
    def start(self) -> None:
        """Opens no connection yet: a nameserver that is down is reported by the first send."""
    def close(self) -> None:
        """Waits for messages of `send_nowait` and open batches, unregisters at the brokers, closes the connections."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def client_id(self) -> str: ...
    def send(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        queue: Choice = None,
        timeout_s: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Sends a message, or a body to a topic with the fields of a Message as arguments; waits for the broker.

        `queue` is a queue, or a function of the queues and the message that chooses one.
        """
    def send_nowait(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        callback: Callback | None = None,
        queue: Choice = None,
        timeout_s: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> Future[SendResult]:
        """Returns a future immediately. TooManyInFlight if `in_flight_max` messages already wait for their results."""
    def send_oneway(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        queue: Choice = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Sends once and does not wait for a response: it stays unknown whether the message was stored."""
    def send_batch(
        self, messages: Sequence[Message], *, queue: Choice = None, timeout_s: float | None = None
    ) -> list[SendResult]:
        """A result for each message, in order. Uses several requests, one after the other, if they do not fit one."""
    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of `topic` may go to."""
    def request(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        queue: Choice = None,
        timeout_s: float = 3.0,
        **fields: Unpack[MessageFields],
    ) -> Reply:
        """Sends a message and waits for the reply of its consumer; NoReply when none comes in time."""
    def reply(self, request: StoredMessage, body: bytes) -> SendResult:
        """Replies to a message that was sent with `request()`; short for `send(reply_message(request, body))`."""

class PullConsumer:
    group: str
    client_settings: ClientSettings
    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        model: MessageModel | str = ...,
        allocation: Allocation = ...,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None: ...
    def start(self) -> None:
        """Does not fail if topics or brokers do not exist yet: logs that, and waits for them."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def client_id(self) -> str: ...
    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of `topic`; NoRoute when it is not known."""
    def on_queues_changed(self, topic: str, listener: QueuesChanged) -> None:
        """Shares the queues of `topic` with the group; calls `listener` with all queues and with the assigned ones.

        Apache calls this a MessageQueueListener. Register before `start()`.
        """
    def queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """The queues that are assigned to this member, of a topic that was registered with `on_queues_changed`."""
    def pull(
        self, queue: MessageQueue, offset: int, expression: str = ..., *, sql: str | None = None, count: int = 32
    ) -> PullResult:
        """The messages that are there now, perhaps none."""
    def pull_blocking(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = ...,
        *,
        sql: str | None = None,
        count: int = 32,
        wait_s: float = ...,
    ) -> PullResult:
        """Long polling: the broker holds the request for up to `wait_s` until there is a message."""
    def send_back(self, message: Received, delay_level: int = 0) -> None:
        """Has `message` redelivered later, through %RETRY%group."""
    def fetch_offset(self, queue: MessageQueue, *, from_broker: bool = False) -> int | None:
        """The group's offset as last updated here, otherwise as the broker has it; None if there is none."""
    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Held in memory and saved every 5 s; `commit()` saves immediately."""
    def commit(self) -> None: ...
    def min_offset(self, queue: MessageQueue) -> int: ...
    def max_offset(self, queue: MessageQueue) -> int: ...
    def search_offset(self, queue: MessageQueue, moment: datetime | int) -> int: ...
    def earliest_store_time_ms(self, queue: MessageQueue) -> int | None: ...

class PullContext:
    """The second argument of a callback, in which it also sets when it is called next."""

    consumer: ScheduledPullConsumer
    next_delay_s: float

class PushConsumer:
    """A handler that returns has consumed its message; one that raises, or returns `False` or a `Retry`, gets it again.

    Handlers that are coroutine functions run on the event loop, others in threads. With `ordered=True` each queue has
    one handler at a time, and a failure blocks the queue; otherwise a failed message is sent back to the broker, which
    redelivers it later, at most `max_reconsume` times (16), and then moves it to %DLQ%group.
    """

    group: str
    client_settings: ClientSettings
    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        handler: Handler | None = None,
        model: MessageModel | str = ...,
        ordered: bool = False,
        start: Start | StartWord | datetime | int = "latest",
        allocation: Allocation = ...,
        max_concurrency: int = 20,
        batch: int = 1,
        pull_batch: int = 32,
        max_reconsume: int | None = None,
        consume_timeout_s: float = ...,
        suspend_s: float = 1.0,
        close_timeout_s: float = 30.0,
        limits: FlowLimits | None = None,
        offsets_root: Path | None = None,
        on_error: OnError | None = None,
        trace: bool = False,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None: ...
    def start(self) -> None:
        """Does not fail if topics or brokers do not exist yet: logs that, and waits for them."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def client_id(self) -> str: ...
    options: PushOptions
    def subscribe(
        self, topic: str, expression: str = ..., *, sql: str | None = None, handler: Handler | None = None
    ) -> None:
        """Tags as in "a || b", or `sql` over properties. May be called again, also while the consumer runs."""
    def unsubscribe(self, topic: str) -> None: ...
    def on(self, topic: str, expression: str = ..., *, sql: str | None = None) -> Callable[[H], H]:
        """Decorator: subscribes the function as the handler."""
    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that it consumes now."""
    @property
    def counts(self) -> dict[str, TopicCounts]:
        """Messages consumed and failed, by topic."""
    def commit(self) -> None:
        """Saves the offsets now, instead of at the next interval."""

class ScheduledPullConsumer(PullConsumer):
    """Calls a callback for each assigned queue, which pulls from it; Apache's MQPullConsumerScheduleService.

        consumer = ScheduledPullConsumer("127.0.0.1:9876", group="audit")

        @consumer.register("orders")
        async def pull(queue, context):
            result = await context.consumer.pull(queue, await context.consumer.fetch_offset(queue) or 0)
            context.consumer.update_offset(queue, result.next_offset)
            context.next_delay_s = 0.0 if result.messages else 1.0

    A queue's callback is never called twice at a time. A callback that raises is called again after a second.
    """
    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        model: MessageModel | str = ...,
        allocation: Allocation = ...,
        threads: int = ...,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None: ...
    def register(self, topic: str) -> Callable[[C], C]:
        """Decorator: makes the function the callback for the queues of `topic`. Register before `start()`."""

class TransactionProducer(Producer):
    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        check: Check,
        execute: Execute | None = None,
        send_timeout_s: float = 3.0,
        retries: int = 2,
        trace: bool = False,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        **more: Unpack[ProducerOptions],
    ) -> None: ...
    def send_in_transaction(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        arg: Any = None,
        execute: Execute | None = None,
        queue: Choice = None,
        timeout_s: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> TransactionResult:
        """Stores the half message, runs the local transaction, sends its outcome to the broker."""

__all__ = [
    "AVERAGELY",
    "BY_CIRCLE",
    "COMMIT",
    "ROLLBACK",
    "UNKNOWN",
    "Admin",
    "ArianeError",
    "ClientClosed",
    "ClientError",
    "ClientSettings",
    "ClientTlsSettings",
    "Decision",
    "FlowLimits",
    "GroupConfig",
    "LitePullConsumer",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageRejected",
    "NoReply",
    "NoRoute",
    "Permission",
    "Producer",
    "PullConsumer",
    "PullContext",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "Received",
    "Reply",
    "ReplyMessage",
    "RequestFailed",
    "Retry",
    "ScheduledPullConsumer",
    "Secret",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "SettingsError",
    "TopicConfig",
    "TransactionProducer",
    "TransactionResult",
    "TransportError",
    "by_config",
    "consistent_hash",
    "machine_room",
    "reply_message",
]
