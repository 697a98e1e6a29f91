"""The only writer to the commit log: sends, retries, transactions, delayed deliveries and replies all go through it.

    client's send ─┐
    send-back ─────┤                     delays                    draft_of
    transactions ──┼─► InboundMessage ──(deferred)──► InboundMessage ──────► Draft ──► commit log
    delivery ──────┤      ▲                                                    │
    replies ───────┘      └──────────────── inbound_message_of ◄───────────────┘

A plain send is a draft from the start (send/drafts.py).

Messages with a delay are stored in a system topic until they are due. The first property that is there counts:

    property               a number of     stored in                             queue entry carries
    DELAY                  the level       SCHEDULE_TOPIC_XXXX, queue level - 1  the delivery time
    TIMER_DELAY_SEC        seconds         rmq_sys_wheel_timer, queue 0,         the tags code; the time
    TIMER_DELAY_MS         milliseconds      with TIMER_OUT_MS = delivery time     is in TIMER_OUT_MS
    TIMER_DELIVER_MS       ms since 1970

Either way REAL_TOPIC and REAL_QID name the message's own topic and queue. Messages of the two transaction types that no
queue takes, prepared and rolled back, are never deferred.

A sender gets the reason why its message was not stored as a response code:

    MessageRefused       MESSAGE_ILLEGAL         this message can never be stored here
    WritesSuspended      SERVICE_NOT_AVAILABLE   nothing is stored now: the role of this broker does not allow it
    StoreFull            SERVICE_NOT_AVAILABLE   nothing is stored now; the remark has the use of each disk (1: full)
    StoreReadOnly        SERVICE_NOT_AVAILABLE   nothing is stored until the broker is restarted
    OutcomeUnknown       SYSTEM_ERROR            it is stored, and perhaps not at the broker that is the master next
    any other            SYSTEM_ERROR

A stored message is settled, and its sender answered, when all is kept that the settings promise:

    durable      SYNC_FLUSH     a sync of the disk covers it            else FLUSH_DISK_TIMEOUT
    replicated   SYNC_MASTER    a slave has it (replication/master.py)  else FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE
    confirmed    a gated store  all members of the group in sync have   else FLUSH_SLAVE_TIMEOUT; OutcomeUnknown when
                                it (store/consume_queue/gate.py)        the role of this broker ends before

Java producers try another broker for all but the first.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ariane.broker.settings import BrokerSettings
from ariane.broker.stats.counters import Counters
from ariane.clock import Clock
from ariane.errors import (
    MessageRefused,
    OutcomeUnknown,
    RecordError,
    RequestFailed,
    StoreError,
    StoreFull,
    StoreReadOnly,
    WritesSuspended,
)
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE, TIMER, parse_levels
from ariane.replication.master import Master
from ariane.replication.progress import Replicated
from ariane.store.append.appender import AppendResult
from ariane.store.append.batch import AppendedBatch, DraftBatch, DraftBatchGroup
from ariane.store.append.draft import Appended, Draft
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType
from ariane.wire.codes import ResponseCode
from ariane.wire.hashes import tags_code
from ariane.wire.properties import CHECKSUM_PROPERTY, encode_properties, join_properties, keys_of
from ariane.wire.record.read import RecordView, verify

_TAGS, _WAIT = Property.TAGS, Property.WAIT


class InboundMessage(msgspec.Struct, kw_only=True):
    """A message on its way in, before delays are looked at."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    born_timestamp_ms: int
    born_host: bytes
    """As a record holds it (wire/host.py)."""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def draft_of(message: InboundMessage) -> Draft:
    """MessageRefused when a property cannot be written."""
    properties = message.properties
    try:
        encoded = encode_properties(properties)
    except RecordError as error:
        raise MessageRefused(str(error)) from None
    return Draft(
        topic=message.topic,
        queue_id=message.queue_id,
        body=message.body,
        properties=encoded,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        tags_code=tags_code(properties.get(_TAGS)),
        keys=keys_of(properties),
    )


