"""The tasks of the Spark job `rebuild`: a log span to queue entries and index rows, and these to files of the store.

A scan task reads one span of the log and writes scratch files. A span may begin anywhere. The task reports where its
first record began and where its last one ended, and the driver accepts the result only if the span before ended exactly
there. So a body that looks like records cannot mislead it.

    NUMBER.queues    entries as they will stand in the queues, those of one queue together
    NUMBER.numbers   their queue offsets, 8 bytes each: only needed for queues that are not in order
    NUMBER.index     rows of ROW_TYPE, in the order of the log

A write task makes some queues, or one index file, of the scratch files, and syncs them.

Records are decoded column by column with Arrow, which takes a third of the time of `scan_simple_records`
(store/commit_log/recovery.py). What an entry or an index row holds is decided by the functions of the store: key hashes
in store/index/entries.py, tag hashes in wire/hashes.py, delivery times in store/dispatch.py.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ariane.arrow.gather import ByteGatherer, Int64s, data_of, offsets_of
from ariane.arrow.log.files import map_file
from ariane.arrow.property_columns import PropertyColumns, PropertyLookup, property_texts
from ariane.arrow.rows import Rows, checksum_errors, not_utf8
from ariane.arrow.walk import Walk, next_record
from ariane.errors import StoreFull
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE
from ariane.store.consume_queue.entry import ENTRY_BYTES, FILLER
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.consume_queue.scan import ENTRY_TYPE, Entries
from ariane.store.disk import RealDisk
from ariane.store.dispatch import delivery_ms
from ariane.store.index.entries import Header, Int32s, KeyRows, Uint32s, buffer_key_hashes, key_hashes, topic_hash
from ariane.store.index.file import IndexCapacity, IndexFile
from ariane.store.layout import offset_name
from ariane.store.offline.rebuild import RebuildLayout
from ariane.store.settings import StoreSettings
from ariane.wire.hashes import tags_code
from ariane.wire.sys_flag import SysFlag

log = logging.getLogger(__name__)

ROW_TYPE = np.dtype([("hash", np.int32), ("physical", np.int64), ("stored_ms", np.int64)])
"""In the byte order of the machine: scratch files are only read by tasks of the same job."""
IndexRows = npt.NDArray[np.void]

_PREPARED = int(SysFlag.TRANSACTION_PREPARED)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Part of one file of the log, from `begin` to before `end`; both are positions in the file."""

    number: int
    path: str
    base: int
    begin: int
    end: int
    is_aligned: bool
    """Whether a record is known to begin at `begin`."""


@dataclass(frozen=True, slots=True)
class ScanSettings:
    scratch: str
    with_index: bool
    delay_levels_ms: tuple[int, ...]
    deleted: dict[str, int] = field(default_factory=dict)
    """By topic: its records below this physical offset are deleted, and in no queue."""


# --- scan: records to entries and index rows --------------------------------------------------------------------------


class DerivedRows(NamedTuple):
    """Queue entries and index rows of some records of a span."""

    topics: list[str]
    topic_numbers: Int64s
    queue_ids: Int64s
    queue_offsets: Int64s
    entries: Entries
    index_rows: IndexRows


def scan_span(settings: ScanSettings, span: LogSpan) -> dict[str, object]:
    source = ByteGatherer(map_file(RealDisk(), Path(span.path)))
    walk = Walk(source, len(source), span.base)
    first = span.begin if span.is_aligned else next_record(source, span.begin, walk.limit, walk.base)
    stop, records, bad_bytes, derived = first, 0, 0, list[DerivedRows]()
    for chunk in walk.spans(first, span.end):
        stop = chunk.end
        bad_bytes += sum(bad.size for bad in chunk.bad)
        rows = _with_valid_checksums(chunk.rows)
        records += len(rows)
        if len(rows):
            derived.append(_derive(rows, settings))
    table = _save(settings, span.number, derived)
    return {"first": first, "stop": stop, "records": records, "bad_bytes": bad_bytes, **table}


def _with_valid_checksums(rows: Rows) -> Rows:
    """Recovery skips records with a wrong checksum, too."""
    invalid = [number for number, _ in checksum_errors(rows)] if len(rows) else []
    return rows.take(np.setdiff1d(np.arange(len(rows)), invalid)) if invalid else rows


