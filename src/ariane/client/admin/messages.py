"""Messages: found by id, by key, by place and by time; sent again, and handed to a consumer."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from ariane.client.admin.desk import Desk, absent_is_none
from ariane.client.admin.queues import QueueAdmin
from ariane.client.admin.servers import Broker, Failure
from ariane.client.admin.traces import MessageTrace, trace_of
from ariane.client.admin.tracks import Track, tracks_of
from ariane.client.producer_settings import ProducerSettings
from ariane.client.queue_ends import to_timestamp_ms
from ariane.client.received import Received, receive
from ariane.client.send_result import SendResult
from ariane.client.sender import Sender
from ariane.client.subscriptions import ALL
from ariane.client.tracing import TRACE_TOPIC
from ariane.errors import ClientError
from ariane.model.message import RESERVED_PROPERTIES, Message, Property, StoredMessage
from ariane.model.route import MessageQueue
from ariane.wire.codes import ResponseCode
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.record_read import decode, decode_all
from ariane.wire.requests.connections import ConsumeDirectly, ConsumeResult
from ariane.wire.requests.messages import QueryMessages, ViewMessage

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
    def __init__(self, desk: Desk) -> None:
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
        ask = ConsumeDirectly(consumer_group=group, client_id=client_id, msg_id=found.offset_message_id)
        return (await self._desk.ask(str(found.store_host), ask, _CONSUME_TIMEOUT_S)).body

    # --- steps ------------------------------------------------------------------------------------------------------

    async def _all_brokers(self) -> list[Broker]:
        return await self._desk.brokers(slaves=True)

    async def _query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, *, count: int, unique: bool
    ) -> FoundMessages:
        if count < 1:
            raise ClientError(f"count={count}: at least 1 message must be asked for")
        ask = QueryMessages(
            topic=topic, key=key, max_num=count, begin_timestamp=begin_ms, end_timestamp=end_ms, unique_key_query=unique
        )
        told = await self._desk.gather(await self._desk.of_topic(topic), lambda broker: self._found_at(broker, ask))
        answers = told.some(f"query of {topic}").answers.values()
        return FoundMessages(
            messages=_in_order([message for found in answers for message in found]),
            is_cut=not unique and any(len(found) >= count for found in answers),
            failures=told.failures,
        )

    async def _found_at(self, broker: Broker, ask: QueryMessages) -> list[Received]:
        answer = await absent_is_none(self._desk.ask(broker.address, ask), ResponseCode.QUERY_NOT_FOUND)
        messages = [] if answer is None else decode_all(answer.body)
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
