"""What brokers ask of clients, passed on to the producer or consumer it is about."""

from dataclasses import dataclass

from ariane.client.parts import ConsumerPart, Parts
from ariane.client.replies import Replies
from ariane.errors import RequestFailed
from ariane.model.ids import QueueOffset
from ariane.model.message import Property, StoredMessage
from ariane.model.route import MessageQueue
from ariane.rpc.handlers import Call, HandlerTable, handles
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer
from ariane.wire.record_read import decode
from ariane.wire.requests.clients import NotifyConsumerIdsChanged
from ariane.wire.requests.connections import (
    ConsumeDirectly,
    ConsumeDirectlyAnswer,
    GetRunningInfo,
    RunningInfoAnswer,
)
from ariane.wire.requests.resets import (
    ConsumerStatus,
    ConsumerStatusAnswer,
    GetClientStatus,
    OffsetList,
    ResetClientOffset,
)
from ariane.wire.requests.send import PushReply
from ariane.wire.requests.transactions import CheckTransaction


@dataclass(frozen=True)
class ClientHandlers:
    parts: Parts
    replies: Replies

    def table(self) -> HandlerTable:
        return HandlerTable.of(self)

    # --- to producers

    @handles(CheckTransaction)
    async def check_transaction(self, ask: CheckTransaction, call: Call) -> Answer:
        """One-way: the answer is an EndTransaction of ours, sent when the application has made up its mind."""
        message = decode(ask.body)
        group = message.properties.get(Property.PRODUCER_GROUP, "")
        part = self.parts.producers.get(group)
        if part is None:
            raise _unknown("producer", group)
        await part.check_transaction(ask, message, call.connection.peer)
        return Answer()

    @handles(PushReply)
    def push_reply(self, ask: PushReply, call: Call) -> Answer:
        self.replies.arrived(ask)
        return Answer()

    # --- to consumers

    @handles(NotifyConsumerIdsChanged)
    def members_changed(self, ask: NotifyConsumerIdsChanged, call: Call) -> Answer:
        self._consumer(ask.consumer_group).rebalance_soon()
        return Answer()

    @handles(ResetClientOffset)
    def reset_offsets(self, ask: ResetClientOffset, call: Call) -> Answer:
        self._consumer(ask.group).reset_offsets(ask.topic, _offsets_of(ask))
        return Answer()

    @handles(GetClientStatus)
    def status(self, ask: GetClientStatus, call: Call) -> ConsumerStatusAnswer:
        offsets = self._consumer(ask.group).status(ask.topic)
        table = {queue: QueueOffset(offset) for queue, offset in offsets.items()}
        return ConsumerStatusAnswer(body=ConsumerStatus(message_queue_table=table))

    @handles(GetRunningInfo)
    def running_info(self, ask: GetRunningInfo, call: Call) -> RunningInfoAnswer:
        return RunningInfoAnswer(body=self._consumer(ask.consumer_group).running_info())

    @handles(ConsumeDirectly)
    async def consume_directly(self, ask: ConsumeDirectly, call: Call) -> ConsumeDirectlyAnswer:
        consumer = self._consumer(ask.consumer_group)
        message: StoredMessage = decode(ask.body)
        return ConsumeDirectlyAnswer(body=await consumer.consume_directly(message, ask.broker_name))

    def _consumer(self, group: str) -> ConsumerPart:
        part = self.parts.consumers.get(group)
        if part is None:
            raise _unknown("consumer", group)
        return part


def _offsets_of(ask: ResetClientOffset) -> dict[MessageQueue, int]:
    if isinstance(ask.body, OffsetList):
        return {
            MessageQueue(topic=one.topic, broker_name=one.broker_name, queue_id=one.queue_id): one.offset
            for one in ask.body.offset_table
        }
    return dict(ask.body.offset_table)


def _unknown(kind: str, group: str) -> RequestFailed:
    return RequestFailed(ResponseCode.SYSTEM_ERROR, f"this client has no {kind} of group {group!r}")
