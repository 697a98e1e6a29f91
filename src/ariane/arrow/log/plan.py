"""Which parts of a store directory have to be read, and how: made once, before tasks read the parts.

by key       the index tells where; what it does not cover is scanned
by topic     the queues tell where, if that is less than most of the log
by time      halving finds where a time begins and ends, and the rest is left out
else         the log is scanned, split anywhere
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
from ariane.arrow.rows import checksum_faults
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

# --- log_bounds ---
#
# From where to where a log can be read, and how much of it the queues tell.
#
#     begin                       queued_to                end
#     │ record │ record │ ... │ record │ record │ record │ ... unfinished, or not dispatched yet
#     └── in their queues ─────────────┘
#     └── what may be read ──────────────────────────────┘
#
# While a broker runs, both are the mark that it leaves in the checkpoint every second; Apache leaves none, so there it
# is as far as its queues reach. When none runs, the log ends with the last whole record behind what is known to be
# safe.


@dataclass(frozen=True, slots=True)
class LogBounds:
    begin: int
    end: int
    """Where the next record will begin."""
    queued_to: int
    """Records below this are in their queues, if a queue shows them at all."""
    is_live: bool


def log_bounds(layout: Layout, files: LogFiles, live: bool | None = None, disk: Disk | None = None) -> LogBounds:
    """`live` says whether a broker runs on the store; None: find out by its lock, which is not taken."""
    disk = disk or RealDisk()
    is_live = lock_holder(layout.lock) is not None if live is None else live
    checkpoint = read_checkpoint(disk, layout.checkpoint)
    if is_live:
        end = checkpoint.written_to if _is_current(checkpoint) else _queues_reach(layout, disk)
        end = min(max(end, files.begin), files.end)
        return LogBounds(files.begin, end, end, is_live=True)
    exit_ = last_exit(disk, layout.abort, boot_id())
    safe_to = _safe_to(layout, disk, checkpoint, exit_)
    end = _end_of_records(files, safe_to, check_crc=exit_ is not LastExit.CLEAN)
    queued_to = end if exit_ is LastExit.CLEAN else min(safe_to, end)
    return LogBounds(files.begin, end, max(queued_to, files.begin), is_live=False)


def _is_current(checkpoint: Checkpoint) -> bool:
    """Whether a broker of ours wrote it last: Apache moves its own times on, and leaves our mark as it was."""
    return checkpoint.has_ariane_slot and checkpoint.physic_timestamp_ms == checkpoint.store_timestamp_ms


def _safe_to(layout: Layout, disk: Disk, checkpoint: Checkpoint, exit_: LastExit) -> int:
    """Up to where queues and log are known to be whole: 0 after a crash of Apache's, as its queues may have holes."""
    if checkpoint.has_ariane_slot:
        return checkpoint.dispatched_to if exit_ is LastExit.MACHINE_CRASH else checkpoint.written_to
    return _queues_reach(layout, disk) if exit_ is LastExit.CLEAN else 0


def _queues_reach(layout: Layout, disk: Disk) -> int:
    """The end of the last record that has an entry."""
    queues = (queue for queue in open_queues(layout, topics_with_queues(layout, disk), disk=disk) if len(queue))
    return max((queue.physical(queue.end - 1) + queue.size(queue.end - 1) for queue in queues), default=0)


def _end_of_records(files: LogFiles, safe_to: int, *, check_crc: bool) -> int:
    """Behind the last whole record, at `safe_to` or later; the files behind it hold none."""
    file = files.find(safe_to) if safe_to > files.begin else None
    file, start = (file, safe_to) if file is not None else _last_begun(files)
    end = start
    while file is not None:
        end, is_full = _end_in_file(files, file, end, check_crc)
        file = files.find(file.end) if is_full else None
    return end


def _last_begun(files: LogFiles) -> tuple[DataFile | None, int]:
    """The last file that begins with a record of its own."""
    for file in reversed(files.files):
        walk = files.walk(file, file.end)
        first = verify(walk.source.view, 0, check_body_crc=False)
        if isinstance(first, RecordView) and first.physical_offset == file.base:
            return file, file.base
    return None, files.begin


def _end_in_file(files: LogFiles, file: DataFile, start: int, check_crc: bool) -> tuple[int, bool]:
    """Where the records of a file end, and whether the next file goes on."""
    walk = files.walk(file, file.end)
    end = start
    for stretch in walk.stretches(max(start - file.base, 0), walk.limit):
        faults = checksum_faults(stretch.rows) if check_crc else []
        if faults:
            return file.base + int(stretch.rows.position[faults[0][0]]), False
        if len(stretch.rows):
            end = file.base + int(stretch.rows.position[-1]) + stretch.rows.size(len(stretch.rows) - 1)
        if stretch.bad:
            return min([end, *(bad.position for bad in stretch.bad)]), False
    return end, True


