"""The batches of one split of a log. Runs where the split is sent to, and asks nobody but the files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from ariane.arrow.decode import Decoder
from ariane.arrow.gather import Bools, Int64s, is_all
from ariane.arrow.log.files import LogFiles, QueueEntries, open_queues, topics_with_queues
from ariane.arrow.log.split import LogSplit, ScanStrategy
from ariane.arrow.rows import Rows
from ariane.arrow.schema import message_schema
from ariane.arrow.validate import Checked
from ariane.arrow.walk import BadRecord, Walk, next_record, reason_at
from ariane.errors import StoreMismatch
from ariane.model.system_topics import SCHEDULE
from ariane.store.commit_log.scan import DataFile
from ariane.store.consume_queue.scan import Entries
from ariane.store.layout import Layout
from ariane.wire.hashes import tags_code

# --- log_entries ---
#
# The records that the wanted queues name within a split, in the order of the log.
#
# A task that went from queue to queue would touch every page of the log once for each of them; merged, once.

_HASHES_MIN = -(2**31)


@dataclass(frozen=True, eq=False)
class QueuedRecords:
    """Places in the log; and, where a queue names them, what the records there must be."""

    offsets: Int64s
    sizes: Int64s | None = None
    queue_ids: Int64s | None = None
    numbers: Int64s | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, begin: int, end: int) -> "QueuedRecords":
        parts = (self.sizes, self.queue_ids, self.numbers)
        return QueuedRecords(self.offsets[begin:end], *(None if part is None else part[begin:end] for part in parts))

    def fitting(self, walk: Walk, checked: Checked) -> tuple[Rows, list[BadRecord]]:
        """The records that are what their entries say, and the others."""
        rows = checked.rows
        bad = [self._bad(walk, number) for number in self._not_in(checked.numbers)]
        is_wrong = self._mismatches(checked)
        is_wrong[rows.odd_topics()] = True
        for number in np.flatnonzero(is_wrong).tolist():
            reason = "a record that is not the one that the queue's entry names"
            bad.append(walk.bad(int(rows.position[number]), rows.size(number), reason))
        return rows if not bad else rows.take(~is_wrong), bad

    def _not_in(self, numbers: Int64s) -> list[int]:
        """The other places. Nearly always there are none, and to look for them costs more than to read a record."""
        if len(numbers) == len(self):
            return []
        others: list[int] = np.setdiff1d(np.arange(len(self)), numbers).tolist()
        return others

    def _bad(self, walk: Walk, number: int) -> BadRecord:
        at = int(self.offsets[number]) - (walk.base or 0)
        size = 0 if self.sizes is None else int(self.sizes[number])
        return walk.bad(at, size, reason_at(walk.source, at, walk.limit, walk.base))

    def _mismatches(self, checked: Checked) -> Bools:
        rows, which = checked.rows, checked.numbers
        is_wrong = np.zeros(len(rows), np.bool_)
        if self.sizes is None or self.queue_ids is None or self.numbers is None:
            return is_wrong
        is_wrong |= rows.field("size", np.int64) != self.sizes[which]
        is_wrong |= rows.field("queueId", np.int64) != self.queue_ids[which]
        is_wrong |= rows.field("queueOffset", np.int64) != self.numbers[which]
        return is_wrong


def queued_records(layout: Layout, split: LogSplit) -> QueuedRecords:
    wanted = split.selection
    topics = [topic for topic in topics_with_queues(layout) if wanted.topics is None or topic in wanted.topics]
    parts = [_in_split(queue, split) for queue in open_queues(layout, topics, wanted.queue_ids)]
    if not parts:
        return QueuedRecords(np.empty(0, np.int64))
    offsets, sizes, queue_ids, numbers = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(offsets, kind="stable")
    return QueuedRecords(offsets[order], sizes[order], queue_ids[order], numbers[order])


def _in_split(queue: QueueEntries, split: LogSplit) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Offsets, sizes, queue ids and numbers of the wanted entries."""
    first, end = queue.number_at(split.begin), queue.number_at(split.end)
    ranges = split.selection.ranges
    if ranges is not None:
        mine = [one for one in ranges if (one.topic, one.queue_id) == (queue.topic, queue.queue_id)]
        first = max(first, min((one.first for one in mine), default=end))
        end = min(end, max((one.end for one in mine), default=first))
    entries = queue.read(first, max(first, end))
    numbers = np.arange(first, first + len(entries))
    keep = _by_tags(queue.topic, entries, split.selection.tags)
    if not is_all(keep):
        entries, numbers = entries[keep], numbers[keep]
    offsets, sizes = entries["offset"].astype(np.int64), entries["size"].astype(np.int64)
    return offsets, sizes, np.full(len(entries), queue.queue_id, np.int64), numbers