def _derive(rows: Rows, settings: ScanSettings) -> DerivedRows:
    topics, topic_numbers = _topics(rows)
    is_decodable = _decodable(rows)
    decodable = _DecodableRows.of(rows, PropertyColumns(rows), topic_numbers, is_decodable)
    tags = np.zeros(len(rows), np.int64)
    tags[is_decodable] = _tags_codes(decodable, topics, settings.delay_levels_ms)
    index_rows = _index_rows(decodable, topics) if settings.with_index else np.empty(0, ROW_TYPE)
    is_queued = rows.sys_flag & _PREPARED == 0  # a rolled back message has that bit, too
    if settings.deleted:
        ends = np.array([settings.deleted.get(topic, 0) for topic in topics], np.int64)
        is_queued &= rows.physical >= ends[topic_numbers]
    queued = np.flatnonzero(is_queued)
    entries = np.empty(len(queued), ENTRY_TYPE)
    entries["offset"] = rows.physical[queued]
    entries["size"] = rows.field("size", np.int32)[queued]
    entries["tags"] = tags[queued]
    queue_ids, queue_offsets = rows.field("queueId", np.int64), rows.field("queueOffset", np.int64)
    return DerivedRows(topics, topic_numbers[queued], queue_ids[queued], queue_offsets[queued], entries, index_rows)


def _topics(rows: Rows) -> tuple[list[str], Int64s]:
    """The distinct topics, and for each row the number of its topic."""
    if rows.one_topic is not None:
        return [rows.one_topic.decode()], np.zeros(len(rows), np.int64)
    coded = rows.topics.dictionary_encode()
    return [topic.decode() for topic in coded.dictionary.to_pylist()], coded.indices.to_numpy().astype(np.int64)


def _decodable(rows: Rows) -> Int64s:
    """Numbers of the rows whose properties are UTF-8. The others get no tags and no keys, as in the broker."""
    invalid = not_utf8(rows.source.gather(rows.properties_position, rows.properties_length, pa.binary()))
    for number in invalid.tolist():
        log.warning("record without tags and keys", extra={"offset": int(rows.physical[number])})
    return np.setdiff1d(np.arange(len(rows)), invalid) if len(invalid) else np.arange(len(rows))


class _DecodableRows(NamedTuple):
    rows: Rows
    properties: PropertyColumns
    topic_numbers: Int64s

    @classmethod
    def of(cls, rows: Rows, properties: PropertyColumns, topic_numbers: Int64s, kept: Int64s) -> "_DecodableRows":
        if len(kept) == len(rows):
            return cls(rows, properties, topic_numbers)
        some = rows.take(kept)
        return cls(some, PropertyColumns(some), topic_numbers[kept])


def _tags_codes(some: _DecodableRows, topics: list[str], levels_ms: tuple[int, ...]) -> Int64s:
    """The third field of the entries: the hash of the tag, or for a delayed message its delivery time.

    Each distinct tag is hashed once.
    """
    coded = some.properties.tags.dictionary_encode()
    hashes = np.array([tags_code(tag) for tag in coded.dictionary.to_pylist()] + [0], np.int64)
    codes: Int64s = hashes[coded.indices.fill_null(len(hashes) - 1).to_numpy()]
    if SCHEDULE in topics:
        delayed = np.flatnonzero(some.topic_numbers == topics.index(SCHEDULE))
        rows = some.rows.take(delayed)
        levels = PropertyLookup(property_texts(rows)).values(Property.DELAY.encode()).to_pylist()
        stored_ms = rows.field("storeTimestamp", np.int64).tolist()
        for number, level, time_ms in zip(delayed.tolist(), levels, stored_ms, strict=True):
            codes[number] = delivery_ms(levels_ms, level or "", time_ms) or codes[number]
    return codes


def _index_rows(some: _DecodableRows, topics: list[str]) -> IndexRows:
    """For each message its unique key, then its other keys. Rolled back messages are not indexed."""
    kept = np.flatnonzero(some.rows.sys_flag & _ROLLBACK != _ROLLBACK)
    if not len(kept):
        return np.empty(0, ROW_TYPE)
    rows, properties, topic_numbers = _DecodableRows.of(*some, kept)
    unique_keys, words = properties.unique_keys, properties.keys
    has_unique = np.asarray(unique_keys.is_valid(), np.int64)
    ends = words.offsets.to_numpy().astype(np.int64)
    counts = has_unique + np.diff(ends)
    starts = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(len(rows)), counts)
    of_topics = np.array([topic_hash(topic) for topic in topics], np.uint32)[topic_numbers]
    packed = np.empty(len(owner), ROW_TYPE)
    with_unique = np.flatnonzero(has_unique)
    packed["hash"][starts[with_unique]] = arrow_key_hashes(of_topics[with_unique], unique_keys.drop_null())
    if ends[-1] > ends[0]:
        used_words = words.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        word_owner = np.repeat(np.arange(len(rows)), np.diff(ends))
        within = np.arange(len(used_words)) - (ends[:-1] - ends[0])[word_owner]
        at = (starts + has_unique)[word_owner] + within
        packed["hash"][at] = arrow_key_hashes(of_topics[word_owner], used_words)
    packed["physical"] = rows.physical[owner]
    packed["stored_ms"] = rows.field("storeTimestamp", np.int64)[owner]
    return packed


