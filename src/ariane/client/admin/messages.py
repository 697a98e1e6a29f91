"""Messages: found by id, by key, by place and by time; sent again, and handed to a consumer."""

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
from ariane.client.consumer.subscriptions import ALL, passes, subscription_of
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
#
# Queues from within: what lies at an offset or a time, and the entries of their index.

GROUP = "TOOLS_CONSUMER"
"""What Apache's own tools pull as: every broker has it from the start."""

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
    """Of the group that was asked for: what `eval` of each entry was worked out with."""
    note: str | None


class QueueAdmin:
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk

    async def at_time(self, topic: str, moment: datetime | int) -> dict[MessageQueue, int]:
        """Of each queue the offset of the first message not stored before `moment` (before 5.0: of the nearest)."""
        queues = (await topic_stats(self._desk, topic)).by_queue()
        brokers = {broker.name: broker for broker in await self._desk.of_topic(topic)}
        responses = await self._desk.together(
            self._desk.ask(
                brokers[queue.broker_name].address, SearchOffset(topic, queue.queue_id, to_timestamp_ms(moment))
            )
            for queue in queues
        )
        return {queue: response.offset for queue, response in zip(queues, responses, strict=True)}

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int | None:
        """When the oldest message that is still there was stored; None when the queue is empty."""
        broker = await self._desk.of_queue(queue)
        response = await self._desk.ask(broker.address, GetEarliestStoreTime(queue.topic, queue.queue_id))
        return response.timestamp if response.timestamp >= 0 else None

    async def entries(self, queue: MessageQueue, index: int, count: int = 10, *, group: str | None = None) -> QueuePage:
        """The index as it is; with `group`, also whether the group's filter lets each entry pass."""
        broker = await self._desk.of_queue(queue)
        request = QueryConsumeQueue(queue.topic, queue.queue_id, index, count, group)
        page = (await self._desk.ask(broker.address, request)).body
        if not page.queue_data:  # Apache's answer where ours refuses
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
        result = await Puller(self._desk.instance, GROUP).pull(request)
        return next((one for one in result.messages if one.queue_offset == offset), None)

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

        `begin` and `end` are times; the end is not part of it.
        """
        wanted = subscription_of(topic, expression, sql=sql)
        limits = (await topic_stats(self._desk, topic)).by_queue()
        starts = {queue: limit.min_offset for queue, limit in limits.items()}
        if begin is not None:
            starts = await self.at_time(topic, begin)
        for queue in await self._readable(topic, queues):
            reading = self._read(queue, starts.get(queue, 0), limits[queue].max_offset, wanted)
            async with aclosing(reading):
                async for message in reading:
                    if end is not None and message.store_timestamp_ms >= to_timestamp_ms(end):
                        break
                    if begin is None or message.store_timestamp_ms >= to_timestamp_ms(begin):
                        yield message

    async def _readable(self, topic: str, queues: Collection[MessageQueue] | None) -> list[MessageQueue]:
        readable = readable_queues(topic, await self._desk.route(topic))
        unknown = [queue for queue in queues or () if queue not in readable]
        if unknown:
            raise ClientError(f"{unknown[0]} is no queue that can be read: see the topic's route")
        return readable if queues is None else sorted(queues)

    async def _read(
        self, queue: MessageQueue, offset: int, end: int, wanted: Subscription
    ) -> AsyncGenerator[Received, None]:
        puller = Puller(self._desk.instance, GROUP)
        while offset < end:
            request = PullRequest(queue=queue, offset=offset, subscription=wanted, count=_PULL_BATCH)
            result = await puller.pull(request)
            for message in result.messages:
                if message.queue_offset < end:
                    yield message
            if result.next_offset <= offset:
                return  # the queue was cut back meanwhile
            offset = result.next_offset


# --- tracks ---
#
# Which groups have consumed a message: told by comparing its place in its queue with their offsets.


class TrackState(StrEnum):
    CONSUMED = "CONSUMED"
    FILTERED = "FILTERED"
    """The group is past it, but does not subscribe to its tag."""
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
    """While it waits: how many messages of the queue come before it."""


async def tracks_of(desk: AdminRequests, message: Received) -> tuple[Track, ...]:
    """Asks the broker of the message's queue: no other one knows how far groups are in it."""
    broker = await desk.of_queue(message.queue)
    groups = (await desk.ask(broker.address, ListGroupsOfTopic(message.queue.topic))).body.group_list
    return tuple(await desk.together(_track(desk, group, message) for group in sorted(groups)))


async def _track(desk: AdminRequests, group: str, message: Received) -> Track:
    members = await members_of(desk, group)
    queue = message.queue
    stored = await stored_offsets_at(desk, await desk.of_queue(queue), group)
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
    subscription = next((one for one in members.subscriptions if one.topic == message.queue.topic), None)
    wanted = subscription is None or passes(subscription, message)
    return TrackState.CONSUMED if wanted else TrackState.FILTERED


# ---

_SEND_GROUP = "TOOLS_PRODUCER"
_COUNT = 64
_EVER_MS = 2**63 - 1
_CONSUME_TIMEOUT_S = 12.0  # the broker gives the consumer 10


class FoundMessages(msgspec.Struct, frozen=True, kw_only=True):
    messages: tuple[Received, ...]
    """By the time at which they were stored."""
    is_cut: bool = False
    """Whether there may be more: a broker gave as many as it was asked for."""
    failures: tuple[Failure, ...] = ()
    """Brokers that may have more."""

    @property
    def is_complete(self) -> bool:
        return not self.failures and not self.is_cut