def inbound_message_of(record: memoryview) -> InboundMessage:
    """A stored record as a message that can be stored again; RecordError when there is no valid record."""
    view = verify(record, 0, check_body_crc=False)
    if not isinstance(view, RecordView):
        raise RecordError(f"no message that could be put again: {getattr(view, 'reason', 'a blank record')}")
    properties = view.properties()
    properties.pop(CHECKSUM_PROPERTY, None)
    return InboundMessage(
        topic=view.topic,
        queue_id=view.queue_id,
        body=view.body(record),
        properties=properties,
        born_timestamp_ms=view.born_timestamp_ms,
        born_host=view.born_host,
        flag=view.flag,
        sys_flag=view.sys_flag,
        reconsume_times=view.reconsume_times,
        prepared_transaction_offset=view.prepared_transaction_offset,
    )


# --- delays ---------------------------------------------------------------------------------------------------------

TIMER_OUT_MS = "TIMER_OUT_MS"
"""When a message in the timer's topic is due, in ms since 1970."""

_DELAY = Property.DELAY
_TIMERS = (Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)
DEFERRING = frozenset({_DELAY, *_TIMERS})
"""A message without any of these properties is delivered at once."""

REAL_FORM = join_properties([(Property.REAL_TOPIC, "%b"), (Property.REAL_QUEUE_ID, "%d")]).encode()
"""Where a message belongs that waits in a system topic: what the broker adds to its properties."""

_NOT_QUEUED = 0x4  # the bit that prepared (4) and rolled back (12) share
_NUMBER_LENGTH_MAX = 20


class DelayRules(NamedTuple):
    levels_ms: tuple[int, ...]
    timer_enable: bool
    timer_delay_max_s: int


class Deferred(NamedTuple):
    message: InboundMessage
    delay_ms: int
    """Of a delay level, whose queue entry carries the delivery time in place of the tags code; 0 for the timer."""


def deferred(message: InboundMessage, rules: DelayRules, now_ms: int) -> Deferred | None:
    """The message as it is stored until it is due; None when it is due now. MessageRefused for an impossible delay."""
    if message.sys_flag & _NOT_QUEUED or DEFERRING.isdisjoint(message.properties):
        return None
    level = _number(message.properties, _DELAY)
    if level is not None and level > 0:
        return _by_level(message, min(level, len(rules.levels_ms)), rules.levels_ms)
    due_ms = _due_ms(message.properties, now_ms)
    if due_ms is None or due_ms <= now_ms:
        return None
    return _by_timer(message, due_ms, rules, now_ms)


def _by_level(message: InboundMessage, level: int, levels_ms: tuple[int, ...]) -> Deferred:
    properties = {name: value for name, value in message.properties.items() if name not in _TIMERS}
    properties[_DELAY] = str(level)
    return Deferred(_deferred_to(message, SCHEDULE, level - 1, properties), levels_ms[level - 1])


def _by_timer(message: InboundMessage, due_ms: int, rules: DelayRules, now_ms: int) -> Deferred:
    if not rules.timer_enable:
        raise MessageRefused(
            "the message has a delivery time and timerWheelEnable is false: turn it on or use DELAY levels"
        )
    if due_ms - now_ms > rules.timer_delay_max_s * 1000:
        raise MessageRefused(
            f"the message is due in {(due_ms - now_ms) // 1000} s, more than timerMaxDelaySec = "
            f"{rules.timer_delay_max_s}: deliver it sooner or raise the limit"
        )
    return Deferred(_deferred_to(message, TIMER, 0, {**message.properties, TIMER_OUT_MS: str(due_ms)}), 0)


def _deferred_to(message: InboundMessage, topic: str, queue_id: int, properties: dict[str, str]) -> InboundMessage:
    properties[Property.REAL_TOPIC] = message.topic
    properties[Property.REAL_QUEUE_ID] = str(message.queue_id)
    return replace(message, topic=topic, queue_id=queue_id, properties=properties)


def delayed(draft: Draft, level: int, delay_ms: int) -> Draft:
    """Turns the draft of a send whose property DELAY is this level, and that has no other delay, into one that waits.

    As `deferred`, for a property text that is stored as it came.
    """
    draft.properties += REAL_FORM % (draft.topic.encode(), draft.queue_id)
    draft.topic, draft.queue_id, draft.delay_ms = SCHEDULE, level - 1, delay_ms
    return draft


