"""Planner for reading a store directory: which parts of the log to read, and by which strategy.

A plan is made once, before tasks read the splits.

by key       the index has the offsets; parts of the log that it does not cover are scanned
by topic     the consume queues have the offsets, if that is clearly less than the whole log
by time      a binary search finds where a time range begins and ends, and the rest is left out
otherwise    the log is scanned, split anywhere

Bounds of the log:

    begin                       queued_to                end
    │ record │ record │ ... │ record │ record │ record │ ... unfinished, or not dispatched yet
    └── in their queues ─────────────┘
    └── readable ──────────────────────────────────────┘

While an Ariane broker runs, `queued_to` and `end` are the position that it writes to the checkpoint every second. An
Apache broker writes none, so there it is the end of the consume queues. When no broker runs, the log ends with the last
whole record after the part that is known to be complete.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ariane.arrow.filter import OffsetRange, Selection
from ariane.arrow.gather import Int64s
from ariane.arrow.log.files import LogFiles, QueueEntries, open_queues, topics_with_queues
from ariane.arrow.log.split import LogSplit, ScanStrategy
from ariane.arrow.rows import checksum_errors
from ariane.arrow.walk import next_record
from ariane.errors import StoreError, StoreMismatch
from ariane.store.checkpoint import Checkpoint, LastExit, boot_id, last_exit, read_checkpoint
from ariane.store.commit_log.scan import DataFile
from ariane.store.disk import Disk, RealDisk
from ariane.store.index.entries import key_hash
from ariane.store.index.reader import IndexReader
from ariane.store.index.scan import IndexScan, list_index, open_index
from ariane.store.layout import Layout
from ariane.store.lock import lock_holder
from ariane.wire.record.read import RecordView, verify

# --- bounds of the log ---


@dataclass(frozen=True, slots=True)
class LogBounds:
    begin: int
    end: int
    """Where the next record will begin."""
    queued_to: int
    """Records below this are in their consume queues, if a queue shows them at all."""
    is_live: bool


def log_bounds(layout: Layout, files: LogFiles, live: bool | None = None, disk: Disk | None = None) -> LogBounds:
    """`live`: whether a broker runs on the store; None: check its lock file, without taking the lock."""
    disk = disk or RealDisk()
    is_live = lock_holder(layout.lock) is not None if live is None else live
    checkpoint = read_checkpoint(disk, layout.checkpoint)
    if is_live:
        end = checkpoint.written_to if _is_current(checkpoint) else _end_of_queues(layout, disk)
        end = min(max(end, files.begin), files.end)
        return LogBounds(files.begin, end, end, is_live=True)
    exit_ = last_exit(disk, layout.abort, boot_id())
    safe_to = _safe_to(layout, disk, checkpoint, exit_)
    end = _end_of_records(files, safe_to, check_crc=exit_ is not LastExit.CLEAN)
    queued_to = end if exit_ is LastExit.CLEAN else min(safe_to, end)
    return LogBounds(files.begin, end, max(queued_to, files.begin), is_live=False)


def _is_current(checkpoint: Checkpoint) -> bool:
    """Whether an Ariane broker wrote it last: Apache updates its own timestamps, but not Ariane's fields."""
    return checkpoint.has_ariane_slot and checkpoint.physic_timestamp_ms == checkpoint.store_timestamp_ms


def _safe_to(layout: Layout, disk: Disk, checkpoint: Checkpoint, exit_: LastExit) -> int:
    """Up to where queues and log are known to be complete: 0 after a crash of Apache, whose queues may have holes."""
    if checkpoint.has_ariane_slot:
        return checkpoint.dispatched_to if exit_ is LastExit.MACHINE_CRASH else checkpoint.written_to
    return _end_of_queues(layout, disk) if exit_ is LastExit.CLEAN else 0


def _end_of_queues(layout: Layout, disk: Disk) -> int:
    """The end of the last record that has an entry."""
    queues = (queue for queue in open_queues(layout, topics_with_queues(layout, disk), disk=disk) if len(queue))
    return max((queue.physical(queue.end - 1) + queue.size(queue.end - 1) for queue in queues), default=0)


def _end_of_records(files: LogFiles, safe_to: int, *, check_crc: bool) -> int:
    """The end of the last whole record, at `safe_to` or later; the files after it hold none."""
    file = files.find(safe_to) if safe_to > files.begin else None
    file, start = (file, safe_to) if file is not None else _last_file_with_records(files)
    end = start
    while file is not None:
        end, is_full = _end_in_file(files, file, end, check_crc)
        file = files.find(file.end) if is_full else None
    return end