def arrow_key_hashes(topics: Uint32s, keys: pa.Array) -> Int32s:
    """The index hash of each key; none is empty or null. `topics` holds the topic_hash that belongs to each."""
    data = data_of(keys)
    if len(data) and data.max() >= 0x80:
        return key_hashes(topics, keys.to_pylist())
    offsets = offsets_of(keys).astype(np.int64)
    return buffer_key_hashes(topics, data, offsets - offsets[0])


# --- scratch files ---------------------------------------------------------------------------------------------------


def _save(settings: ScanSettings, span_number: int, derived: list[DerivedRows]) -> dict[str, object]:
    """Writes the scratch files, the entries of one queue together, and returns the table of its queues: topic, queue
    id, position, count, first queue offset, and whether the offsets are consecutive."""
    if not derived:
        return {"queues": [], "index_rows": 0}
    names = sorted({topic for chunk in derived for topic in chunk.topics})
    number_of = {name: number for number, name in enumerate(names)}
    topic_numbers = np.concatenate(
        [np.array([number_of[topic] for topic in chunk.topics], np.int64)[chunk.topic_numbers] for chunk in derived]
    )
    queue_ids = np.concatenate([chunk.queue_ids for chunk in derived])
    queue_offsets = np.concatenate([chunk.queue_offsets for chunk in derived])
    entries = np.concatenate([chunk.entries for chunk in derived], dtype=ENTRY_TYPE)  # else in native byte order
    index = np.concatenate([chunk.index_rows for chunk in derived])
    queue_keys = topic_numbers << 32 | (queue_ids & 0xFFFFFFFF)
    order = np.argsort(queue_keys, kind="stable")
    queue_keys, queue_offsets, entries = queue_keys[order], queue_offsets[order], entries[order]
    scratch = Path(settings.scratch)
    entries.tofile(scratch / f"{span_number}.queues")
    queue_offsets.tofile(scratch / f"{span_number}.numbers")
    index.tofile(scratch / f"{span_number}.index")
    return {"queues": list(_table(names, queue_keys, queue_offsets)), "index_rows": len(index)}


def _table(names: list[str], keys: Int64s, offsets: Int64s) -> Iterator[tuple[str, int, int, int, int, bool]]:
    if not len(keys):
        return
    starts = np.append(np.flatnonzero(np.append(True, keys[1:] != keys[:-1])), len(keys)).tolist()
    for begin, end in pairwise(starts):
        key, of_queue = int(keys[begin]), offsets[begin:end]
        queue_id = (key & 0xFFFFFFFF) - (1 << 32 if key & 0x80000000 else 0)
        in_order = bool((np.diff(of_queue) == 1).all())
        yield names[key >> 32], queue_id, begin, end - begin, int(of_queue[0]), in_order


# --- write: scratch files to queue files and index files --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScratchRange:
    """Entries of a queue, or rows of the index, in the scratch files of one log span."""

    span: int
    at: int
    count: int


@dataclass(frozen=True, slots=True)
class QueueTask:
    topic: str
    queue_id: int
    first: int
    is_consecutive: bool
    """Whether its queue offsets follow each other without a gap from `first` on, as they nearly always do."""
    ranges: tuple[ScratchRange, ...]

    @property
    def entries(self) -> int:
        return sum(part.count for part in self.ranges)


@dataclass(frozen=True, slots=True)
class IndexFileTask:
    name: str
    slots: int
    entries: int
    before: ScratchRange | None
    """The last row of the previous file: this file counts its seconds from the time of that row."""
    ranges: tuple[ScratchRange, ...]


@dataclass(frozen=True, slots=True)
class Target:
    root: str
    commit_log: str
    scratch: str
    queue_segment_bytes: int

    @property
    def layout(self) -> RebuildLayout:
        return RebuildLayout(Path(self.root), Path(self.commit_log))


