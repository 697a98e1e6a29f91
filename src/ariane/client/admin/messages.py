"""Admin API for messages and queues: find messages by id, key, offset or time, trace them, resend them, consume them.

`tracks_of` reports which groups have consumed a message, by comparing its queue offset with their stored offsets.
"""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from datetime import datetime
from enum import StrEnum

import msgspec

from ariane.client.admin.members import GroupMembers, members_of, stored_offsets_at
from ariane.client.admin.requests import AdminRequests, Broker, Failure, absent_is_none
from ariane.client.admin.topics import topic_stats
from ariane.client.admin.traces import MessageTrace, trace_of
from ariane.client.consumer.message import Received, receive
from ariane.client.consumer.pull_request import Puller, PullRequest
from ariane.client.consumer.subscriptions import ALL, matches, subscription_of
from ariane.client.core.queue_bounds import readable_queues, to_timestamp_ms
from ariane.client.producer.result import SendResult
from ariane.client.producer.sender import Sender
from ariane.client.producer.settings import ProducerSettings
from ariane.client.producer.tracing import TRACE_TOPIC
from ariane.errors import ClientError
from ariane.model.group import MessageModel, Subscription
from ariane.model.message import RESERVED_PROPERTIES, Message, Property, StoredMessage
from ariane.model.route import MessageQueue
from ariane.wire.codes import ResponseCode
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.record.read import decode, decode_all
from ariane.wire.requests.clients import ConsumeDirectly, ConsumeResult
from ariane.wire.requests.groups import ListGroupsOfTopic
from ariane.wire.requests.messages import ConsumeQueueEntry, QueryConsumeQueue, QueryMessages, ViewMessage
from ariane.wire.requests.offsets import GetEarliestStoreTime, SearchOffset

# --- queues ---

GROUP = "TOOLS_CONSUMER"
"""The group that Apache's tools use for pulls: every broker has it from the start."""

_PULL_BATCH = 32


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some entries of a queue's index."""

    queue: MessageQueue
    index: int
    """The queue offset of the first entry."""
    entries: tuple[ConsumeQueueEntry, ...]
    min_offset: int
    max_offset: int
    subscription: Subscription | None
    """Of the requested group: the `eval` of each entry is computed with it."""
    note: str | None


class QueueAdmin:
    """Contents of queues: offsets by time, index entries, and messages."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def at_time(self, topic: str, moment: datetime | int) -> dict[MessageQueue, int]:
        """For each queue, the offset of the first message not stored before `moment` (before 5.0: the nearest one)."""
        queues = (await topic_stats(self._requests, topic)).by_queue()
        brokers = {broker.name: broker for broker in await self._requests.readers_of_topic(topic)}
        responses = await self._requests.run_all(
            self._requests.read(
                brokers[queue.broker_name], topic, SearchOffset(topic, queue.queue_id, to_timestamp_ms(moment))
            )
            for queue in queues
        )
        return {queue: response.offset for queue, response in zip(queues, responses, strict=True)}

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int | None:
        """When the oldest message that is still there was stored; None when the queue is empty."""
        broker = await self._requests.reader_of_queue(queue)
        response = await self._requests.read(broker, queue.topic, GetEarliestStoreTime(queue.topic, queue.queue_id))
        return response.timestamp if response.timestamp >= 0 else None

    async def entries(self, queue: MessageQueue, index: int, count: int = 10, *, group: str | None = None) -> QueuePage:
        """The raw index entries; with `group`, also whether the group's filter matches each entry."""
        broker = await self._requests.reader_of_queue(queue)
        request = QueryConsumeQueue(queue.topic, queue.queue_id, index, count, group)
        page = (await self._requests.read(broker, queue.topic, request)).body
        if not page.queue_data:  # Apache's broker returns an empty page where Ariane's refuses
            raise ClientError(
                f"{queue} has no entry {index}: it holds {page.min_queue_index} to {page.max_queue_index - 1}"
            )
        return QueuePage(
            queue=queue,
            index=index,
            entries=tuple(page.queue_data),
            min_offset=page.min_queue_index,
            max_offset=page.max_queue_index,
            subscription=page.subscription_data,
            note=page.filter_data,
        )

    # --- messages ---------------------------------------------------------------------------------------------------

    async def message_at(self, queue: MessageQueue, offset: int) -> Received | None:
        """The message with exactly this queue offset; None when it is gone or not there yet."""
        request = PullRequest(queue=queue, offset=offset, subscription=subscription_of(queue.topic), count=1)
        result = await Puller(self._requests.instance, GROUP).pull(request)
        return next((message for message in result.messages if message.queue_offset == offset), None)

    async def scan(
        self,
        topic: str,
        *,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        expression: str = ALL,
        sql: str | None = None,
        queues: Collection[MessageQueue] | None = None,
    ) -> AsyncGenerator[Received, None]:
        """Every message that is stored now, queue after queue, without moving any group's offset.

        `begin` and `end` are times; `end` is exclusive.
        """
        subscription = subscription_of(topic, expression, sql=sql)
        limits = (await topic_stats(self._requests, topic)).by_queue()
        starts = {queue: limit.min_offset for queue, limit in limits.items()}
        if begin is not None:
            starts = await self.at_time(topic, begin)
        for queue in await self._readable(topic, queues):
            reading = self._read(queue, starts.get(queue, 0), limits[queue].max_offset, subscription)
            async with aclosing(reading):
                async for message in reading:
                    if end is not None and message.store_timestamp_ms >= to_timestamp_ms(end):
                        break
                    if begin is None or message.store_timestamp_ms >= to_timestamp_ms(begin):
                        yield message

    async def _readable(self, topic: str, queues: Collection[MessageQueue] | None) -> list[MessageQueue]:
        readable = readable_queues(topic, await self._requests.route(topic))
        unknown = [queue for queue in queues or () if queue not in readable]
        if unknown:
            raise ClientError(f"{unknown[0]} is not a readable queue: see the topic's route")
        return readable if queues is None else sorted(queues)

    async def _read(
        self, queue: MessageQueue, offset: int, end: int, subscription: Subscription
    ) -> AsyncGenerator[Received, None]:
        puller = Puller(self._requests.instance, GROUP)
        while offset < end:
            request = PullRequest(queue=queue, offset=offset, subscription=subscription, count=_PULL_BATCH)
            result = await puller.pull(request)
            for message in result.messages:
                if message.queue_offset < end:
                    yield message
            if result.next_offset <= offset:
                return  # the queue was truncated meanwhile
            offset = result.next_offset


