"""Reads one split of a log as Arrow batches. It runs where the split is sent to, and needs only the files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from ariane.arrow.decode import Decoder
from ariane.arrow.gather import Bools, Int64s, all_true
from ariane.arrow.log.files import LogFiles, QueueEntries, open_queues, topics_with_queues
from ariane.arrow.log.split import LogSplit, ScanStrategy
from ariane.arrow.rows import Rows
from ariane.arrow.schema import message_schema
from ariane.arrow.validate import CheckedRows
from ariane.arrow.walk import BadRecord, Walk, next_record, reason_at
from ariane.errors import StoreMismatch
from ariane.model.system_topics import SCHEDULE
from ariane.store.commit_log.scan import DataFile
from ariane.store.consume_queue.scan import Entries
from ariane.store.layout import Layout
from ariane.wire.hashes import tags_code

# --- records that consume queues name ---

_HASHES_MIN = -(2**31)


@dataclass(frozen=True, eq=False)
class QueuedRecords:
    """Physical offsets in the order of the log and, if queues name them, the fields that the records must have.

    The queues of a split are merged: reading queue by queue would touch every page of the log once per queue.
    """

    offsets: Int64s
    sizes: Int64s | None = None
    queue_ids: Int64s | None = None
    queue_offsets: Int64s | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, begin: int, end: int) -> "QueuedRecords":
        parts = (self.sizes, self.queue_ids, self.queue_offsets)
        return QueuedRecords(self.offsets[begin:end], *(None if part is None else part[begin:end] for part in parts))

    def matching(self, walk: Walk, checked: CheckedRows) -> tuple[Rows, list[BadRecord]]:
        """The records that match their queue entries, and the bad ones."""
        rows = checked.rows
        bad = [self._bad(walk, index) for index in self._not_in(checked.indexes)]
        is_wrong = self._mismatches(checked)
        is_wrong[rows.invalid_topics()] = True
        for index in np.flatnonzero(is_wrong).tolist():
            reason = "a record that is not the one that the queue's entry names"
            bad.append(walk.bad_record(int(rows.position[index]), rows.size(index), reason))
        return rows if not bad else rows.take(~is_wrong), bad

    def _not_in(self, indexes: Int64s) -> list[int]:
        """The other indexes. Nearly always there are none, and finding them costs more than reading a record."""
        if len(indexes) == len(self):
            return []
        others: list[int] = np.setdiff1d(np.arange(len(self)), indexes).tolist()
        return others

    def _bad(self, walk: Walk, index: int) -> BadRecord:
        at = int(self.offsets[index]) - (walk.base or 0)
        size = 0 if self.sizes is None else int(self.sizes[index])
        return walk.bad_record(at, size, reason_at(walk.source, at, walk.limit, walk.base))

    def _mismatches(self, checked: CheckedRows) -> Bools:
        rows, which = checked.rows, checked.indexes
        is_wrong = np.zeros(len(rows), np.bool_)
        if self.sizes is None or self.queue_ids is None or self.queue_offsets is None:
            return is_wrong
        is_wrong |= rows.field("size", np.int64) != self.sizes[which]
        is_wrong |= rows.field("queueId", np.int64) != self.queue_ids[which]
        is_wrong |= rows.field("queueOffset", np.int64) != self.queue_offsets[which]
        return is_wrong


def queued_records(layout: Layout, split: LogSplit) -> QueuedRecords:
    selection = split.selection
    topics = [topic for topic in topics_with_queues(layout) if selection.topics is None or topic in selection.topics]
    parts = [_in_split(queue, split) for queue in open_queues(layout, topics, selection.queue_ids)]
    if not parts:
        return QueuedRecords(np.empty(0, np.int64))
    offsets, sizes, queue_ids, queue_offsets = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(offsets, kind="stable")
    return QueuedRecords(offsets[order], sizes[order], queue_ids[order], queue_offsets[order])


def _in_split(queue: QueueEntries, split: LogSplit) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Physical offsets, sizes, queue ids and queue offsets of the selected entries."""
    first, end = queue.offset_at(split.begin), queue.offset_at(split.end)
    ranges = split.selection.ranges
    if ranges is not None:
        own = [bounds for bounds in ranges if (bounds.topic, bounds.queue_id) == (queue.topic, queue.queue_id)]
        first = max(first, min((bounds.first for bounds in own), default=end))
        end = min(end, max((bounds.end for bounds in own), default=first))
    entries = queue.read(first, max(first, end))
    queue_offsets = np.arange(first, first + len(entries))
    keep = _by_tags(queue.topic, entries, split.selection.tags)
    if not all_true(keep):
        entries, queue_offsets = entries[keep], queue_offsets[keep]
    offsets, sizes = entries["offset"].astype(np.int64), entries["size"].astype(np.int64)
    return offsets, sizes, np.full(len(entries), queue.queue_id, np.int64), queue_offsets