# --- log_probe ---
#
# One true record at or behind any byte of the log: where splits begin, and what time it was there.
#
# A queue's entry names a record start for certain, so the longest queue is asked first. Where it has none near, the
# bytes are searched for a record that stands where it says; only a producer who foresees its message's place in the log
# could put something there that passes for one.

NEAR_BYTES = 64 * 1024 * 1024
_FINE_BYTES = 1024 * 1024

CLOCK_STEP_MS = 60_000
"""How far a broker's clock may have been set back while it wrote; ours never lets store times fall, Apache's may."""


class LocatedRecord(NamedTuple):
    start: int
    stored_ms: int


class LogProbe:
    def __init__(self, files: LogFiles, queues: Sequence[QueueEntries], begin: int, end: int) -> None:
        """For the records from `begin` on and before `end`."""
        self._files = files
        self._queue = max(queues, key=len, default=None)
        self._begin = begin
        self._end = end

    def at_or_after(self, physical: int) -> LocatedRecord | None:
        """A record that begins there or somewhat later, not always the next one."""
        return self.certain(physical) or self._by_search(physical)

    def certain(self, physical: int, near_bytes: int = NEAR_BYTES) -> LocatedRecord | None:
        """A record that a queue names, not too far behind; None when there is none."""
        queue = self._queue
        number = queue.number_at(physical) if queue is not None else 0
        if queue is None or number >= queue.end:
            return None
        start = queue.physical(number)
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
        """The stretch of the log that holds all records of a time, and at its ends some others."""
        begin = self._begin if from_ms is None else self._turn(from_ms - CLOCK_STEP_MS)[0]
        end = self._end if before_ms is None else self._turn(before_ms + CLOCK_STEP_MS)[1]
        return begin, max(begin, end)

    def _turn(self, time_ms: int) -> tuple[int, int]:
        """A record start before which all is older, and a place behind which nothing is."""
        low, high = self._begin, self._end
        while high - low > _FINE_BYTES:
            middle = (low + high) // 2
            found = self.at_or_after(middle)
            if found is not None and found.start < high and found.stored_ms < time_ms:
                low = found.start
            else:
                high = middle
        return low, high


# --- log_cuts ---
#
# Where to cut a stretch of the log, so that parts are about equal and no record is cut.

_SAMPLES_MIN = 256
_SAMPLES_PER_SPLIT = 16


class SplitPoint(NamedTuple):
    begin: int
    end: int
    bytes: int
    """Of the records in it, about."""
    is_aligned: bool = True


