"""The fast path for sends: from the bytes of a chunk to drafts and batches, for what is stored as it came.

    chunk ─► SendDecoder ─► topic entry ─► property pattern ─► build_draft ──┐
                                       └─► sizes of the first item ──────────┴─► enqueued for one append

It stops before the first uncommon frame - a new topic, a delivery time, a retry, an irregular property text - and the
connection hands that frame to the general path (handler.py), which also reports errors, and then comes back here. Half
messages and delay levels are common: their property text, too, is stored as it came. Both enqueue the same drafts, so
the only difference is the CPU time (docs/decisions/send-path.md has the figures of each step).

What is the same for many messages is looked up once: flow control and the broker's own state once a chunk, a topic's
configuration once until any topic changes, the names of properties once a pattern.
"""

import re
from functools import partial

from ariane.broker.coalescer import Coalescer
from ariane.broker.send.batch import check_no_single
from ariane.broker.send.checks import SendChecks, accepts_sends, born_host
from ariane.broker.send.drafts import (
    NOT_PLAIN,
    TRANSACTION_BITS,
    PendingSend,
    TopicCache,
    TopicEntry,
    WhenStored,
    build_draft,
)
from ariane.broker.send.flow_control import FlowControl
from ariane.broker.send.responses import is_plain
from ariane.broker.send.sinks import BatchKind, BatchSink, PendingBatch, SendSink
from ariane.broker.transactions.half_messages import NOT_FROM_PRODUCERS, half
from ariane.broker.writer import delayed, means_durable
from ariane.errors import MessageRefused
from ariane.model.message import Property
from ariane.store.append.draft import Draft
from ariane.transport.connection import Connection
from ariane.wire.fast.decoders import SendDecoder, begins_with_send
from ariane.wire.fast.fields import FrameCheck, Opaque, SendFrames
from ariane.wire.frame import FrameLimits
from ariane.wire.properties import PAIR_END, PropertyPatternCache, read_property_text
from ariane.wire.record.uniform_batch import uniform_sizes_of
from ariane.wire.requests.send import Send

_TAGS, _KEYS, _UNIQUE_KEY, _WAIT = Property.TAGS, Property.KEYS, Property.UNIQUE_KEY, Property.WAIT
_DELAY, _PREPARED = Property.DELAY, Property.TRANSACTION_PREPARED
_HALF_ONLY, _DELAY_ONLY = {_PREPARED}, {_DELAY}
_REAL_NAMES = frozenset({Property.REAL_TOPIC, Property.REAL_QUEUE_ID})
_LEVEL = re.compile("[1-9][0-9]?").fullmatch
BatchOptions = tuple[str | None, bool]
"""Unique key and WAIT of a batch, not of its messages."""


