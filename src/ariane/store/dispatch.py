"""The dispatcher: feeds messages of the commit log to the consume queues, the index and the arrival listeners.

There are two sources. The append path (store/append/appender.py) adds entries and keys for what it has just written, so
a message is visible when it is acknowledged. After a crash, on a slave, and for a log copied from elsewhere, the log's
records are read again (`replay`). Both produce the same entries. Where messages have to be confirmed first, they are
given to a gate, which shows them and notifies listeners later (consume_queue/gate.py).

Index keys are collected and added in batches: hashing a thousand keys at once costs a tenth of hashing them one by one.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np

from ariane.errors import MessageRefused, RecordError, StoreFull
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE, delivery_time_ms
from ariane.store.blocking_io import BlockingCall
from ariane.store.commit_log.recovery import SimpleRecords
from ariane.store.config.deletions import Deletions
from ariane.store.consume_queue.gate import Gate
from ariane.store.consume_queue.new_entries import pack_all
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.index.entries import topic_hash
from ariane.store.index.index import Index
from ariane.store.index.pending_keys import PendingKeys
from ariane.wire.record.read import DispatchFacts, RecordView
from ariane.wire.sys_flag import SysFlag, transaction_type

log = logging.getLogger(__name__)

_PREPARED = int(SysFlag.TRANSACTION_PREPARED)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
_DELAY = Property.DELAY

# What a long replay keeps in memory before it is written to the files.
_KEYS_MAX = 4096
_ENTRIES_MAX = 100_000

_NO_QUEUES: dict[int, ConsumeQueue] = {}
_NEVER = 2**63 - 1


ArrivalListener = Callable[[str, int, int, int], None]
"""Called for a new message with its topic, queue id, the queue's new end, tags code."""

Arrivals = dict[tuple[ConsumeQueue, int | None], int]
"""New messages: for each queue and tags code, the queue's end. The code is None for messages with any tags."""


def is_queued(sys_flag: int) -> bool:
    """Whether a message is added to its queue: prepared and rolled back ones are not."""
    return transaction_type(sys_flag) not in (_PREPARED, _ROLLBACK)


def delivery_ms(levels_ms: tuple[int, ...], level: str, stored_ms: int) -> int | None:
    """When a message of the schedule topic is delivered, by the text of its property DELAY; None without a level."""
    if not level.isdigit() or not int(level):
        return None
    return delivery_time_ms(levels_ms, min(int(level), len(levels_ms)), stored_ms)


def _facts(view: RecordView) -> DispatchFacts:
    """Without tags and keys if another writer's properties are not text: one such record must not stop a replay."""
    try:
        return view.dispatch_facts()
    except RecordError as error:
        log.warning("record without tags and keys", extra={"offset": view.physical_offset, "reason": str(error)})
        return DispatchFacts(0, None, ())


def queue_entry(view: RecordView, delay_levels_ms: tuple[int, ...]) -> tuple[int, int, int]:
    """The entry of a record in its queue: physical offset, size, tags code."""
    return _entry(view, _facts(view), delay_levels_ms)


def _entry(view: RecordView, facts: DispatchFacts, delay_levels_ms: tuple[int, ...]) -> tuple[int, int, int]:
    """A delayed message's entry carries its delivery time in place of the tags code."""
    delivery = None
    if view.topic == SCHEDULE:
        delivery = delivery_ms(delay_levels_ms, view.properties().get(_DELAY, ""), view.store_timestamp_ms)
    return view.physical_offset, view.size, delivery or facts.tags_code


