"""The send handler: one message or a batch, stored before the response says so.

This is the general path, which handles every send and reports every error. Most messages do not come here: they take
the fast path from the bytes of a chunk (fast_path.py). Both paths decode to the same `Send`, build the same draft
(drafts.py), and enqueue it for the same append at the end of the event-loop iteration (sinks.py), delayed or not.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ariane.broker.coalescer import Coalescer
from ariane.broker.groups.configs import Groups
from ariane.broker.groups.dead_letters import retry_target
from ariane.broker.send.batch import draft_batch
from ariane.broker.send.checks import SendChecks, born_host, check_body, queue_of
from ariane.broker.send.drafts import NOT_PLAIN, TRANSACTION_BITS, PendingSend, TopicCache, TopicEntry, build_draft
from ariane.broker.send.fast_path import SendFastPath
from ariane.broker.send.flow_control import FlowControl
from ariane.broker.send.responses import SendResponses, requester
from ariane.broker.send.sinks import BatchSink, SendSink
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.broker.transactions.half_messages import half, producers_text
from ariane.broker.writer import InboundMessage, MessageWriter, store_error_response, wants_durable
from ariane.errors import MessageRefused, RequestFailed, StoreError
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE, TIMER, TRANS_HALF
from ariane.rpc.handlers import DEFERRED, Call, Deferred, GroupFastPath, handles
from ariane.store.append.draft import Appended, Draft
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode, Version
from ariane.wire.frame import FrameLimits
from ariane.wire.properties import encode_text, join_properties, read_property_text
from ariane.wire.requests.send import Send, SendBatch, SendMessage, SendMessageV2, SendResponse

Sent = SendResponse | Deferred | Awaitable[SendResponse | Deferred]

_PREPARED = Property.TRANSACTION_PREPARED
_UNIQUE_KEY = Property.UNIQUE_KEY
_SYSTEM_TOPICS = frozenset({SCHEDULE, TIMER, TRANS_HALF})
"""Where a message waits before it comes to its topic: it counts as ordered there, if at all."""


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
    _coalescer: Coalescer = field(init=False)
    _sends: SendSink = field(init=False)
    _topic_cache: TopicCache = field(init=False)
    _broker_properties: dict[str, str] = field(init=False)
    """What the broker adds to each message. Replies go by the cluster; consumers of 5.x drop the trace of a message
    that names no region, so it is named as 5.x brokers do, and not left out as in 4.x."""
    _broker_text: str = field(init=False)
    fast_path: GroupFastPath = field(init=False)

    def __post_init__(self) -> None:
        self._coalescer = Coalescer(self.writer)
        self._sends = SendSink(self.writer, self.responses)
        self._topic_cache = TopicCache(self.checks)
        self._broker_properties = {
            Property.CLUSTER: self.settings.cluster,
            Property.MSG_REGION: self.settings.region_id,
        }
        self._broker_text = join_properties(self._broker_properties.items())
        transport = self.settings.transport
        self.fast_path = SendFastPath(
            self.checks,
            self.flow,
            self._topic_cache,
            self._coalescer,
            self._sends,
            BatchSink(self.writer, self.responses),
            self._broker_text,
            FrameLimits(transport.frame_bytes_max, transport.header_bytes_max),
        ).take

    @handles(SendMessage)
    def send(self, request: SendMessage, call: Call) -> Sent:
        return self._send(request, call)

    @handles(SendMessageV2)
    def send_v2(self, request: SendMessageV2, call: Call) -> Sent:
        return self._send(request, call)

    @handles(SendBatch)
    def send_batch(self, request: SendBatch, call: Call) -> Sent:
        """A field says whether it is a batch, not the code: C++ sends batches by V2."""
        return self._send(request, call)

    def _send(self, request: Send, call: Call) -> Sent:
        try:
            self.flow.admit()
            config = self.checks.destination(request, call.connection)
            if not self.topics.is_saved(request.topic):
                return self._send_when_saved(request, call)
            queue_id = queue_of(request, config)
            check_body(request.body)
            entry = self._topic_cache.of(config)
            if request.is_batch:
                return self._send_batch(request, call, entry, queue_id)
            properties, text = read_property_text(request.properties or "")
            sys_flag = request.sys_flag | entry.sys_flag
            if (
                NOT_PLAIN.isdisjoint(properties)
                and not sys_flag & TRANSACTION_BITS
                and not request.topic.startswith(RETRY_PREFIX)
            ):
                draft = self._draft(request, call, entry, queue_id, properties, text)
                return self._enqueue(draft, call, queue_id, properties)
            if self._is_half(request, sys_flag, properties):
                text = producers_text(properties, text)
                draft = half(self._draft(request, call, entry, queue_id, properties, text))
                return self._enqueue(draft, call, queue_id, properties)
            message = self._inbound(request, call, queue_id, sys_flag, properties)
            # Clients before 4.6.1 leave TRAN_MSG on what they send to a retry topic: that is not a transaction.
            message.sys_flag &= ~TRANSACTION_BITS
            if not request.topic.startswith(RETRY_PREFIX):
                return self._enqueue(self.writer.draft_with_delay(message), call, queue_id, properties)
            is_dead = self._redirect_dead_letter(request, call, message)
            if not self.topics.is_saved(message.topic):
                return self._send_when_saved(request, call)
            appended = self._store_retry(request, message, is_dead=is_dead)
        except RequestFailed as error:
            self.writer.counters.rejected(error)
            raise
        except StoreError as error:
            raise self._refused(error) from error
        return self._respond((appended,), queue_id, properties)

    def _send_when_saved(self, request: Send, call: Call) -> Awaitable[SendResponse | Deferred]:
        """To a topic that was created or changed just now: before the file has it, a crash would hide the message.

        It is stored also if the connection closes meanwhile, as after one-way sends.
        """
        return self._result_of(self.topics.when_saved(partial(self._send, request, call)))

    async def _result_of(self, sent: Awaitable[Sent]) -> SendResponse | Deferred:
        try:
            outcome = await sent
        except StoreError as error:
            raise self._refused(error) from error
        return outcome if isinstance(outcome, SendResponse | Deferred) else await outcome

    def _draft(
        self, request: Send, call: Call, entry: TopicEntry, queue_id: int, properties: dict[str, str], text: str
    ) -> Draft:
        return build_draft(
            request,
            entry,
            queue_id,
            request.body,
            encode_text(text + self._broker_text),
            born_host(call.connection.peer),
            properties.get(_UNIQUE_KEY),
            properties.get(Property.KEYS),
            properties.get(Property.TAGS),
        )

    def _enqueue(self, draft: Draft, call: Call, queue_id: int, properties: dict[str, str]) -> Deferred:
        unique_key = properties.get(_UNIQUE_KEY)
        is_ordered = Property.SHARDING_KEY in properties and draft.topic not in _SYSTEM_TOPICS
        when_stored = self._sends.count_ordered if is_ordered else None
        request = requester(call.command, unique_key)
        pending: PendingSend = (request, unique_key, properties.get(Property.WAIT), queue_id, draft, when_stored)
        self._coalescer.enqueue(self._sends, None, call.connection, [pending], len(draft.body))
        return DEFERRED

    def _refused(self, error: StoreError) -> RequestFailed:
        failure = store_error_response(error, self.store)
        self.writer.counters.rejected(failure)
        return failure

    # --- what is not stored as it came --------------------------------------------------------------------------------

    def _inbound(
        self, request: Send, call: Call, queue_id: int, sys_flag: int, properties: dict[str, str]
    ) -> InboundMessage:
        return InboundMessage(
            topic=request.topic,
            queue_id=queue_id,
            body=request.body,
            properties={**properties, **self._broker_properties},
            born_timestamp_ms=request.born_timestamp,
            born_host=born_host(call.connection.peer),
            flag=request.flag,
            sys_flag=sys_flag,
            reconsume_times=request.reconsume_times or 0,
        )

    def _store_retry(self, request: Send, message: InboundMessage, *, is_dead: bool) -> Appended:
        appended = self.writer.put(message)
        if is_dead:
            first_topic = message.properties.get(Property.RETRY_TOPIC, request.topic)
            self.writer.counters.died(first_topic, request.topic.removeprefix(RETRY_PREFIX), appended.size)
        return appended

    def _is_half(self, request: Send, sys_flag: int, properties: dict[str, str]) -> bool:
        """RequestFailed for a transaction that this broker does not accept; MessageRefused for contradicting fields."""
        if properties.get(_PREPARED, "").lower() != "true":
            if sys_flag & TRANSACTION_BITS:
                raise MessageRefused(
                    f"sysFlag {sys_flag:#x} says transaction and property {_PREPARED} does not: the message "
                    "would never be delivered, nor its producer asked about it"
                )
            return False
        if (request.reconsume_times or 0) > 0 and Property.DELAY in properties:
            return False
        if not self.checks.accepts_half_messages:
            raise RequestFailed(
                ResponseCode.NO_PERMISSION,
                f"broker {self.settings.name} accepts no transactional messages (rejectTransactionMessage = true)",
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

    # --- batches and retries, which are stored at once ---------------------------------------------------------------

    def _send_batch(self, request: Send, call: Call, entry: TopicEntry, queue_id: int) -> Sent:
        """One append for each batch, message by message: the fast path is tested against it."""
        self.checks.check_batch(request.body)
        sys_flag = request.sys_flag | entry.sys_flag
        batch = draft_batch(request, queue_id, sys_flag, born_host(call.connection.peer))
        appended = self.writer.append_batch(batch)
        properties, _ = read_property_text(request.properties or "")
        return self._respond(appended, queue_id, properties)

    def _respond(
        self, appended: Sequence[Appended], queue_id: int, properties: dict[str, str]
    ) -> SendResponse | Awaitable[SendResponse]:
        if self.writer.is_safe(appended[-1]) or not wants_durable(properties):
            return self.responses.response(ResponseCode.SUCCESS, appended, queue_id, properties.get(_UNIQUE_KEY))
        return self._respond_when_durable(appended, queue_id, properties)

    async def _respond_when_durable(
        self, appended: Sequence[Appended], queue_id: int, properties: dict[str, str]
    ) -> SendResponse:
        try:
            code = await self.writer.settled(appended)
        except StoreError as error:
            raise self._refused(error) from error
        return self.responses.response(code, appended, queue_id, properties.get(_UNIQUE_KEY))