def _last_file_with_records(files: LogFiles) -> tuple[DataFile | None, int]:
    """The last file that begins with a record whose physical offset is the file's."""
    for file in reversed(files.files):
        walk = files.walk(file, file.end)
        first = verify(walk.source.view, 0, check_body_crc=False)
        if isinstance(first, RecordView) and first.physical_offset == file.base:
            return file, file.base
    return None, files.begin


def _end_in_file(files: LogFiles, file: DataFile, start: int, check_crc: bool) -> tuple[int, bool]:
    """Where the records of a file end, and whether they continue in the next file."""
    walk = files.walk(file, file.end)
    end = start
    for span in walk.spans(max(start - file.base, 0), walk.limit):
        problems = checksum_errors(span.rows) if check_crc else []
        if problems:
            return file.base + int(span.rows.position[problems[0][0]]), False
        if len(span.rows):
            end = file.base + int(span.rows.position[-1]) + span.rows.size(len(span.rows) - 1)
        if span.bad:
            return min([end, *(bad.position for bad in span.bad)]), False
    return end, True


# --- probing: one valid record at or after any byte of the log, to place splits and to search by time ---

NEAR_BYTES = 64 * 1024 * 1024
_FINE_BYTES = 1024 * 1024

CLOCK_STEP_MS = 60_000
"""How far a broker's clock may have been set back while it wrote; Ariane's store times never decrease, Apache's may."""


class LocatedRecord(NamedTuple):
    start: int
    stored_ms: int


class LogProbe:
    """Finds a record at or after a physical offset.

    The entry of a consume queue is a certain record start, so the longest queue is used first. If it has no entry near
    by, the bytes are searched for a record whose physical offset is right; only a producer that predicts the offset of
    its message could put bytes into a body that pass for one.
    """

    def __init__(self, files: LogFiles, queues: Sequence[QueueEntries], begin: int, end: int) -> None:
        """For the records in `begin <= offset < end`."""
        self._files = files
        self._queue = max(queues, key=len, default=None)
        self._begin = begin
        self._end = end

    def at_or_after(self, physical: int) -> LocatedRecord | None:
        """A record that begins there or somewhat later, not always the next one."""
        return self.by_queue(physical) or self._by_search(physical)

    def by_queue(self, physical: int, near_bytes: int = NEAR_BYTES) -> LocatedRecord | None:
        """A record that a queue names, at most `near_bytes` later; None when there is none."""
        queue = self._queue
        offset = queue.offset_at(physical) if queue is not None else 0
        if queue is None or offset >= queue.end:
            return None
        start = queue.physical(offset)
        return self._record(start) if start < min(physical + near_bytes, self._end) else None

    def _by_search(self, physical: int) -> LocatedRecord | None:
        for file in self._files.overlapping(physical, self._end):
            walk = self._files.walk(file, self._end)
            at = next_record(walk.source, max(physical - file.base, 0), walk.limit, file.base)
            if at < walk.limit:
                return self._record(file.base + at)
        return None

    def _record(self, start: int) -> LocatedRecord | None:
        view = self._files.record_at(start, self._end)
        return None if view is None else LocatedRecord(start, view.store_timestamp_ms)

    def between(self, from_ms: int | None, before_ms: int | None) -> tuple[int, int]:
        """The part of the log that holds all records of a time range, and some others at its ends."""
        begin = self._begin if from_ms is None else self._time_bounds(from_ms - CLOCK_STEP_MS)[0]
        end = self._end if before_ms is None else self._time_bounds(before_ms + CLOCK_STEP_MS)[1]
        return begin, max(begin, end)

    def _time_bounds(self, time_ms: int) -> tuple[int, int]:
        """A record start before which all records are older, and an offset after which none is."""
        low, high = self._begin, self._end
        while high - low > _FINE_BYTES:
            middle = (low + high) // 2
            record = self.at_or_after(middle)
            if record is not None and record.start < high and record.stored_ms < time_ms:
                low = record.start
            else:
                high = middle
        return low, high


# --- split points: parts of about equal size, without splitting a record ---

_SAMPLES_MIN = 256
_SAMPLES_PER_SPLIT = 16