def _by_tags(topic: str, entries: Entries, tags: frozenset[str] | None) -> Bools:
    """By hash; the record itself is compared later. Entries that hold something else than a hash are kept."""
    if tags is None or topic == SCHEDULE:
        return np.ones(len(entries), np.bool_)
    codes = entries["tags"].astype(np.int64)
    kept: Bools = np.isin(codes, [tags_code(tag) for tag in tags]) | (codes < _HASHES_MIN)
    return kept


# --- log_visible ---
#
# Which records of the log a consumer can see: those that their queue still begins before.
#
# A topic that is deleted, or deleted and made anew, leaves its old records in the log. Its queue does not know them, no
# consumer gets them, and a reader of the log should not show them either.

_NOWHERE = 2**63 - 1
_COUNTED_MAX = 65536
_QUEUES_USUAL = 64
"""So many are looked up, also those of which there is no row: once for a read, and not batch by batch."""
_least, _most = np.minimum.reduce, np.maximum.reduce


class Visible:
    """One store's queues, each looked up once."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._topics = frozenset(topic.encode() for topic in topics_with_queues(layout))
        self._first = lru_cache(maxsize=None)(self._look_up)
        self._last_first = lru_cache(maxsize=256)(self._look_up_last)

    def _look_up(self, topic: bytes, queue_id: int) -> int:
        """Where the first record of a queue is in the log."""
        if topic not in self._topics:
            return _NOWHERE
        queue = next(open_queues(self._layout, [topic.decode()], frozenset({queue_id})), None)
        first = None if queue is None else queue.first_physical()
        return _NOWHERE if first is None else first

    def _all_began(self, rows: Rows, low: int, high: int) -> bool:
        """Whether these queues began before the rows: so it is nearly always, and no row has to be looked at."""
        topic = rows.one_topic
        if topic is None or high - low >= _QUEUES_USUAL:
            return False
        return self._last_first(topic, low, high) <= rows.first_physical

    def _look_up_last(self, topic: bytes, low: int, high: int) -> int:
        """Where the last of these queues begins."""
        return max(self._first(topic, queue_id) for queue_id in range(low, high + 1))

    def only(self, rows: Rows) -> Rows:
        """The rows that are seen."""
        if not len(rows):
            return rows
        queue_ids = rows.field("queueId", np.int64)
        low, high = int(_least(queue_ids)), int(_most(queue_ids))
        if self._all_began(rows, low, high):
            return rows
        topics, codes = _topics(rows)
        wide = high - low + 1
        queues, of_row = _distinct(codes * wide + (queue_ids - low), len(topics) * wide)
        firsts = [self._first(topics[queue // wide], queue % wide + low) for queue in queues.tolist()]
        if max(firsts) <= rows.first_physical:  # rows ascend, and most queues began long ago
            return rows
        is_seen = rows.physical >= np.array(firsts, np.int64)[of_row]
        return rows if is_all(is_seen) else rows.take(is_seen)


def _topics(rows: Rows) -> tuple[list[bytes], Int64s | int]:
    """The distinct topics, and the number of each row's."""
    if rows.one_topic is not None:
        return [rows.one_topic], 0
    coded = rows.topics.dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)