def run_write_task(target: Target, task: list[QueueTask] | IndexFileTask) -> int:
    """Returns the number of entries in the queues, or in the index file."""
    try:
        if isinstance(task, IndexFileTask):
            return _write_index(target, task)
        return sum(_write_queue(target, queue) for queue in task)
    except OSError as error:
        raise StoreFull(f"{target.layout.root} cannot be written: {error.strerror}") from error


# --- queues ----------------------------------------------------------------------------------------------------------


def _write_queue(target: Target, task: QueueTask) -> int:
    if not task.is_consecutive:
        return _append_one_by_one(target, task)
    directory = target.layout.queue(task.topic, task.queue_id)
    RealDisk().make_directory(directory, synced=False)
    data = memoryview(b"".join(_entries(target, part).tobytes() for part in task.ranges))
    position = task.first * ENTRY_BYTES
    end = position + len(data)
    segment = target.queue_segment_bytes
    for base in range(position - position % segment, end, segment):
        content = data[max(base - position, 0) : base + segment - position]
        _write_segment(directory / offset_name(base), segment, max(position - base, 0), content)
    RealDisk().sync_directory(directory)
    RealDisk().sync_directory(directory.parent)
    return task.entries


def _write_segment(path: Path, size: int, begin: int, data: memoryview) -> None:
    """A queue that does not begin with a file has fillers before its first entry."""
    file = RealDisk().create(path, size, allocated=0)
    try:
        if begin:
            file.write(FILLER * (begin // ENTRY_BYTES), 0)
        file.write(data, begin)
        file.sync()
    finally:
        file.close()


def _append_one_by_one(target: Target, task: QueueTask) -> int:
    """For a queue with gaps, or whose offsets start again: entry by entry, by the rules of a running broker."""
    settings = StoreSettings(root=target.layout.root, queue_segment_bytes=target.queue_segment_bytes)
    queues = ConsumeQueues(RealDisk(), target.layout, settings.queue_segment_bytes, 8)
    try:
        queue = queues.get_or_create(task.topic, task.queue_id)
        for part in task.ranges:
            offsets = _read(target, part, "numbers", np.dtype(np.int64)).tolist()
            for offset, entry in zip(offsets, _entries(target, part).tolist(), strict=True):
                queue.append_at(offset, *entry)
            queue.write()
        for unsynced in queue.take_unsynced():
            unsynced.sync()
        return queue.max_offset - queue.min_offset
    finally:
        queues.close()


def _entries(target: Target, part: ScratchRange) -> Entries:
    return _read(target, part, "queues", ENTRY_TYPE)


def _read(target: Target, part: ScratchRange, kind: str, dtype: np.dtype[np.generic]) -> npt.NDArray[np.void]:
    path = Path(target.scratch) / f"{part.span}.{kind}"
    with path.open("rb") as file:
        return np.fromfile(file, dtype, part.count, offset=part.at * dtype.itemsize)


# --- the index -------------------------------------------------------------------------------------------------------


def _write_index(target: Target, task: IndexFileTask) -> int:
    rows = np.concatenate([_rows(target, part) for part in task.ranges])
    before = None if task.before is None else _rows(target, task.before)[0]
    header = Header.following(*((0, 0) if before is None else (int(before["stored_ms"]), int(before["physical"]))))
    file = IndexFile.create(
        RealDisk(), target.layout.index / task.name, IndexCapacity(task.slots, task.entries), header
    )
    try:
        file.publish(
            file.write_entries(KeyRows(rows["hash"].copy(), rows["physical"].copy(), rows["stored_ms"].copy()))
        )
        file.sync()
    finally:
        file.close()
    return len(rows)


def _rows(target: Target, part: ScratchRange) -> IndexRows:
    return _read(target, part, "index", ROW_TYPE)


def plan_index_files(counts: list[int], slots: int, entries: int, names: Iterator[str]) -> Iterator[IndexFileTask]:
    """Which rows go into which file. `counts` are the rows of each log span.

    A file holds one entry less than its capacity, because entry 0 is never used.
    """
    capacity = entries - 1
    ranges: list[ScratchRange] = []
    free, before, last = capacity, None, None
    for span, count in enumerate(counts):
        at = 0
        while at < count:
            step = min(free, count - at)
            ranges.append(ScratchRange(span, at, step))
            at, free = at + step, free - step
            last = ScratchRange(span, at - 1, 1)
            if not free:
                yield IndexFileTask(next(names), slots, entries, before, tuple(ranges))
                ranges, free, before = [], capacity, last
    if ranges:
        yield IndexFileTask(next(names), slots, entries, before, tuple(ranges))