def _due_ms(properties: dict[str, str], now_ms: int) -> int | None:
    seconds, milliseconds, at_ms = (_number(properties, name) for name in _TIMERS)
    if seconds is not None:
        return now_ms + seconds * 1000
    return now_ms + milliseconds if milliseconds is not None else at_ms


def _number(properties: dict[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _NUMBER_LENGTH_MAX:
        raise MessageRefused(f"property {name} must be a whole number, got {text[:40]!r}")
    return int(text)


# --- the writer -------------------------------------------------------------------------------------------------------

_REPLICATED = {
    Replicated.YES: ResponseCode.SUCCESS,
    Replicated.NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    Replicated.TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
}

Respond = Callable[[ResponseCode | StoreError], None]


class _Settling:
    """One outcome for several promises: the first error, else what a slave or the group lacks, else the disk."""

    __slots__ = ("_code", "_left", "_respond")

    def __init__(self, promises: int, respond: Respond) -> None:
        self._left = promises
        self._respond = respond
        self._code = ResponseCode.SUCCESS

    def done(self, outcome: ResponseCode | StoreError) -> None:
        if self._left <= 0:
            return
        self._left -= 1
        if isinstance(outcome, StoreError):
            self._left = 0
            self._respond(outcome)
            return
        if self._code in (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT) and outcome != ResponseCode.SUCCESS:
            self._code = outcome
        if not self._left:
            self._respond(self._code)


HalfStored = Callable[[str, int, bytes, Draft, Appended], None]
"""The message's own topic, queue and property text; its draft as a half message; where that is."""


class MessageWriter:
    """For the event loop alone; only `settled` waits."""

    def __init__(
        self, service: StoreService, settings: BrokerSettings, clock: Clock, counters: Counters | None = None
    ) -> None:
        self.counters = counters or Counters()
        self._service = service
        self.store = service.store
        self._settings = settings
        self._clock = clock
        self._levels_ms = parse_levels(settings.store.message_delay_levels)
        self._is_sync = service.store.settings.flush_disk_type is FlushDiskType.SYNC
        self._master: Master | None = None
        self._gate = self.store.gate
        self._promises = self._is_sync + (self._gate is not None)
        self.must_wait = self._promises > 0
        """Whether a stored message is settled only later."""
        self._waiting: dict[int, float] = {}
        self._waiting_messages = self._unconfirmed_messages = 0
        self._tickets = itertools.count()
        self._flush_enqueued: Callable[[], None] = _nothing_enqueued
        self.half_stored: HalfStored = _nobody_listens

    def on_half_stored(self, listener: HalfStored) -> None:
        """Calls `listener` with each half message that was stored as it came."""
        self.half_stored = listener

    # --- into the log -------------------------------------------------------------------------------------------------

    def check_accepting(self) -> None:
        """RequestFailed while the role of the broker allows no writes, for handlers that change more than the log."""
        if (suspended := self.store.refusal.suspended) is not None:
            raise store_error_response(suspended, self.store)

    def put(self, message: InboundMessage) -> Appended:
        """Stores a message, in its own topic or until its delay is over; the StoreError says why it was not stored."""
        return self.append(self.draft_with_delay(message))

    def draft_with_delay(self, message: InboundMessage) -> Draft:
        """The draft of a message in its own topic, or in the system topic where it waits until its delay is over."""
        later = deferred(message, self._rules(), self._clock.now_ms())
        if later is None:
            return draft_of(message)
        draft = draft_of(later.message)
        draft.delay_ms = later.delay_ms
        return draft

    def delay_of(self, level: int) -> int | None:
        """In milliseconds; None when there is no such level."""
        return self._levels_ms[level - 1] if 0 < level <= len(self._levels_ms) else None

    def put_together(self, messages: Sequence[InboundMessage]) -> list[Appended]:
        """A batch, all or none. Delays are for single messages: nothing is deferred here."""
        return self.append_all([draft_of(message) for message in messages])

    def flush_first(self, flush: Callable[[], None]) -> None:
        """Calls `flush` before anything else is appended, or enqueued by another coalescer.

        So a coalescer keeps the order of arrival. For one with nothing enqueued yet; `flush` may be called when nothing
        is enqueued any more.
        """
        if flush != self._flush_enqueued:
            self._flush_enqueued()
            self._flush_enqueued = flush

    def append(self, draft: Draft) -> Appended:
        """Stores a draft as it is: for callers who know that it has no delay, or that its delay is over."""
        self._flush_enqueued()
        appended = _appended(self.store.append((draft,)))[0]
        self.counters.put(draft.topic, appended.size, self.store.append_s)
        return appended

    def append_each(self, drafts: Sequence[Draft]) -> list[AppendResult]:
        """Stores drafts with one append, each for itself; the result of each."""
        self._flush_enqueued()
        outcomes = self.store.append(drafts)
        stored = [
            (draft.topic, result.size)
            for draft, result in zip(drafts, outcomes, strict=True)
            if type(result) is Appended
        ]
        if stored:
            topics, sizes = zip(*stored, strict=True)
            self.counters.put_all(topics, sizes, self.store.append_s)
        return outcomes

    def append_all(self, drafts: Sequence[Draft]) -> list[Appended]:
        """A batch, all or none, of one topic."""
        self._flush_enqueued()
        appended = _appended(self.store.append_together(drafts))
        if appended:
            self.counters.put_together(drafts[0].topic, appended)
        return appended

    def append_batch(self, batch: DraftBatch) -> AppendedBatch:
        """A client's batch, all or none."""
        self._flush_enqueued()
        appended = self.store.append_batch(batch)
        if isinstance(appended, StoreError):
            raise appended.with_traceback(None)
        self.counters.put_batch(batch.topic, appended.sizes)
        return appended

    def append_batches(self, drafts: DraftBatchGroup) -> list[AppendedBatch | StoreError]:
        """Several batches of one topic, each all or none; the result of each."""
        self._flush_enqueued()
        outcomes = self.store.append_batches(drafts)
        stored = [batch.sizes for batch in outcomes if isinstance(batch, AppendedBatch)]
        if stored:
            self.counters.put_batch(drafts.topic, list(itertools.chain.from_iterable(stored)), len(stored))
        return outcomes

    def _rules(self) -> DelayRules:
        return DelayRules(self._levels_ms, self._settings.timer_enable, self._settings.timer_delay_max_s)

    # --- until it is settled ------------------------------------------------------------------------------------------

    def wait_for_slaves(self, master: Master) -> None:
        """Messages are settled only when a slave has them: SYNC_MASTER."""
        self._promises += self._master is None
        self._master, self.must_wait = master, True

    def is_safe(self, appended: Appended) -> bool:
        """Whether it is settled already."""
        if not self.must_wait:
            return True
        end, gate = appended.end, self._gate
        return (
            (not self._is_sync or end <= self.store.flusher.flushed_to)
            and (self._master is None or self._master.is_replicated(end))
            and (gate is None or end <= gate.confirmed_to)
        )

    async def settled(self, appended: Appended | Sequence[Appended], *, wait: bool = True) -> ResponseCode:
        """SUCCESS, or why it is stored and yet not as safe as the settings promise.

        `wait` is `wants_durable(properties)`. StoreReadOnly when the sync failed, OutcomeUnknown when the role of the
        broker ended: the producer must not take the message for sent.
        """
        outcomes = [appended] if isinstance(appended, Appended) else list(appended)
        if not wait or not self.must_wait or not outcomes:
            return ResponseCode.SUCCESS
        future: asyncio.Future[ResponseCode] = asyncio.get_running_loop().create_future()

        def respond(outcome: ResponseCode | StoreError) -> None:
            if future.done():  # the connection is gone
                return
            if isinstance(outcome, StoreError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.when_settled(len(outcomes), respond, max(record.end for record in outcomes))
        return await future

    def when_settled(self, messages: int, respond: Respond, end: int | None = None) -> None:
        """The same for all that was written, or up to `end`: `respond` gets the code or the error, perhaps now.

        `messages` wait for it. Only where they `must_wait`."""
        end = self.store.components.commit_log.max_offset if end is None else end
        done = respond if self._promises == 1 else _Settling(self._promises, respond).done
        if self._master is not None:
            self._when_replicated(self._master, messages, done, end)
        if self._gate is not None:
            self._when_confirmed(messages, done, end)
        if self._is_sync:
            self._when_durable(messages, done, end)

    def _when_replicated(self, master: Master, messages: int, respond: Respond, end: int) -> None:
        began = self._clock.monotonic()

        def done(future: asyncio.Future[Replicated]) -> None:
            replicated = future.result()
            if replicated is not Replicated.NOT_AVAILABLE:  # nobody waited
                self.counters.replicated_s.add(self._clock.monotonic() - began, messages)
            respond(_REPLICATED[replicated])

        master.replicated(end).add_done_callback(done)

    def _when_confirmed(self, messages: int, respond: Respond, end: int) -> None:
        self._unconfirmed_messages += messages

        def done(error: StoreError | TimeoutError | None) -> None:
            self._unconfirmed_messages -= messages
            if isinstance(error, StoreError):
                respond(error)
            else:
                respond(ResponseCode.SUCCESS if error is None else ResponseCode.FLUSH_SLAVE_TIMEOUT)

        self._service.when_confirmed(end, done)

    def _when_durable(self, messages: int, respond: Respond, end: int) -> None:
        ticket = next(self._tickets)
        self._waiting_messages += messages
        began = self._waiting[ticket] = self._clock.monotonic()

        def done(error: StoreError | TimeoutError | None) -> None:
            del self._waiting[ticket]
            self._waiting_messages -= messages
            self.counters.sync_s.add(self._clock.monotonic() - began, messages)
            if error is None:
                respond(ResponseCode.SUCCESS)
            else:
                respond(ResponseCode.FLUSH_DISK_TIMEOUT if isinstance(error, TimeoutError) else error)

        self._service.when_durable(end, done)

    def sync_here(self, messages: int) -> bool:
        """Syncs on the event loop if that is short; whether all that was written is settled. `messages` waited for it.

        For the end of an event-loop iteration."""
        if self._promises != self._is_sync:
            return False
        began = self._clock.monotonic()
        if not self._service.sync_here():
            return False
        self.counters.sync_s.add(self._clock.monotonic() - began, messages)
        return True

    @property
    def waiting(self) -> int:
        """How many messages wait for a sync or for a confirmation."""
        return max(self._waiting_messages, self._unconfirmed_messages)

    @property
    def longest_wait_ms(self) -> int:
        """How long the first has waited for a sync: a dict keeps its keys in the order of arrival."""
        first = next(iter(self._waiting.values()), None)
        return 0 if first is None else round((self._clock.monotonic() - first) * 1000)


def wants_durable(properties: dict[str, str]) -> bool:
    """Whether the producer waits for durability: WAIT=false says that it does not."""
    return means_durable(properties.get(_WAIT))


def means_durable(wait: str | None) -> bool:
    """The same by the value of WAIT."""
    return wait is None or wait.lower() != "false"


def _nothing_enqueued() -> None:
    pass


def _nobody_listens(*_: object) -> None:
    pass


def _appended(outcomes: Sequence[AppendResult]) -> list[Appended]:
    appended = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
    for outcome in outcomes:
        if isinstance(outcome, StoreError):
            # Many callers may get the same object; without this its traceback would grow with each of them.
            raise outcome.with_traceback(None)
    return appended


# --- errors -----------------------------------------------------------------------------------------------------------


def store_error_response(error: StoreError, store: MessageStore) -> RequestFailed:
    if isinstance(error, MessageRefused):
        return RequestFailed(ResponseCode.MESSAGE_ILLEGAL, f"the message is refused: {error}")
    if isinstance(error, StoreFull):
        return RequestFailed(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}{_disks(store)}")
    if isinstance(error, StoreReadOnly | WritesSuspended):
        return RequestFailed(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")
    what = "its outcome is unknown" if isinstance(error, OutcomeUnknown) else "the message is not stored"
    return RequestFailed(ResponseCode.SYSTEM_ERROR, f"{what}: {error}")


def _disks(store: MessageStore) -> str:
    """The ratios in Apache's form, which operators' scripts look for."""
    layout = store.components.layout
    with suppress(OSError):
        log, queues, index = (
            store.components.disk.used_ratio(path) for path in (layout.commit_log, layout.root, layout.root)
        )
        return f" (CL: {log:.2f} CQ: {queues:.2f} INDEX: {index:.2f})"
    return ""