class SendFastPath:
    def __init__(
        self,
        checks: SendChecks,
        flow: FlowControl,
        topics: TopicCache,
        coalescer: Coalescer,
        sends: SendSink,
        batches: BatchSink,
        broker_properties: str,
        limits: FrameLimits,
        frames: SendFrames | None = None,
    ) -> None:
        """`broker_properties` is the text that the broker adds to each message. `frames` decodes a chunk."""
        self._checks = checks
        self._flow = flow
        self._topics = topics
        self._coalescer = coalescer
        self._sends = sends
        self._writer = sends.writer
        self._batches = batches
        self._added, self._end_and_added = broker_properties, PAIR_END + broker_properties
        self._limits = limits
        self._frames = frames or SendDecoder().frames
        self._patterns = PropertyPatternCache()
        self._last_options: tuple[str | None, BatchOptions] = None, (None, True)

    def take(self, connection: Connection, data: bytes, position: int, check: FrameCheck | None = None) -> int:
        """Enqueues the sends in `data` from `position` on; returns where the first frame begins that it leaves.

        `check` is access control: a frame that it does not admit is left, too.
        """
        if not begins_with_send(data, position) or not accepts_sends(self._flow, self._checks):
            return position
        entries, began = self._topics.entries, position
        host = born_host(connection.peer)
        pending: list[PendingSend] = []
        for end, opaque, fields, body_at in self._frames(data, position, self._limits, check):
            entry = entries.get(fields.topic)
            queue_id = fields.queue_id
            if entry is None or not 0 <= queue_id < entry.queues or body_at == end:
                break
            if fields.batch is True:
                self._enqueue(connection, pending, position - began)
                pending, began = [], end
                if not self._take_batch(connection, opaque, fields, entry, host, memoryview(data)[body_at:end]):
                    break
                position = end
                continue
            text = fields.properties or ""
            match = entry.match(text)
            if match is not None:
                unique_key, keys, tags, wait = match.group(*entry.groups)
                delay = match.group(entry.delay_group) if entry.delay_group else None
            elif (properties := self._read(entry, text)) is not None:
                unique_key, keys = properties.get(_UNIQUE_KEY), properties.get(_KEYS)
                tags, wait, delay = properties.get(_TAGS), properties.get(_WAIT), properties.get(_DELAY)
                if not is_plain(unique_key):
                    break
            else:
                break
            try:
                encoded = (text + (self._added if not text or text[-1] == PAIR_END else self._end_and_added)).encode()
            except UnicodeEncodeError:
                break
            draft = build_draft(fields, entry, queue_id, data[body_at:end], encoded, host, unique_key, keys, tags)
            when_stored: WhenStored | None = None
            if entry.is_half or delay is not None or fields.sys_flag & TRANSACTION_BITS:
                if not self._defer(draft, entry, delay):
                    break
                if entry.is_half:
                    when_stored = partial(self._writer.half_stored, entry.topic, queue_id, draft.properties)
            elif entry.is_ordered:
                when_stored = self._sends.count_ordered
            pending.append((opaque, unique_key, wait, queue_id, draft, when_stored))
            position = end
        self._enqueue(connection, pending, position - began)
        return position

    def _enqueue(self, connection: Connection, pending: list[PendingSend], size: int) -> None:
        if pending:
            self._coalescer.enqueue(self._sends, None, connection, pending, size)

    def _read(self, entry: TopicEntry, text: str) -> dict[str, str] | None:
        """The properties of a text with other names than the last; None when it cannot be stored as it came."""
        try:
            properties, regular = read_property_text(text)
        except MessageRefused:
            return None
        if not _is_kept(properties) or regular.rstrip(PAIR_END) != text.rstrip(PAIR_END):
            return None
        entry.use(self._patterns.of(properties))
        entry.is_ordered, entry.is_half = Property.SHARDING_KEY in properties, _PREPARED in properties
        return properties

    def _defer(self, draft: Draft, entry: TopicEntry, delay: str | None) -> bool:
        """Turns a draft into one that waits in a system topic, for its outcome or its time; False when the general path
        must decide."""
        if entry.is_half:
            if not draft.sys_flag & TRANSACTION_BITS or not self._checks.accepts_half_messages:
                return False
            half(draft)
            return True
        delay_ms = None if delay is None else self._writer.delay_of(int(delay))
        if delay is None or delay_ms is None or draft.sys_flag & TRANSACTION_BITS:
            return False
        delayed(draft, int(delay), delay_ms)
        return True

    # --- batches ----------------------------------------------------------------------------------------------------
    #
    # A batch by itself spends most of its time on what is done once for it, so batches that came together are stored
    # together (sinks.py).

    def _take_batch(
        self, connection: Connection, opaque: Opaque, fields: Send, entry: TopicEntry, host: bytes, body: memoryview
    ) -> bool:
        options = self._options(fields.properties)
        if options is None or fields.sys_flag & TRANSACTION_BITS or len(body) > self._checks.batch_bytes_max:
            return False
        batch = PendingBatch(opaque, *options, fields, fields.sys_flag | entry.sys_flag, host, body)
        kind = BatchKind(entry.topic, uniform_sizes_of(body), len(host))
        self._coalescer.enqueue(self._batches, kind, connection, [batch], len(body))
        return True

    def _options(self, text: str | None) -> BatchOptions | None:
        """Mostly the same as of the last batch. None when the properties cannot be read, or ask for what a batch cannot
        have."""
        last_text, options = self._last_options
        if text == last_text:
            return options
        try:
            properties, _ = read_property_text(text or "")
            check_no_single(properties)
        except MessageRefused:
            return None
        unique_key = properties.get(_UNIQUE_KEY)
        if not is_plain(unique_key):
            return None
        options = unique_key, means_durable(properties.get(_WAIT))
        self._last_options = text, options
        return options


def _is_kept(properties: dict[str, str]) -> bool:
    """Whether a text is stored as it came, perhaps with properties of the broker behind it."""
    odd = NOT_PLAIN.intersection(properties)
    if odd == _HALF_ONLY:
        return properties[_PREPARED] == "true" and NOT_FROM_PRODUCERS.isdisjoint(properties)
    if odd == _DELAY_ONLY:
        return _LEVEL(properties[_DELAY]) is not None and _REAL_NAMES.isdisjoint(properties)
    return not odd