def _by_tags(topic: str, entries: Entries, tags: frozenset[str] | None) -> Bools:
    """By tags hash; the tags themselves are compared later. Entries that hold something else than a hash are kept."""
    if tags is None or topic == SCHEDULE:
        return np.ones(len(entries), np.bool_)
    codes = entries["tags"].astype(np.int64)
    kept: Bools = np.isin(codes, [tags_code(tag) for tag in tags]) | (codes < _HASHES_MIN)
    return kept


# --- visible records ---

_NO_OFFSET = 2**63 - 1
_COUNTED_MAX = 65536
_QUEUES_CACHED_MAX = 64
"""Up to so many queues are looked up together, with or without rows: once for a read, and not batch by batch."""
_minimum, _maximum = np.minimum.reduce, np.maximum.reduce


class VisibleRecords:
    """Selects the records that a consumer can see: those at or after the first record of their queue.

    A topic that is deleted, or deleted and created again, leaves its old records in the log. They are not in its queue,
    no consumer receives them, and a reader of the log should not return them either. Each queue is looked up once.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._topics = frozenset(topic.encode() for topic in topics_with_queues(layout))
        self._first = lru_cache(maxsize=None)(self._look_up)
        self._last_first = lru_cache(maxsize=256)(self._look_up_last)

    def _look_up(self, topic: bytes, queue_id: int) -> int:
        """Physical offset of the first record of a queue."""
        if topic not in self._topics:
            return _NO_OFFSET
        queue = next(open_queues(self._layout, [topic.decode()], frozenset({queue_id})), None)
        first = None if queue is None else queue.first_physical()
        return _NO_OFFSET if first is None else first

    def _all_began(self, rows: Rows, low: int, high: int) -> bool:
        """Whether these queues began before the rows: nearly always true, and then no row has to be checked."""
        topic = rows.one_topic
        if topic is None or high - low >= _QUEUES_CACHED_MAX:
            return False
        return self._last_first(topic, low, high) <= rows.first_physical

    def _look_up_last(self, topic: bytes, low: int, high: int) -> int:
        """Physical offset at which the last of these queues begins."""
        return max(self._first(topic, queue_id) for queue_id in range(low, high + 1))

    def only(self, rows: Rows) -> Rows:
        """The visible rows."""
        if not len(rows):
            return rows
        queue_ids = rows.field("queueId", np.int64)
        low, high = int(_minimum(queue_ids)), int(_maximum(queue_ids))
        if self._all_began(rows, low, high):
            return rows
        topics, codes = _topics(rows)
        wide = high - low + 1
        queues, of_row = _distinct(codes * wide + (queue_ids - low), len(topics) * wide)
        firsts = [self._first(topics[queue // wide], queue % wide + low) for queue in queues.tolist()]
        if max(firsts) <= rows.first_physical:  # rows ascend, and most queues began long ago
            return rows
        is_seen = rows.physical >= np.array(firsts, np.int64)[of_row]
        return rows if all_true(is_seen) else rows.take(is_seen)


def _topics(rows: Rows) -> tuple[list[bytes], Int64s | int]:
    """The distinct topics, and the index of each row's topic."""
    if rows.one_topic is not None:
        return [rows.one_topic], 0
    coded = rows.topics.dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)


def _distinct(values: Int64s, end: int) -> tuple[Int64s, Int64s]:
    """The distinct values from 0 to `end`, and the index of each value in them. Counting few is faster than sorting."""
    if end > _COUNTED_MAX:
        return np.unique(values, return_inverse=True)
    distinct = np.flatnonzero(np.bincount(values, minlength=end))
    indexes = np.zeros(end, np.int64)
    indexes[distinct] = np.arange(len(distinct))
    return distinct, indexes[values]


# --- reading ---

BATCH_BYTES = 8 * 1024 * 1024
"""Size of the records of one batch. The fixed cost of a batch is that of some hundred rows of 1 KiB; a Spark worker and
its JVM each hold one or two batches."""
_BAD_KEPT = 10_000


@dataclass
class ReadReport:
    """Counters of reading splits. Every bad record is counted; only the first ones are kept."""

    rows: int = 0
    records: int = 0
    """Read, selected or not."""
    bytes: int = 0
    bad_count: int = 0
    bad: list[BadRecord] = field(default_factory=list)

    def add_bad(self, more: list[BadRecord]) -> None:
        self.bad_count += len(more)
        self.bad += more[: max(0, _BAD_KEPT - len(self.bad))]