# --- tracks: which groups have consumed a message ---


class TrackState(StrEnum):
    CONSUMED = "CONSUMED"
    FILTERED = "FILTERED"
    """The group's offset is after it, but the group does not subscribe to its tag."""
    WAITING = "WAITING"
    BROADCASTING = "BROADCASTING"
    """Each member keeps its own offsets: the broker cannot know."""
    UNKNOWN = "UNKNOWN"
    """The group has no offset in the message's queue."""


class Track(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    state: TrackState
    is_online: bool
    behind: int | None = None
    """While it waits: how many messages of the queue are before it."""


async def tracks_of(requests: AdminRequests, message: Received) -> tuple[Track, ...]:
    """Asks the broker of the message's queue: only that broker has the offsets of groups in it."""
    broker, topic = await requests.reader_of_queue(message.queue), message.queue.topic
    groups = (await requests.read(broker, topic, ListGroupsOfTopic(topic))).body.group_list
    return tuple(await requests.run_all(_track(requests, group, message) for group in sorted(groups)))


async def _track(requests: AdminRequests, group: str, message: Received) -> Track:
    members = await members_of(requests, group)
    queue = message.queue
    stored = await stored_offsets_at(requests, await requests.reader_of_queue(queue), group)
    offset = stored.get(queue.topic, {}).get(queue.queue_id)
    state = _state(members, offset, message)
    behind = message.queue_offset - offset if offset is not None and state is TrackState.WAITING else None
    return Track(group=group, state=state, is_online=members.is_online, behind=behind)


def _state(members: GroupMembers, offset: int | None, message: Received) -> TrackState:
    if members.message_model is MessageModel.BROADCASTING:
        return TrackState.BROADCASTING
    if offset is None:
        return TrackState.UNKNOWN
    if offset <= message.queue_offset:
        return TrackState.WAITING
    subscription = next((item for item in members.subscriptions if item.topic == message.queue.topic), None)
    is_match = subscription is None or matches(subscription, message)
    return TrackState.CONSUMED if is_match else TrackState.FILTERED


# --- messages ---

_SEND_GROUP = "TOOLS_PRODUCER"
_COUNT = 64
_EVER_MS = 2**63 - 1
_CONSUME_TIMEOUT_S = 12.0  # the broker waits 10 s for the consumer


class FoundMessages(msgspec.Struct, frozen=True, kw_only=True):
    messages: tuple[Received, ...]
    """Ordered by store time."""
    is_cut: bool = False
    """Whether there may be more: a broker returned as many as were requested."""
    failures: tuple[Failure, ...] = ()
    """Brokers that may have more."""

    @property
    def is_complete(self) -> bool:
        return not self.failures and not self.is_cut


class MessageAdmin:
    """Messages: find, trace, resend, consume."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests
        self._queues = QueueAdmin(requests)

    # --- queries ----------------------------------------------------------------------------------------------------

    async def by_id(self, offset_message_id: str) -> Received:
        """By the id that the broker assigned, which contains the broker's address and the offset."""
        where = decode_offset_message_id(offset_message_id)
        address = str(where.store_host)
        message = decode((await self._requests.call(address, ViewMessage(where.physical_offset))).body)
        name = next((broker.name for broker in await self._all_brokers() if broker.address == address), address)
        queue = MessageQueue(topic=message.topic, broker_name=name, queue_id=message.queue_id)
        return receive(message, queue)

    async def by_unique_key(self, topic: str, key: str) -> FoundMessages:
        """By the id that its producer set; more than one if it was resent or redelivered to the topic."""
        found = await self._query(topic, key, 0, _EVER_MS, count=_COUNT, unique=True)
        return _filtered(found, lambda message: message.unique_key == key)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        count: int = _COUNT,
    ) -> FoundMessages:
        """By one of its keys, stored between two times; at most `count` of each broker."""
        begin_ms = 0 if begin is None else to_timestamp_ms(begin)
        end_ms = _EVER_MS if end is None else to_timestamp_ms(end)
        found = await self._query(topic, key, begin_ms, end_ms, count=count, unique=False)
        # The index has hashes only, and several keys may have the same.
        return _filtered(found, lambda message: key in message.keys or message.unique_key == key)

    async def by_offset(self, queue: MessageQueue, offset: int) -> Received | None:
        """None if it is deleted, or not there yet."""
        return await self._queues.message_at(queue, offset)

    async def by_time(
        self, topic: str, begin: datetime | int, end: datetime | int, *, expression: str = ALL, count: int = _COUNT
    ) -> FoundMessages:
        """Stored from `begin` and before `end`; at most `count`, and `is_cut` if there are more."""
        found: list[Received] = []
        async for message in self._queues.scan(topic, begin=begin, end=end, expression=expression):
            if len(found) == count:
                return FoundMessages(messages=_in_order(found), is_cut=True)
            found.append(message)
        return FoundMessages(messages=_in_order(found))

    # --- consumption and traces -------------------------------------------------------------------------------------

    async def tracks(self, message: Received) -> tuple[Track, ...]:
        """For each group of the topic, whether it has consumed the message."""
        return await tracks_of(self._requests, message)

    async def trace(self, message_id: str, *, topic: str = TRACE_TOPIC) -> MessageTrace:
        """The trace records of producers and consumers about the message with this unique key."""
        return trace_of(message_id, await self._query(topic, message_id, 0, _EVER_MS, count=_COUNT, unique=False))

    # --- resending and redelivery -----------------------------------------------------------------------------------

    async def resend(self, message: Received, *, topic: str | None = None) -> SendResult:
        """Sends a copy, which is a new message with an id of its own: to its topic, or to another one.

        A dead letter goes to the topic that it was originally sent to.
        """
        copy = _copy(message, topic)
        async with Sender.open(self._requests.instance, ProducerSettings(group=_SEND_GROUP)) as sender:
            return await sender.send(copy)

    async def consume_directly(
        self, group: str, message: Received | str, *, client_id: str | None = None
    ) -> ConsumeResult:
        """Has one member consume the message (or the one with this offset id) now, whatever its offset is."""
        target = await self.by_id(message) if isinstance(message, str) else message
        request = ConsumeDirectly(consumer_group=group, client_id=client_id, msg_id=target.offset_message_id)
        return (await self._requests.call(str(target.store_host), request, _CONSUME_TIMEOUT_S)).body

    # --- helpers ----------------------------------------------------------------------------------------------------

    async def _all_brokers(self) -> list[Broker]:
        return await self._requests.brokers(slaves=True)

    async def _query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, *, count: int, unique: bool
    ) -> FoundMessages:
        if count < 1:
            raise ClientError(f"count={count}: must be at least 1")
        request = QueryMessages(
            topic=topic, key=key, max_num=count, begin_timestamp=begin_ms, end_timestamp=end_ms, unique_key_query=unique
        )
        results = await self._requests.fan_out(
            await self._requests.readers_of_topic(topic), lambda broker: self._query_broker(broker, request)
        )
        responses = results.some(f"query of {topic}").responses.values()
        return FoundMessages(
            messages=_in_order([message for found in responses for message in found]),
            is_cut=not unique and any(len(found) >= count for found in responses),
            failures=results.failures,
        )

    async def _query_broker(self, broker: Broker, request: QueryMessages) -> list[Received]:
        response = await absent_is_none(
            self._requests.read(broker, request.topic, request), ResponseCode.QUERY_NOT_FOUND
        )
        messages = [] if response is None else decode_all(response.body)
        return [receive(message, _queue_of(message, broker)) for message in messages]


def _queue_of(message: StoredMessage, broker: Broker) -> MessageQueue:
    return MessageQueue(topic=message.topic, broker_name=broker.name, queue_id=message.queue_id)


def _filtered(found: FoundMessages, condition: Callable[[Received], bool]) -> FoundMessages:
    return msgspec.structs.replace(found, messages=tuple(filter(condition, found.messages)))


def _in_order(messages: list[Received]) -> tuple[Received, ...]:
    return tuple(sorted(messages, key=lambda message: (message.store_timestamp_ms, message.physical_offset)))


def _copy(message: Received, topic: str | None) -> Message:
    if message.fault is not None:
        raise ClientError(f"message {message.message_id} cannot be sent again: {message.fault}")
    return Message(
        topic=topic or message.properties.get(Property.RETRY_TOPIC, message.topic),
        body=message.body,
        tags=message.tags,
        keys=message.keys,
        properties={name: value for name, value in message.properties.items() if name not in RESERVED_PROPERTIES},
        sharding_key=message.properties.get(Property.SHARDING_KEY),
        flag=message.flag,
    )
