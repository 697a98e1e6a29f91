"""Sends: one message or a batch, stored before the answer says so.

This is the general way, which takes every send there is. The common message - no delay, no transaction, no retry - is
hardly seen here: most of them take the straight line from the bytes of a chunk (send_lane.py), and the property text
goes to the log as it came. Either way, and delayed or not, it goes there with all others of this turn of the loop in
one write (staged_sends.py).
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.dead_letters import retry_target
from ariane.broker.send.batch import draft_batch
from ariane.broker.send.batch_fast_path import BatchFastPath
from ariane.broker.send.checks import SendChecks, born_host, check_body, encoded, queue_of, read_property_text
from ariane.broker.send.coalescer import BatchCoalescer, BatchResponses, SendCoalescer
from ariane.broker.send.fast_path import MULTI_TAGS, NOT_PLAIN, TRANSACTION_BITS, SendFastPath
from ariane.broker.send.flow_control import FlowControl
from ariane.broker.send.responses import SendResponses, asked_by
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.broker.transactions.half_messages import half, producers_text
from ariane.broker.writer import InboundMessage, MessageWriter, keys_of, store_error_response, wants_durable
from ariane.errors import MessageRefused, RequestFailed, StoreError
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE, TIMER, TRANS_HALF
from ariane.model.topic import TopicConfig, TopicFilterType
from ariane.rpc.handlers import DEFERRED, Call, Deferred, fast_path, handles
from ariane.store.append.draft import Appended, Draft
from ariane.store.message_store import MessageStore
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode, Version
from ariane.wire.frame import FrameLimits
from ariane.wire.hashes import tags_code
from ariane.wire.requests.send import Send, SendBatch, SendMessage, SendMessageV2, SendResponse

Sent = SendResponse | Awaitable[SendResponse] | Deferred

_PREPARED = Property.TRANSACTION_PREPARED
_CLUSTER = Property.CLUSTER
_REGION = Property.MSG_REGION
_UNIQUE_KEY = Property.UNIQUE_KEY
_TAGS = Property.TAGS
_WAIT = Property.WAIT
_SHARDING_KEY = Property.SHARDING_KEY
_ASIDE = frozenset({SCHEDULE, TIMER, TRANS_HALF})
"""Where a message is before it comes to its topic: it counts as ordered there, if at all."""


@dataclass
class SendHandlers:
    settings: BrokerSettings
    topics: Topics
    groups: Groups
    store: MessageStore
    writer: MessageWriter
    flow: FlowControl
    checks: SendChecks
    responses: SendResponses
    _stage: SendCoalescer = field(init=False)
    _marks: dict[str, str] = field(init=False)
    """What a stored message is marked with. Replies go by the cluster; consumers of 5.x drop the trace of a message
    that names no region, so it is named as 5.x brokers do, and not left out as in 4.x."""
    _marks_text: str = field(init=False)
    _lane: SendFastPath = field(init=False)
    _batch_lane: BatchFastPath = field(init=False)

    def __post_init__(self) -> None:
        self._stage = SendCoalescer(self.writer, self.store, self.responses)
        self._marks = {_CLUSTER: self.settings.cluster, _REGION: self.settings.region_id}
        self._marks_text = "".join(f"{name}\x01{value}\x02" for name, value in self._marks.items())
        transport = self.settings.transport
        limits = FrameLimits(transport.frame_bytes_max, transport.header_bytes_max)
        self._lane = SendFastPath(self.checks, self.flow, self._stage, self._marks_text, limits)
        batch_stage = BatchCoalescer(self.writer, BatchResponses(self.writer, self.store, self.responses))
        self._batch_lane = BatchFastPath(self.checks, self.flow, batch_stage, limits)

    @fast_path
    def take_frames(self, connection: Connection, data: bytes, position: int) -> int:
        return self._batch_lane.take(connection, data, self._lane.take(connection, data, position))

    @handles(SendMessage)
    def send(self, request: SendMessage, call: Call) -> Sent:
        return self._send(request, call)

    @handles(SendMessageV2)
    def send_v2(self, request: SendMessageV2, call: Call) -> Sent:
        return self._send(request, call)

    @handles(SendBatch)
    def send_batch(self, request: SendBatch, call: Call) -> Sent:
        """Whether it is a batch is told by a field, not by the code: C++ sends batches by V2."""
        return self._send(request, call)

    def _send(self, request: Send, call: Call) -> Sent:
        try:
            self.flow.admit()
            config = self.checks.destination(request)
            queue_id = queue_of(request, config)
            check_body(request.body)
            if request.is_batch:
                return self._send_together(request, call, config, queue_id)
            properties, text = read_property_text(request.properties or "")
            sys_flag = (
                request.sys_flag if config.topic_filter_type is TopicFilterType.SINGLE_TAG else _multi_tags(request)
            )
            if (
                not NOT_PLAIN.isdisjoint(properties)
                or sys_flag & TRANSACTION_BITS
                or request.topic.startswith(RETRY_PREFIX)
            ):
                if self._is_half(request, sys_flag, properties):
                    text = producers_text(properties, text)
                    draft = half(self._draft(request, call, queue_id, sys_flag, properties, text))
                    return self._stage_one(draft, call, queue_id, properties)
                message = self._incoming(request, call, queue_id, sys_flag, properties)
                # Clients before 4.6.1 leave TRAN_MSG on what they send to a retry topic: that is no transaction.
                message.sys_flag &= ~TRANSACTION_BITS
                if not request.topic.startswith(RETRY_PREFIX):
                    return self._stage_one(self.writer.draft_with_delay(message), call, queue_id, properties)
                appended = self._store_retry(request, call, message)
            else:
                draft = self._draft(request, call, queue_id, sys_flag, properties, text)
                return self._stage_one(draft, call, queue_id, properties)
        except RequestFailed as error:
            self.writer.counters.rejected(error)
            raise
        except StoreError as error:
            raise self._refusal(error) from error
        return self._answer((appended,), queue_id, properties)

    def _draft(
        self, request: Send, call: Call, queue_id: int, sys_flag: int, properties: dict[str, str], text: str
    ) -> Draft:
        return Draft(
            topic=request.topic,
            queue_id=queue_id,
            body=request.body,
            properties=encoded(text + self._marks_text),
            born_timestamp_ms=request.born_timestamp,
            born_host=born_host(call.connection.peer),
            flag=request.flag,
            sys_flag=sys_flag,
            reconsume_times=request.reconsume_times or 0,
            tags_code=tags_code(properties.get(_TAGS)),
            keys=keys_of(properties),
        )

    def _stage_one(self, draft: Draft, call: Call, queue_id: int, properties: dict[str, str]) -> Deferred:
        unique_key = properties.get(_UNIQUE_KEY)
        asked = (asked_by(call.command, unique_key), unique_key, properties.get(_WAIT), queue_id)
        ordered = (0,) if _SHARDING_KEY in properties and draft.topic not in _ASIDE else ()
        self._stage.add(call.connection, [draft], [asked], ordered, len(draft.body))
        return DEFERRED

    def _refusal(self, error: StoreError) -> RequestFailed:
        failure = store_error_response(error, self.store)
        self.writer.counters.rejected(failure)
        return failure

    # --- what is not stored as it came --------------------------------------------------------------------------------

    def _incoming(
        self, request: Send, call: Call, queue_id: int, sys_flag: int, properties: dict[str, str]
    ) -> InboundMessage:
        return InboundMessage(
            topic=request.topic,
            queue_id=queue_id,
            body=request.body,
            properties={**properties, **self._marks},
            born_timestamp_ms=request.born_timestamp,
            born_host=born_host(call.connection.peer),
            flag=request.flag,
            sys_flag=sys_flag,
            reconsume_times=request.reconsume_times or 0,
        )

    def _store_retry(self, request: Send, call: Call, message: InboundMessage) -> Appended:
        is_dead = self._redirect_dead_letter(request, call, message)
        appended = self.writer.put(message)
        if is_dead:
            first_topic = message.properties.get(Property.RETRY_TOPIC, request.topic)
            self.writer.counters.died(first_topic, request.topic.removeprefix(RETRY_PREFIX), appended.size)
        return appended

    def _is_half(self, request: Send, sys_flag: int, properties: dict[str, str]) -> bool:
        """RequestFailed for a transaction that this broker does not take, or that is only half said."""
        if properties.get(_PREPARED, "").lower() != "true":
            if sys_flag & TRANSACTION_BITS:
                raise MessageRefused(
                    f"sysFlag {sys_flag:#x} says transaction and property {_PREPARED} does not: nobody would "
                    "ever see the message, nor ask about it"
                )
            return False
        if (request.reconsume_times or 0) > 0 and Property.DELAY in properties:
            return False
        if self.settings.reject_transactions:
            raise RequestFailed(
                ResponseCode.NO_PERMISSION,
                f"broker {self.settings.name} takes no transactional messages (rejectTransactionMessage = true)",
            )
        return True

    def _redirect_dead_letter(self, request: Send, call: Call, message: InboundMessage) -> bool:
        named = request.max_reconsume_times if call.command.version >= Version.V3_4_9 else None
        target = retry_target(
            message.topic,
            message.properties,
            message.reconsume_times,
            self.groups,
            self.topics,
            max_reconsume_times=named,
        )
        if target is not None:
            message.topic, message.queue_id, message.properties = target
        return target is not None

    # --- batches ------------------------------------------------------------------------------------------------------

    def _send_together(self, request: Send, call: Call, config: TopicConfig, queue_id: int) -> Sent:
        sys_flag = request.sys_flag if config.topic_filter_type is TopicFilterType.SINGLE_TAG else _multi_tags(request)
        batch = draft_batch(request, queue_id, sys_flag, born_host(call.connection.peer))
        appended = self.writer.append_batch(batch)
        properties, _ = read_property_text(request.properties or "")
        return self._answer(appended, queue_id, properties)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, appended: Sequence[Appended], queue_id: int, properties: dict[str, str]) -> Sent:
        """For what was not staged."""
        if self.writer.is_safe(appended[-1]) or not wants_durable(properties):
            return self.responses.answer(ResponseCode.SUCCESS, appended, queue_id, properties.get(_UNIQUE_KEY))
        return self._sent_when_durable(appended, queue_id, properties)

    async def _sent_when_durable(
        self, appended: Sequence[Appended], queue_id: int, properties: dict[str, str]
    ) -> SendResponse:
        try:
            code = await self.writer.durable(appended)
        except StoreError as error:
            raise self._refusal(error) from error
        return self.responses.answer(code, appended, queue_id, properties.get(_UNIQUE_KEY))


def _multi_tags(request: Send) -> int:
    return request.sys_flag | MULTI_TAGS