def read_split(
    split: LogSplit,
    columns: Sequence[str] | None = None,
    *,
    include_properties: bool = False,
    broker_name: str | None = None,
    decompress: bool = True,
    check_crc: bool = False,
    batch_bytes: int = BATCH_BYTES,
    report: ReadReport | None = None,
) -> Iterator[pa.RecordBatch]:
    """The selected rows, in the order of the log; no batch is empty. Bad records are in `report`.

    StoreMismatch when a file has been removed since the split was made.
    """
    decoder = Decoder(
        schema=message_schema(columns, include_properties=include_properties),
        selection=split.selection,
        broker_name=broker_name,
        decompress=decompress,
        check_crc=check_crc,
    )
    return _SplitReader(split, decoder, batch_bytes, report if report is not None else ReadReport()).batches()


class _SplitReader:
    def __init__(self, split: LogSplit, decoder: Decoder, batch_bytes: int, report: ReadReport) -> None:
        self._split = split
        self._decoder = decoder
        self._batch_bytes = batch_bytes
        self._report = report
        self._layout = Layout.under(Path(split.store_root), Path(split.commit_log))
        self._files = LogFiles(self._layout.commit_log)
        self._visible = VisibleRecords(self._layout) if split.by_queues else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        match self._split.strategy:
            case ScanStrategy.SCAN:
                return self._scan()
            case ScanStrategy.QUEUES:
                return self._read_at(queued_records(self._layout, self._split))
            case ScanStrategy.OFFSETS:
                return self._read_at(QueuedRecords(np.array(self._split.offsets, np.int64)))

    # --- scan -------------------------------------------------------------------------------------------------------

    def _scan(self) -> Iterator[pa.RecordBatch]:
        split = self._split
        self._check_begin(split.begin)
        for file in self._files.overlapping(split.begin, split.end):
            walk = self._files.walk(file, split.limit)
            start, end = max(split.begin - file.base, 0), min(split.end - file.base, walk.limit)
            if start and not split.is_aligned:
                start = next_record(walk.source, start, walk.limit, file.base)
            for span in walk.spans(start, end, piece_bytes=self._batch_bytes):
                self._report.add_bad(span.bad)
                self._report.bytes += span.end - start
                start = span.end
                yield from self._decoded(walk, span.rows)

    def _check_begin(self, begin: int) -> None:
        """Everything that existed when the split was made must still exist: a partial result would be wrong."""
        if self._files.begin > begin:
            raise StoreMismatch(
                f"the commit log now begins at {self._files.begin}, but the split at {begin}: retention has removed "
                "records that it should read"
            )

    # --- at known offsets -------------------------------------------------------------------------------------------

    def _read_at(self, records: QueuedRecords) -> Iterator[pa.RecordBatch]:
        bytes_to = None if records.sizes is None else np.cumsum(records.sizes, dtype=np.int64)
        begin = 0
        while begin < len(records):
            first = int(records.offsets[begin])
            file = self._files.find(first)
            if file is None:
                raise StoreMismatch(f"no file of the commit log contains offset {first} any more: read again")
            end = int(np.searchsorted(records.offsets, file.end))
            if bytes_to is not None:
                end = min(end, self._batch_end(bytes_to, begin))
            yield from self._read_batch(self._files.walk(file, self._split.limit), records.part(begin, end), file)
            begin = end

    def _batch_end(self, bytes_to: Int64s, begin: int) -> int:
        """The end of the batch that begins with this record; `bytes_to` are the cumulated sizes of all records."""
        before = int(bytes_to[begin - 1]) if begin else 0
        return max(begin + 1, int(np.searchsorted(bytes_to, before + self._batch_bytes)))

    def _read_batch(self, walk: Walk, records: QueuedRecords, file: DataFile) -> Iterator[pa.RecordBatch]:
        checked = walk.check_at(records.offsets - file.base)
        rows, bad = records.matching(walk, checked)
        self._report.add_bad(bad)
        self._report.bytes += int(rows.field("size", np.int64).sum())
        yield from self._decoded(walk, rows)

    def _decoded(self, walk: Walk, rows: Rows) -> Iterator[pa.RecordBatch]:
        self._report.records += len(rows)
        seen = rows if self._visible is None else self._visible.only(rows)
        for part in self._decoder.parts(walk, seen):
            self._report.add_bad(part.bad)
            self._report.rows += part.batch.num_rows
            if part.batch.num_rows:
                yield part.batch