def even_cuts(files: LogFiles, probe: LogProbe, begin: int, end: int, bytes_each: int) -> Iterator[SplitPoint]:
    """Parts of equal length. Each begins where a queue says that a record does, or, when none says, anywhere."""
    is_aligned = True
    while begin < end:
        target = begin + bytes_each
        cut, next_aligned = (end, True) if target >= end else _cut(files, probe, target, end, bytes_each // 4)
        yield SplitPoint(begin, cut, cut - begin, is_aligned)
        begin, is_aligned = cut, next_aligned


def _cut(files: LogFiles, probe: LogProbe, target: int, end: int, near_bytes: int) -> tuple[int, bool]:
    """Where to cut near `target`, and whether a record is known to begin there: so does every file with one."""
    base = next((file.base for file in files.overlapping(target, target + near_bytes) if file.base >= target), None)
    if base is not None and base < end:
        return base, True
    found = probe.certain(target, near_bytes)
    return (target, False) if found is None or found.start >= end else (found.start, True)


def queue_cuts(queues: Sequence[QueueEntries], begin: int, end: int, bytes_each: int) -> Iterator[SplitPoint]:
    """Parts that hold equally many bytes of the records in these queues, as far as a sample of the entries tells."""
    places, weights = _samples(queues, begin, end, bytes_each)
    order = np.argsort(places, kind="stable")
    places, so_far = places[order], np.cumsum(weights[order])
    total = float(so_far[-1]) if len(so_far) else 0.0
    if not total:
        return
    parts = max(1, round(total / bytes_each))
    cuts = np.unique(places[np.searchsorted(so_far, total / parts * np.arange(1, parts))]).tolist()
    edges = [begin, *(cut for cut in cuts if begin < cut < end), end]
    for first, last in pairwise(edges):
        yield SplitPoint(first, last, round(total / (len(edges) - 1)))


def _samples(
    queues: Sequence[QueueEntries], begin: int, end: int, bytes_each: int
) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", "np.ndarray[tuple[int], np.dtype[np.float64]]"]:
    count = max(_SAMPLES_MIN, _SAMPLES_PER_SPLIT * (end - begin) // bytes_each)
    places, weights = [], []
    for queue in queues:
        offsets, each = queue.sample(queue.number_at(begin), queue.number_at(end), count)
        places.append(offsets)
        weights.append(np.full(len(offsets), each))
    if not places:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    return np.concatenate(places), np.concatenate(weights)


# --- log_keys ---
#
# The index files asked for keys: where in the log the messages with these keys are, without reading it.

LOOKUPS_MAX = 10_000
"""Topics times keys: beyond, reading the log once is cheaper than asking the index so often."""


class KeyHits(NamedTuple):
    offsets: Int64s
    """Physical offsets of records that may have one of the keys, ascending: the index knows hashes only."""
    begin: int
    end: int
    """The part of the log that the index speaks of: from its first message on, and before its last."""


def find_keys(layout: Layout, topics: Iterable[str], keys: frozenset[str], disk: Disk | None = None) -> KeyHits | None:
    """None when the index cannot answer: there is none, it is damaged, or there are too many questions."""
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
    found = np.unique(np.concatenate(hits))
    return KeyHits(found[(found >= begin) & (found < end)], begin, end)


def _hits(disk: Disk, scan: IndexScan, hashes: set[int]) -> Int64s:
    file = disk.open(scan.path, writable=False)
    try:
        reader = IndexReader(scan.path, file, scan.slots)
        parts = [_chain(reader, scan, wanted) for wanted in hashes]
    finally:
        file.close()
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _chain(reader: IndexReader, scan: IndexScan, wanted: int) -> Int64s:
    slot = wanted % scan.slots
    found = [
        entries["physical"][entries["hash"] == wanted].astype(np.int64)
        for _, entries in reader.chain(slot, reader.head(slot), scan.capacity)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


# ---

BYTES_PER_SPLIT = 128 * 1024 * 1024
_MOST = 0.8
_OFFSETS_PER_SPLIT = 4096
_LIGHT_PREFIX = "%LMQ%"


@dataclass(frozen=True, slots=True)
class LogPlan:
    splits: list[LogSplit]
    """In the order of the log."""
    begin: int
    end: int
    """The log as it was when the plan was made: no record behind `end` is given."""
    gaps: list[tuple[int, int]]
    """Stretches between them whose files are missing."""
    topics_missing: list[str]
    """Topics that were asked for and have no queue."""
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
    """Times are store times, the first included, the last not. `live`: whether a broker runs there; None: find out.

    `raw`: every record of the log, also those that no consumer can see: of deleted topics, prepared, rolled back.
    """
    layout = Layout.under(store_root, commit_log)
    files = LogFiles(layout.commit_log)
    if not files.files and not layout.commit_log.is_dir():
        raise StoreMismatch(f"{layout.commit_log} is no directory: name the store's root, which holds `commitlog`")
    bounds = log_bounds(layout, files, live)
    wanted = Selection(
        topics=_topics(topics, queues),
        ranges=None if queues is None else tuple(queues),
        stored_from_ms=starting_timestamp_ms,
        stored_before_ms=ending_timestamp_ms,
        tags=None if tags is None else frozenset(tags),
        keys=None if keys is None else frozenset(keys),
        queued_only=not raw,
    )
    planner = _Planner(layout, files, bounds, wanted, bytes_per_split, raw)
    splits = planner.splits()
    gaps = files.gaps(bounds.begin, bounds.end)
    return LogPlan(splits, bounds.begin, bounds.end, gaps, planner.topics_missing, bounds.is_live)


def _topics(topics: Collection[str] | None, queues: Collection[OffsetRange] | None) -> frozenset[str] | None:
    named = None if topics is None else frozenset(topics)
    if queues is not None:
        of_queues = frozenset(one.topic for one in queues)
        named = of_queues if named is None else named & of_queues
    light = sorted(topic for topic in named or () if topic.startswith(_LIGHT_PREFIX))
    if light:
        raise StoreMismatch(f"{light[0]} is a light queue, whose records are of other topics: read it from the broker")
    return named


class _Planner:
    def __init__(
        self, layout: Layout, files: LogFiles, bounds: LogBounds, wanted: Selection, bytes_per_split: int, raw: bool
    ) -> None:
        self._layout = layout
        self._files = files
        self._bounds = bounds
        self._wanted = wanted
        self._bytes_per_split = max(1, bytes_per_split)
        self._raw = raw
        self._known = topics_with_queues(layout)
        has_queues = bounds.queued_to > bounds.begin and bool(self._known)
        self._queued_to = bounds.queued_to if has_queues else bounds.begin
        self.topics_missing = sorted((wanted.topics or frozenset()).difference(self._known)) if has_queues else []

    def splits(self) -> list[LogSplit]:
        queues = self._queues()
        probe = LogProbe(self._files, queues, self._bounds.begin, self._bounds.end)
        begin, end = probe.between(self._wanted.stored_from_ms, self._wanted.stored_before_ms)
        if begin >= end:
            return []
        if self._wanted.keys is not None:
            return self._by_keys(probe, self._wanted.keys, begin, end)
        queued_end = min(end, self._queued_to)
        if begin < queued_end and not self._raw and self._is_less(queues, begin, queued_end):
            return [*self._by_queues(queues, begin, queued_end), *self._scan(probe, max(begin, queued_end), end)]
        return self._scan(probe, begin, end)

    def _queues(self) -> list[QueueEntries]:
        """The queues that are wanted; a topic's name is a directory's, and only one that is there is opened."""
        if self._queued_to <= self._bounds.begin:
            return []
        wanted = self._wanted
        topics = self._known if wanted.topics is None else [topic for topic in self._known if topic in wanted.topics]
        ranges = None if wanted.ranges is None else {(one.topic, one.queue_id) for one in wanted.ranges}
        found = open_queues(self._layout, topics)
        queues = [queue for queue in found if ranges is None or (queue.topic, queue.queue_id) in ranges]
        if wanted.topics is not None and not all(map(self._is_plain, queues)):
            self._queued_to = self._bounds.begin
            return []
        return queues

    def _is_plain(self, queue: QueueEntries) -> bool:
        """Whether the first entry leads to a record of the queue. 5.x has other kinds of queues, which are not read."""
        number = queue.number_at(self._bounds.begin)
        if number >= queue.end or self._queued_to <= queue.physical(number) < self._files.end:
            return True  # nothing of it can be read yet
        view = self._files.record_at(queue.physical(number), self._bounds.end)
        return view is not None and (view.topic, view.queue_id, view.queue_offset) == (
            queue.topic,
            queue.queue_id,
            number,
        )

    def _is_less(self, queues: Sequence[QueueEntries], begin: int, end: int) -> bool:
        """Whether the wanted queues lead to clearly less than all of the log."""
        if self._wanted.topics is None:
            return False
        if self._wanted.tags is not None:
            return True
        return sum(_bytes(queue, begin, end) for queue in queues) < _MOST * (end - begin)

    def _by_queues(self, queues: Sequence[QueueEntries], begin: int, end: int) -> list[LogSplit]:
        cuts = queue_cuts(queues, begin, end, self._bytes_per_split)
        return [self._split(cut.begin, cut.end, ScanStrategy.QUEUES, bytes_estimate=cut.bytes) for cut in cuts]

    def _scan(self, probe: LogProbe, begin: int, end: int) -> list[LogSplit]:
        """What queues tell is split from what they do not, because only there they say what is visible."""
        ranges = [(begin, min(end, self._queued_to), not self._raw), (max(begin, self._queued_to), end, False)]
        return [
            self._split(cut.begin, cut.end, ScanStrategy.SCAN, is_aligned=cut.is_aligned, by_queues=by_queues)
            for first, last, by_queues in ranges
            if first < last
            for cut in even_cuts(self._files, probe, first, last, self._bytes_per_split)
        ]

    def _by_keys(self, probe: LogProbe, keys: frozenset[str], begin: int, end: int) -> list[LogSplit]:
        topics = self._known if self._wanted.topics is None else sorted(self._wanted.topics)
        hits = find_keys(self._layout, topics, keys) if self._queued_to > self._bounds.begin else None
        if hits is None:
            return self._scan(probe, begin, end)
        first, last = max(begin, hits.begin), min(end, hits.end, self._queued_to)
        if first >= last:
            return self._scan(probe, begin, end)
        inside = [int(offset) for offset in hits.offsets if first <= offset < last]
        found = [
            self._split(
                first,
                last,
                ScanStrategy.OFFSETS,
                by_queues=not self._raw,
                offsets=tuple(inside[at : at + _OFFSETS_PER_SPLIT]),
            )
            for at in range(0, len(inside), _OFFSETS_PER_SPLIT)
        ]
        return [*self._scan(probe, begin, first), *found, *self._scan(probe, last, end)]

    def _split(self, begin: int, end: int, way: ScanStrategy, **more: object) -> LogSplit:
        split = LogSplit(
            store_root=str(self._layout.root),
            commit_log=str(self._layout.commit_log),
            begin=begin,
            end=end,
            limit=self._bounds.end,
            way=way,
            selection=self._wanted,
            bytes_estimate=end - begin,
        )
        return replace(split, **more)  # type: ignore[arg-type]


def _bytes(queue: QueueEntries, begin: int, end: int) -> float:
    first, last = queue.number_at(begin), queue.number_at(end)
    offsets, each = queue.sample(first, last, 16)
    return len(offsets) * each