class SplitRange(NamedTuple):
    begin: int
    end: int
    bytes: int
    """Estimated size of the records in it."""
    is_aligned: bool = True


def equal_splits(files: LogFiles, probe: LogProbe, begin: int, end: int, bytes_each: int) -> Iterator[SplitRange]:
    """Parts of equal length. Each begins at a record start if a queue has one near by, else anywhere."""
    is_aligned = True
    while begin < end:
        target = begin + bytes_each
        point, next_aligned = (end, True) if target >= end else _split_point(files, probe, target, end, bytes_each // 4)
        yield SplitRange(begin, point, point - begin, is_aligned)
        begin, is_aligned = point, next_aligned


def _split_point(files: LogFiles, probe: LogProbe, target: int, end: int, near_bytes: int) -> tuple[int, bool]:
    """A split point near `target`, and whether a record is known to begin there. Every file begins with a record."""
    base = next((file.base for file in files.overlapping(target, target + near_bytes) if file.base >= target), None)
    if base is not None and base < end:
        return base, True
    record = probe.by_queue(target, near_bytes)
    return (target, False) if record is None or record.start >= end else (record.start, True)


def queue_splits(queues: Sequence[QueueEntries], begin: int, end: int, bytes_each: int) -> Iterator[SplitRange]:
    """Parts that hold about equally many bytes of the records in these queues, estimated from a sample of entries."""
    offsets, weights = _sample_entries(queues, begin, end, bytes_each)
    order = np.argsort(offsets, kind="stable")
    offsets, so_far = offsets[order], np.cumsum(weights[order])
    total = float(so_far[-1]) if len(so_far) else 0.0
    if not total:
        return
    parts = max(1, round(total / bytes_each))
    points = np.unique(offsets[np.searchsorted(so_far, total / parts * np.arange(1, parts))]).tolist()
    edges = [begin, *(point for point in points if begin < point < end), end]
    for first, last in pairwise(edges):
        yield SplitRange(first, last, round(total / (len(edges) - 1)))


def _sample_entries(
    queues: Sequence[QueueEntries], begin: int, end: int, bytes_each: int
) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", "np.ndarray[tuple[int], np.dtype[np.float64]]"]:
    count = max(_SAMPLES_MIN, _SAMPLES_PER_SPLIT * (end - begin) // bytes_each)
    samples, weights = [], []
    for queue in queues:
        offsets, each = queue.sample(queue.offset_at(begin), queue.offset_at(end), count)
        samples.append(offsets)
        weights.append(np.full(len(offsets), each))
    if not samples:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    return np.concatenate(samples), np.concatenate(weights)


# --- index lookups by key ---

LOOKUPS_MAX = 10_000
"""Topics times keys: for more, reading the log once is cheaper than that many index lookups."""


class KeyHits(NamedTuple):
    offsets: Int64s
    """Physical offsets of records that may have one of the keys, ascending: the index holds only hashes."""
    begin: int
    end: int
    """The part of the log that the index covers: from its first message on, and before its last."""


def find_keys(layout: Layout, topics: Iterable[str], keys: frozenset[str], disk: Disk | None = None) -> KeyHits | None:
    """None when the index cannot be used: there is none, it is damaged, or there would be too many lookups."""
    disk = disk or RealDisk()
    topics = list(topics)
    if len(topics) * len(keys) > LOOKUPS_MAX:
        return None
    hashes = {key_hash(topic, key) for topic in topics for key in keys}
    try:
        files = [open_index(disk, path) for path in list_index(disk, layout.index)]
        files = [file for file in files if file.header.entry_count > 1]
        if not files:
            return None
        hits = [_hits(disk, file, hashes) for file in files]
    except (StoreError, OSError):
        return None
    begin = min(file.header.begin_physical for file in files)
    end = max(file.header.end_physical for file in files)
    offsets = np.unique(np.concatenate(hits))
    return KeyHits(offsets[(offsets >= begin) & (offsets < end)], begin, end)


def _hits(disk: Disk, scan: IndexScan, hashes: set[int]) -> Int64s:
    file = disk.open(scan.path, writable=False)
    try:
        reader = IndexReader(scan.path, file, scan.slots)
        parts = [_chain(reader, scan, key) for key in hashes]
    finally:
        file.close()
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _chain(reader: IndexReader, scan: IndexScan, key: int) -> Int64s:
    slot = key % scan.slots
    hits = [
        entries["physical"][entries["hash"] == key].astype(np.int64)
        for _, entries in reader.chain(slot, reader.head(slot), scan.capacity)
    ]
    return np.concatenate(hits) if hits else np.empty(0, np.int64)


# --- planning ---

BYTES_PER_SPLIT = 128 * 1024 * 1024
_QUEUES_SHARE_MAX = 0.8
"""Consume queues are used if they lead to less than this share of the log; otherwise a scan is cheaper."""
_OFFSETS_PER_SPLIT = 4096
_LIGHT_PREFIX = "%LMQ%"


@dataclass(frozen=True, slots=True)
class LogPlan:
    splits: list[LogSplit]
    """In the order of the log."""
    begin: int
    end: int
    """The bounds of the log when the plan was made: no record after `end` is read."""
    gaps: list[tuple[int, int]]
    """Parts between them whose files are missing."""
    topics_missing: list[str]
    """Selected topics that have no consume queue."""
    is_live: bool


def plan_log(
    store_root: Path,
    *,
    topics: Collection[str] | None = None,
    queues: Collection[OffsetRange] | None = None,
    starting_timestamp_ms: int | None = None,
    ending_timestamp_ms: int | None = None,
    tags: Collection[str] | None = None,
    keys: Collection[str] | None = None,
    bytes_per_split: int = BYTES_PER_SPLIT,
    live: bool | None = None,
    commit_log: Path | None = None,
    raw: bool = False,
) -> LogPlan:
    """Plans a read. Times are store times, the first inclusive, the last exclusive.

    `live`: whether a broker runs on the store; None: check its lock file. `raw`: every record of the log, also those
    that no consumer can see: records of deleted topics, prepared and rolled-back messages.
    """
    layout = Layout.under(store_root, commit_log)
    files = LogFiles(layout.commit_log)
    if not files.files and not layout.commit_log.is_dir():
        raise StoreMismatch(
            f"{layout.commit_log} is not a directory: give the root directory of the store, which contains `commitlog`"
        )
    bounds = log_bounds(layout, files, live)
    selection = Selection(
        topics=_topics(topics, queues),
        ranges=None if queues is None else tuple(queues),
        stored_from_ms=starting_timestamp_ms,
        stored_before_ms=ending_timestamp_ms,
        tags=None if tags is None else frozenset(tags),
        keys=None if keys is None else frozenset(keys),
        queued_only=not raw,
    )
    planner = _Planner(layout, files, bounds, selection, bytes_per_split, raw)
    splits = planner.splits()
    gaps = files.gaps(bounds.begin, bounds.end)
    return LogPlan(splits, bounds.begin, bounds.end, gaps, planner.topics_missing, bounds.is_live)


def _topics(topics: Collection[str] | None, queues: Collection[OffsetRange] | None) -> frozenset[str] | None:
    named = None if topics is None else frozenset(topics)
    if queues is not None:
        of_queues = frozenset(queue.topic for queue in queues)
        named = of_queues if named is None else named & of_queues
    light = sorted(topic for topic in named or () if topic.startswith(_LIGHT_PREFIX))
    if light:
        raise StoreMismatch(f"{light[0]} is a light queue, whose records belong to other topics: read it from a broker")
    return named


class _Planner:
    def __init__(
        self, layout: Layout, files: LogFiles, bounds: LogBounds, selection: Selection, bytes_per_split: int, raw: bool
    ) -> None:
        self._layout = layout
        self._files = files
        self._bounds = bounds
        self._selection = selection
        self._bytes_per_split = max(1, bytes_per_split)
        self._raw = raw
        self._topic_names = topics_with_queues(layout)
        has_queues = bounds.queued_to > bounds.begin and bool(self._topic_names)
        self._queued_to = bounds.queued_to if has_queues else bounds.begin
        missing = (selection.topics or frozenset()).difference(self._topic_names) if has_queues else frozenset()
        self.topics_missing = sorted(missing)

    def splits(self) -> list[LogSplit]:
        queues = self._queues()
        probe = LogProbe(self._files, queues, self._bounds.begin, self._bounds.end)
        begin, end = probe.between(self._selection.stored_from_ms, self._selection.stored_before_ms)
        if begin >= end:
            return []
        if self._selection.keys is not None:
            return self._by_keys(probe, self._selection.keys, begin, end)
        queued_end = min(end, self._queued_to)
        if begin < queued_end and not self._raw and self._queues_are_cheaper(queues, begin, queued_end):
            return [*self._by_queues(queues, begin, queued_end), *self._scan(probe, max(begin, queued_end), end)]
        return self._scan(probe, begin, end)

    def _queues(self) -> list[QueueEntries]:
        """The selected queues. The name of a topic is that of a directory; only existing ones are opened."""
        if self._queued_to <= self._bounds.begin:
            return []
        selection = self._selection
        topics = (
            self._topic_names
            if selection.topics is None
            else [topic for topic in self._topic_names if topic in selection.topics]
        )
        ranges = None if selection.ranges is None else {(bounds.topic, bounds.queue_id) for bounds in selection.ranges}
        every = open_queues(self._layout, topics)
        queues = [queue for queue in every if ranges is None or (queue.topic, queue.queue_id) in ranges]
        if selection.topics is not None and not all(map(self._is_plain, queues)):
            self._queued_to = self._bounds.begin
            return []
        return queues

    def _is_plain(self, queue: QueueEntries) -> bool:
        """Whether the first entry leads to a record of the queue. 5.x has other kinds of queues, which are not read."""
        offset = queue.offset_at(self._bounds.begin)
        if offset >= queue.end or self._queued_to <= queue.physical(offset) < self._files.end:
            return True  # nothing of it can be read yet
        view = self._files.record_at(queue.physical(offset), self._bounds.end)
        return view is not None and (view.topic, view.queue_id, view.queue_offset) == (
            queue.topic,
            queue.queue_id,
            offset,
        )

    def _queues_are_cheaper(self, queues: Sequence[QueueEntries], begin: int, end: int) -> bool:
        """Whether the selected queues lead to clearly less than the whole log."""
        if self._selection.topics is None:
            return False
        if self._selection.tags is not None:
            return True
        return sum(_bytes(queue, begin, end) for queue in queues) < _QUEUES_SHARE_MAX * (end - begin)

    def _by_queues(self, queues: Sequence[QueueEntries], begin: int, end: int) -> list[LogSplit]:
        parts = queue_splits(queues, begin, end, self._bytes_per_split)
        return [self._split(part.begin, part.end, ScanStrategy.QUEUES, bytes_estimate=part.bytes) for part in parts]

    def _scan(self, probe: LogProbe, begin: int, end: int) -> list[LogSplit]:
        """Splits before and after `queued_to`, because only below it the queues show which records are visible."""
        ranges = [(begin, min(end, self._queued_to), not self._raw), (max(begin, self._queued_to), end, False)]
        return [
            self._split(part.begin, part.end, ScanStrategy.SCAN, is_aligned=part.is_aligned, by_queues=by_queues)
            for first, last, by_queues in ranges
            if first < last
            for part in equal_splits(self._files, probe, first, last, self._bytes_per_split)
        ]

    def _by_keys(self, probe: LogProbe, keys: frozenset[str], begin: int, end: int) -> list[LogSplit]:
        topics = self._topic_names if self._selection.topics is None else sorted(self._selection.topics)
        hits = find_keys(self._layout, topics, keys) if self._queued_to > self._bounds.begin else None
        if hits is None:
            return self._scan(probe, begin, end)
        first, last = max(begin, hits.begin), min(end, hits.end, self._queued_to)
        if first >= last:
            return self._scan(probe, begin, end)
        inside = [int(offset) for offset in hits.offsets if first <= offset < last]
        by_index = [
            self._split(
                first,
                last,
                ScanStrategy.OFFSETS,
                by_queues=not self._raw,
                offsets=tuple(inside[at : at + _OFFSETS_PER_SPLIT]),
            )
            for at in range(0, len(inside), _OFFSETS_PER_SPLIT)
        ]
        return [*self._scan(probe, begin, first), *by_index, *self._scan(probe, last, end)]

    def _split(self, begin: int, end: int, strategy: ScanStrategy, **more: object) -> LogSplit:
        split = LogSplit(
            store_root=str(self._layout.root),
            commit_log=str(self._layout.commit_log),
            begin=begin,
            end=end,
            limit=self._bounds.end,
            strategy=strategy,
            selection=self._selection,
            bytes_estimate=end - begin,
        )
        return replace(split, **more)  # type: ignore[arg-type]


def _bytes(queue: QueueEntries, begin: int, end: int) -> float:
    first, last = queue.offset_at(begin), queue.offset_at(end)
    offsets, each = queue.sample(first, last, 16)
    return len(offsets) * each