def _distinct(values: Int64s, end: int) -> tuple[Int64s, Int64s]:
    """The distinct values from 0 to `end`, and which of them each one is. Few are counted faster than sorted."""
    if end > _COUNTED_MAX:
        return np.unique(values, return_inverse=True)
    found = np.flatnonzero(np.bincount(values, minlength=end))
    places = np.zeros(end, np.int64)
    places[found] = np.arange(len(found))
    return found, places[values]


# ---

BATCH_BYTES = 8 * 1024 * 1024
"""Of records for each batch. The calls for one cost as much as some hundred rows of 1 KiB, whatever its size; and a
worker of Spark and its JVM each hold one or two of them."""
_BAD_KEPT = 10_000


@dataclass
class ReadReport:
    """What happened while splits were read. Every bad record counts; the first ones are kept."""

    rows: int = 0
    records: int = 0
    """Looked at, wanted or not."""
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
    """The wanted rows, in the order of the log; no batch is empty. Bad records are in `report`.

    StoreMismatch when a file is gone that was there when the split was made.
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
        self._visible = Visible(self._layout) if split.by_queues else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        match self._split.way:
            case ScanStrategy.SCAN:
                return self._scan()
            case ScanStrategy.QUEUES:
                return self._at(queued_records(self._layout, self._split))
            case ScanStrategy.OFFSETS:
                return self._at(QueuedRecords(np.array(self._split.offsets, np.int64)))

    # --- one record after the other ---------------------------------------------------------------------------------

    def _scan(self) -> Iterator[pa.RecordBatch]:
        split = self._split
        self._check_begin(split.begin)
        for file in self._files.overlapping(split.begin, split.end):
            walk = self._files.walk(file, split.limit)
            start, end = max(split.begin - file.base, 0), min(split.end - file.base, walk.limit)
            if start and not split.is_aligned:
                start = next_record(walk.source, start, walk.limit, file.base)
            for stretch in walk.stretches(start, end, piece_bytes=self._batch_bytes):
                self._report.add_bad(stretch.bad)
                self._report.bytes += stretch.end - start
                start = stretch.end
                yield from self._decoded(walk, stretch.rows)

    def _check_begin(self, begin: int) -> None:
        """What was there when the split was made has to be there still: less is not an answer."""
        if self._files.begin > begin:
            raise StoreMismatch(
                f"the commit log begins at {self._files.begin} now, but the split at {begin}: retention has removed "
                "what it should read"
            )

    # --- at known places --------------------------------------------------------------------------------------------

    def _at(self, wanted: QueuedRecords) -> Iterator[pa.RecordBatch]:
        bytes_to = None if wanted.sizes is None else np.cumsum(wanted.sizes, dtype=np.int64)
        begin = 0
        while begin < len(wanted):
            first = int(wanted.offsets[begin])
            file = self._files.find(first)
            if file is None:
                raise StoreMismatch(f"no file of the commit log holds offset {first} any more: read again")
            end = int(np.searchsorted(wanted.offsets, file.end))
            if bytes_to is not None:
                end = min(end, self._batch_end(bytes_to, begin))
            yield from self._known(self._files.walk(file, self._split.limit), wanted.part(begin, end), file)
            begin = end

    def _batch_end(self, bytes_to: Int64s, begin: int) -> int:
        """Before which record a batch ends that begins with this one: `bytes_to` counts from the first of all."""
        before = int(bytes_to[begin - 1]) if begin else 0
        return max(begin + 1, int(np.searchsorted(bytes_to, before + self._batch_bytes)))

    def _known(self, walk: Walk, wanted: QueuedRecords, file: DataFile) -> Iterator[pa.RecordBatch]:
        checked = walk.check(wanted.offsets - file.base)
        rows, bad = wanted.fitting(walk, checked)
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