class MessageAdmin:
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk
        self._queues = QueueAdmin(desk)

    # --- finding ----------------------------------------------------------------------------------------------------

    async def by_id(self, offset_message_id: str) -> Received:
        """By the id that the broker gave it, which says where it is stored: that broker is asked."""
        where = decode_offset_message_id(offset_message_id)
        address = str(where.store_host)
        message = decode((await self._desk.ask(address, ViewMessage(where.physical_offset))).body)
        name = next((one.name for one in await self._all_brokers() if one.address == address), address)
        queue = MessageQueue(topic=message.topic, broker_name=name, queue_id=message.queue_id)
        return receive(message, queue)

    async def by_unique_key(self, topic: str, key: str) -> FoundMessages:
        """By the id that its producer gave it; more than one when it was sent again or came back to the topic."""
        found = await self._query(topic, key, 0, _EVER_MS, count=_COUNT, unique=True)
        return _only(found, lambda message: message.unique_key == key)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        count: int = _COUNT,
    ) -> FoundMessages:
        """By one of the words that its producer gave it, stored between two times; at most `count` of each broker."""
        begin_ms = 0 if begin is None else to_timestamp_ms(begin)
        end_ms = _EVER_MS if end is None else to_timestamp_ms(end)
        found = await self._query(topic, key, begin_ms, end_ms, count=count, unique=False)
        # The index knows hashes only, and several keys may share one.
        return _only(found, lambda message: key in message.keys or message.unique_key == key)

    async def by_offset(self, queue: MessageQueue, offset: int) -> Received | None:
        """None when it is gone, or not there yet."""
        return await self._queues.message_at(queue, offset)

    async def by_time(
        self, topic: str, begin: datetime | int, end: datetime | int, *, expression: str = ALL, count: int = _COUNT
    ) -> FoundMessages:
        """Stored from `begin` and before `end`; at most `count`, and `is_cut` when there are more."""
        found: list[Received] = []
        async for message in self._queues.scan(topic, begin=begin, end=end, expression=expression):
            if len(found) == count:
                return FoundMessages(messages=_in_order(found), is_cut=True)
            found.append(message)
        return FoundMessages(messages=_in_order(found))

    # --- what became of it ------------------------------------------------------------------------------------------

    async def tracks(self, message: Received) -> tuple[Track, ...]:
        """For each group of the topic: has it consumed the message?"""
        return await tracks_of(self._desk, message)

    async def trace(self, message_id: str, *, topic: str = TRACE_TOPIC) -> MessageTrace:
        """What producers and consumers that trace have told of the message with this unique key."""
        return trace_of(message_id, await self._query(topic, message_id, 0, _EVER_MS, count=_COUNT, unique=False))

    # --- once more --------------------------------------------------------------------------------------------------

    async def resend(self, message: Received, *, topic: str | None = None) -> SendResult:
        """Sends a copy, which is a new message with an id of its own: to its topic, or to another one.

        A dead letter goes to the topic that it was sent to at first.
        """
        copy = _copy(message, topic)
        async with Sender.open(self._desk.instance, ProducerSettings(group=_SEND_GROUP)) as sender:
            return await sender.send(copy)

    async def consume_directly(
        self, group: str, message: Received | str, *, client_id: str | None = None
    ) -> ConsumeResult:
        """Hands the message (or the one with this offset id) to one member now, whatever it has consumed before."""
        found = await self.by_id(message) if isinstance(message, str) else message
        request = ConsumeDirectly(consumer_group=group, client_id=client_id, msg_id=found.offset_message_id)
        return (await self._desk.ask(str(found.store_host), request, _CONSUME_TIMEOUT_S)).body

    # --- steps ------------------------------------------------------------------------------------------------------

    async def _all_brokers(self) -> list[Broker]:
        return await self._desk.brokers(slaves=True)

    async def _query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, *, count: int, unique: bool
    ) -> FoundMessages:
        if count < 1:
            raise ClientError(f"count={count}: at least 1 message must be asked for")
        request = QueryMessages(
            topic=topic, key=key, max_num=count, begin_timestamp=begin_ms, end_timestamp=end_ms, unique_key_query=unique
        )
        told = await self._desk.gather(await self._desk.of_topic(topic), lambda broker: self._found_at(broker, request))
        responses = told.some(f"query of {topic}").responses.values()
        return FoundMessages(
            messages=_in_order([message for found in responses for message in found]),
            is_cut=not unique and any(len(found) >= count for found in responses),
            failures=told.failures,
        )

    async def _found_at(self, broker: Broker, request: QueryMessages) -> list[Received]:
        response = await absent_is_none(self._desk.ask(broker.address, request), ResponseCode.QUERY_NOT_FOUND)
        messages = [] if response is None else decode_all(response.body)
        return [receive(one, _queue_of(one, broker)) for one in messages]


def _queue_of(message: StoredMessage, broker: Broker) -> MessageQueue:
    return MessageQueue(topic=message.topic, broker_name=broker.name, queue_id=message.queue_id)


def _only(found: FoundMessages, wanted: Callable[[Received], bool]) -> FoundMessages:
    return msgspec.structs.replace(found, messages=tuple(filter(wanted, found.messages)))


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