class Dispatcher:
    def __init__(
        self,
        queues: ConsumeQueues,
        index: Index | None,
        delay_levels_ms: tuple[int, ...],
        deletions: Deletions | None = None,
    ) -> None:
        self._queues = queues
        self._deletions = deletions or Deletions()
        self._index = index
        self._delay_levels_ms = delay_levels_ms
        self.keys = PendingKeys()
        """Keys not yet in the index; the append path adds none when `has_index` is False."""
        self.has_index = index is not None
        self.new_entries = queues.new_entries
        """The append path adds to it (consume_queue/new_entries.py)."""
        self._chunk_listeners: list[tuple[Callable[[Arrivals], None], Callable[[], int]]] = []
        self._listeners: list[ArrivalListener] = []
        self._topic_listeners: dict[str, list[ArrivalListener]] = {}
        self.has_listeners = False
        self.gate: Gate | None = None

    def on_arrival(self, listener: ArrivalListener, *, topic: str | None = None) -> None:
        """`topic` restricts the listener to one topic. Messages appended together cause one call for each queue and
        tags code."""
        self.has_listeners = True
        if topic is None:
            self._listeners.append(listener)
        else:
            self._topic_listeners.setdefault(topic, []).append(listener)

    def on_arrivals(self, listener: Callable[[Arrivals], None], *, wanted: Callable[[], int]) -> None:
        """Called once for all messages that were appended together, if `wanted` then returns true: mostly no pull
        waits, and to list the arrivals would cost 0.1 us per message, three times that if each has its own topic."""
        self.has_listeners = True
        self._chunk_listeners.append((listener, wanted))

    def publish(self, queues: Sequence[ConsumeQueue], tags_codes: Sequence[int], ends: Iterable[int]) -> None:
        """Messages were appended together: the queue and the tags code of each, and where it ends in the log."""
        if self.gate is not None:
            self.gate.hold(queues, tags_codes, list(ends))
        elif self.has_listeners:
            self.notify(queues, tags_codes)

    def publish_batch(self, queue: ConsumeQueue, tags_codes: Sequence[int], ends: Iterable[int]) -> None:
        """The same for messages of one queue, of which many have the same tags code."""
        if self.gate is not None:
            self.gate.hold([queue] * len(tags_codes), tags_codes, list(ends))
        elif self.has_listeners:
            codes = set(tags_codes)
            self.notify([queue] * len(codes), codes)

    def notify(self, queues: Sequence[ConsumeQueue], tags_codes: Iterable[int | None]) -> None:
        """Messages have become visible: the queue and the tags code of each."""
        listeners = [listener for listener, wanted in self._chunk_listeners if wanted()]
        of_topics = self._topic_listeners
        are_heard = bool(of_topics) and not of_topics.keys().isdisjoint([queue.topic for queue in queues])
        if not (listeners or are_heard or self._listeners):
            return
        arrivals = {(queue, code): queue.visible_end for queue, code in zip(queues, tags_codes, strict=True)}
        for listener_of_all in listeners:
            listener_of_all(arrivals)
        for (queue, tags_code), end in arrivals.items():
            for listener in (*self._listeners, *of_topics.get(queue.topic, ())):
                listener(queue.topic, queue.queue_id, end, tags_code or 0)

    @property
    def pending_key_count(self) -> int:
        """Number of keys that are not in the index yet."""
        return len(self.keys)

    def cold_index_fetch(self) -> BlockingCall | None:
        """The blocking call that caches the pages which `write_index` touches; None if they are cached."""
        return self._index.cold_fetch(self.keys) if self.keys and self._index is not None else None

    def write_index(self) -> None:
        """Adds the collected keys to the index; StoreFull when the disk is full, and then all of them are kept."""
        if self.keys and self._index is not None:
            self._index.put_columns(self.keys)
            self.keys = PendingKeys()

    def replay(
        self, records: Iterable[RecordView | SimpleRecords], *, is_plain: bool = True, keep_if_full: bool = False
    ) -> int:
        """Dispatches records read from the log and returns their number; skips entries that a queue already has.

        Records of deleted topics are only indexed, as they were before the deletion. `keep_if_full`: without space for
        queues or index, what is not written stays in memory, as while a broker runs; otherwise that is StoreFull.

        Needs no running store: only queues and, optionally, an index (store/offline/rebuild.py). Without `is_plain`,
        every record is given to its queue alone, which compares it with its own entry.
        """
        number, written, known_to = 0, 0, self._queues.max_physical
        is_full = False
        for item in records:
            number += self._replay_item(item, known_to if is_plain else _NEVER)
            if not is_full and (len(self.keys) >= _KEYS_MAX or number - written >= _ENTRIES_MAX):
                is_full = self._write_replayed(number - written >= _ENTRIES_MAX, keep_if_full)
                written = number if number - written >= _ENTRIES_MAX else written
        if not is_full:
            self._write_replayed(False, keep_if_full)
        return number

    def follow(self, records: RecordView | SimpleRecords) -> int:
        """Dispatches records that have just arrived in the log of a slave; their number. As after an append, queues
        and index have them in memory, and listeners are notified."""
        return self._replay_item(records, 0)

    def _replay_item(self, item: RecordView | SimpleRecords, known_to: int) -> int:
        """`known_to`: records from there on are new to the queues, so only their queue offsets are checked."""
        if isinstance(item, RecordView):
            self._replay_record(item)
            return 1
        self._queue_simple(item, are_new=item.physical[0] >= known_to)
        self._index_simple(item)
        return len(item.physical)

    def _write_replayed(self, with_queues: bool, keep_if_full: bool) -> bool:
        """Whether there was no space, and all of it stays in memory."""
        try:
            self.write_index()
            if with_queues:
                self._queues.write_dirty()
        except StoreFull as error:
            if not keep_if_full:
                raise
            log.warning("queues or index not written, they stay in memory", extra={"reason": str(error)})
            return True
        return False

    def _replay_record(self, view: RecordView) -> None:
        facts = _facts(view)
        is_deleted = self._deletions.covers(view.topic, view.physical_offset)
        if not view.sys_flag & _PREPARED and not is_deleted:  # neither prepared nor rolled back, which has this bit too
            self._queue(view.topic, view.queue_id, view.queue_offset, *_entry(view, facts, self._delay_levels_ms))
        if self._index is None or view.sys_flag & _ROLLBACK == _ROLLBACK:
            return
        keys = (facts.unique_key, *facts.keys) if facts.unique_key else tuple(facts.keys)
        self.keys.add([view.physical_offset], keys, view.store_timestamp_ms, [topic_hash(view.topic)], [len(keys)])

    def _queue(self, topic: str, queue_id: int, queue_offset: int, physical: int, size: int, tags_code: int) -> None:
        try:
            queue = self._queues.get_or_create(topic, queue_id)
        except MessageRefused as error:  # a topic name of another writer that must not become a directory
            log.warning("record not queued", extra={"offset": physical, "reason": str(error)})
            return
        if queue.append_at(queue_offset, physical, size, tags_code):
            self.publish((queue,), (tags_code,), (physical + size,))

    def _queue_simple(self, records: SimpleRecords, are_new: bool) -> None:
        """`are_new`: the queues do not have them, so only queue offsets are checked."""
        by_topic = self._queues.by_topic
        kept, owners, deleted = list[int](), list[ConsumeQueue](), self._deletions.ends
        rows = zip(records.topics, records.queue_ids, records.queue_offsets, records.sys_flags, strict=True)
        for number, (topic, queue_id, queue_offset, sys_flag) in enumerate(rows):
            if sys_flag & _PREPARED or (deleted and records.physical[number] < deleted.get(topic, 0)):
                continue
            queue = by_topic.get(topic, _NO_QUEUES).get(queue_id)
            if queue is not None and queue.max_offset == queue_offset and are_new:
                queue.max_offset = queue_offset + 1
                kept.append(number)
                owners.append(queue)
            else:
                self._add_entries(records, kept, owners)
                kept, owners = [], []
                physical, size, tags_code = records.entry(number)
                self._queue(topic, queue_id, queue_offset, physical, size, tags_code)
        self._add_entries(records, kept, owners)

    def _add_entries(self, records: SimpleRecords, kept: list[int], owners: list[ConsumeQueue]) -> None:
        """Adds entries of the records numbered `kept` to their queues, whose `max_offset` counts them already."""
        if not kept:
            return
        columns = (records.physical, records.sizes, records.facts.tags_codes)
        physical, sizes, tags_codes = (np.array(column, np.int64)[kept] for column in columns)
        self.new_entries += pack_all([queue.number for queue in owners], physical, sizes, tags_codes)
        if self.has_listeners or self.gate is not None:
            self.publish(owners, tags_codes.tolist(), (physical + sizes).tolist())

    def _index_simple(self, records: SimpleRecords) -> None:
        if self._index is None:
            return
        keys: Sequence[Sequence[str]] = records.facts.keys
        if any(map(_ROLLBACK.__and__, records.sys_flags)):
            flags = records.sys_flags
            keys = [() if flag & _ROLLBACK == _ROLLBACK else some for flag, some in zip(flags, keys, strict=True)]
        texts, topics = list(chain.from_iterable(keys)), list(map(topic_hash, records.topics))
        self.keys.add_each(records.physical, texts, records.timestamps_ms, topics, list(map(len, keys)))
