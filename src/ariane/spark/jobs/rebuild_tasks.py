"""The first half of a rebuild: one stretch of the log to queue entries and index rows, in scratch files.

A stretch may begin anywhere. It reports where its first record was and where its last one ended, and the driver
believes it only if the stretch before ended just there: so a body that looks like records misleads nobody.

    NUMBER.queues    entries as they will stand in the queues, those of one queue together
    NUMBER.numbers   their queue offsets, 8 bytes each: only needed for queues that are not in order
    NUMBER.index     rows of ROW_TYPE, in the order of the log
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ariane.arrow.gather import ByteGatherer, Int64s, data_of, offsets_of
from ariane.arrow.log.files import map_file
from ariane.arrow.property_columns import PropertyColumns, PropertyLookup, property_texts
from ariane.arrow.rows import Rows, checksum_errors
from ariane.arrow.walk import Walk, next_record
from ariane.errors import StoreFull
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE, delivery_time_ms
from ariane.store.consume_queue.entry import ENTRY_BYTES, FILLER
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.consume_queue.scan import ENTRY_TYPE, Entries
from ariane.store.disk import RealDisk
from ariane.store.index.entries import Header, KeyRows, topic_hash
from ariane.store.index.file import IndexCapacity, IndexFile
from ariane.store.layout import offset_name
from ariane.store.offline.rebuild import RebuildLayout
from ariane.store.settings import StoreSettings
from ariane.wire.hashes import java_hash, tags_code
from ariane.wire.sys_flag import SysFlag

# --- rebuild_keys ---
#
# The index rows of many records at once: one for each key, hashed as `ariane.store.index.entries` does.
#
#     hash of `topic#key` = hash(topic) * 31^(n + 1) + '#' * 31^n + hash(key)        n = length of the key, modulo 2^32
#
# The hashes of all keys come from one pass over their joined bytes; see `ariane.store.index.entries` for the trick.

Uint32s = npt.NDArray[np.uint32]

ROW_TYPE = np.dtype([("hash", np.int32), ("physical", np.int64), ("stored_ms", np.int64)])
"""On its way from one task to another, on one kind of machine."""
IndexRows = npt.NDArray[np.void]

_MODULUS = 1 << 32
_UNITS_MAX = 1 << 18
_HASH_SIGN = ord("#")


def _powers(base: int) -> Uint32s:
    factors = np.full(_UNITS_MAX + 1, base, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


_POWERS = _powers(31)
_INVERSE_POWERS = _powers(pow(31, -1, _MODULUS))


class Hashed(NamedTuple):
    hashes: Uint32s
    lengths: Int64s
    """In UTF-16 units."""


def java_hashes(texts: pa.Array) -> Hashed:
    """Java's hash of each text; no text may be empty or null."""
    data, offsets = data_of(texts), offsets_of(texts).astype(np.int64)
    if not len(texts):
        return Hashed(np.empty(0, np.uint32), np.empty(0, np.int64))
    if data.max() >= 0x80:
        return _one_by_one(texts.to_pylist())
    offsets -= offsets[0]
    hashes = np.empty(len(texts), np.uint32)
    begin = 0
    while begin < len(texts):
        end = max(begin + 1, int(np.searchsorted(offsets, offsets[begin] + _UNITS_MAX, side="right")) - 1)
        starts, ends = offsets[begin:end] - offsets[begin], offsets[begin + 1 : end + 1] - offsets[begin]
        units = data[offsets[begin] : offsets[end]]
        sums = np.add.reduceat(units * _INVERSE_POWERS[: len(units)], starts, dtype=np.uint32)
        hashes[begin:end] = sums * _POWERS[ends - 1]
        begin = end
    return Hashed(hashes, np.diff(offsets))


def _one_by_one(texts: list[str]) -> Hashed:
    hashes = np.fromiter((java_hash(text) % _MODULUS for text in texts), np.uint32, len(texts))
    lengths = (len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in texts)
    return Hashed(hashes, np.fromiter(lengths, np.int64, len(texts)))


def index_rows(rows: Rows, properties: PropertyColumns, topics: list[str], codes: Int64s) -> IndexRows:
    """For each row its unique key, then its other keys. `codes` says which of `topics` each row has."""
    unique, words = properties.unique_keys, properties.keys
    has_unique = np.asarray(unique.is_valid(), np.int64)
    ends = words.offsets.to_numpy().astype(np.int64)
    counts = has_unique + np.diff(ends)
    starts = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(len(rows)), counts)
    texts = Hashed(np.empty(len(owner), np.uint32), np.empty(len(owner), np.int64))
    of_unique = np.flatnonzero(has_unique)
    _put(texts, starts[of_unique], java_hashes(unique.drop_null()))
    if ends[-1] > ends[0]:
        mine = words.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        word_owner = np.repeat(np.arange(len(rows)), np.diff(ends))
        within = np.arange(len(mine)) - (ends[:-1] - ends[0])[word_owner]
        _put(texts, (starts + has_unique)[word_owner] + within, java_hashes(mine))
    return _packed(rows, owner, texts, np.array([topic_hash(topic) for topic in topics], np.uint32)[codes[owner]])


def _put(texts: Hashed, places: Int64s, some: Hashed) -> None:
    texts.hashes[places] = some.hashes
    texts.lengths[places] = some.lengths


def _packed(rows: Rows, owner: Int64s, keys: Hashed, topic_hashes: Uint32s) -> IndexRows:
    powers = _POWERS[keys.lengths]
    signed = (topic_hashes * (powers * np.uint32(31)) + powers * np.uint32(_HASH_SIGN) + keys.hashes).view(np.int32)
    packed = np.empty(len(owner), ROW_TYPE)
    packed["hash"] = np.maximum(np.abs(signed), 0)  # Math.abs of the smallest number stays negative
    packed["physical"] = rows.physical[owner]
    packed["stored_ms"] = rows.field("storeTimestamp", np.int64)[owner]
    return packed


# --- rebuild_tags ---
#
# The third field of queue entries: hashes of tags, and for delayed messages the time of delivery.


def tags_codes(
    rows: Rows, properties: PropertyColumns, topics: list[str], codes: Int64s, levels_ms: tuple[int, ...]
) -> Int64s:
    """`codes` says which of `topics` each row has. A tag is hashed once for all of the rows that have it."""
    coded = properties.tags.dictionary_encode()
    hashes = np.array([tags_code(tag) for tag in coded.dictionary.to_pylist()] + [0], np.int64)
    result: Int64s = hashes[coded.indices.fill_null(len(hashes) - 1).to_numpy()]
    if SCHEDULE in topics:
        delayed = np.flatnonzero(codes == topics.index(SCHEDULE))
        _put_times(result, rows.take(delayed), delayed, levels_ms)
    return result


def _put_times(result: Int64s, rows: Rows, numbers: Int64s, levels_ms: tuple[int, ...]) -> None:
    levels = PropertyLookup(property_texts(rows)).values(Property.DELAY.encode()).to_pylist()
    stored_ms = rows.field("storeTimestamp", np.int64).tolist()
    for number, level, time_ms in zip(numbers.tolist(), levels, stored_ms, strict=True):
        if level is not None and level.isdigit() and int(level):
            result[number] = delivery_time_ms(levels_ms, min(int(level), len(levels_ms)), time_ms)


# ---

log = logging.getLogger(__name__)

_PREPARED = int(SysFlag.TRANSACTION_PREPARED)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Of one file of the log, from `begin` on and before `end`; both are positions in the file."""

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


class Found(NamedTuple):
    """What one piece of a stretch gave."""

    topics: list[str]
    codes: Int64s
    queue_ids: Int64s
    numbers: Int64s
    entries: Entries
    keyed: IndexRows


def scan_stretch(settings: ScanSettings, stretch: LogSpan) -> dict[str, object]:
    walk = _walk(stretch)
    first = stretch.begin
    if not stretch.is_aligned:
        first = next_record(walk.source, first, walk.limit, walk.base)
    stop, records, bad, found = first, 0, 0, list[Found]()
    for piece in walk.spans(first, stretch.end):
        stop = piece.end
        bad += sum(one.size for one in piece.bad)
        rows = _sound(piece.rows)
        records += len(rows)
        if len(rows):
            found.append(_found(rows, settings))
    table = _save(settings, stretch.number, found)
    return {"first": first, "stop": stop, "records": records, "bad_bytes": bad, **table}


def _walk(stretch: LogSpan) -> Walk:
    source = ByteGatherer(map_file(RealDisk(), Path(stretch.path)))
    return Walk(source, len(source), stretch.base)


def _sound(rows: Rows) -> Rows:
    """Without the records whose checksum is wrong: recovery passes over them, too."""
    faults = [number for number, _ in checksum_errors(rows)] if len(rows) else []
    return rows.take(np.setdiff1d(np.arange(len(rows)), faults)) if faults else rows


def _found(rows: Rows, settings: ScanSettings) -> Found:
    topics, codes = _topics(rows)
    readable = _readable(rows)
    text = _Text.of(rows, PropertyColumns(rows), codes, readable)
    tags = np.zeros(len(rows), np.int64)
    tags[readable] = tags_codes(text.rows, text.properties, topics, text.codes, settings.delay_levels_ms)
    index = _index(text, topics) if settings.with_index else np.empty(0, ROW_TYPE)
    queued = np.flatnonzero(rows.sys_flag & _PREPARED == 0)
    entries = np.empty(len(queued), ENTRY_TYPE)
    entries["offset"] = rows.physical[queued]
    entries["size"] = rows.field("size", np.int32)[queued]
    entries["tags"] = tags[queued]
    queue_ids, numbers = rows.field("queueId", np.int64), rows.field("queueOffset", np.int64)
    return Found(topics, codes[queued], queue_ids[queued], numbers[queued], entries, index)


class _Text(NamedTuple):
    """Rows whose properties can be read, with what was read of them."""

    rows: Rows
    properties: PropertyColumns
    codes: Int64s

    @classmethod
    def of(cls, rows: Rows, properties: PropertyColumns, codes: Int64s, kept: Int64s) -> "_Text":
        if len(kept) == len(rows):
            return cls(rows, properties, codes)
        some = rows.take(kept)
        return cls(some, PropertyColumns(some), codes[kept])


def _index(text: _Text, topics: list[str]) -> IndexRows:
    """Rolled back messages are in no index."""
    kept = np.flatnonzero(text.rows.sys_flag & _ROLLBACK != _ROLLBACK)
    some = _Text.of(*text, kept)
    return index_rows(some.rows, some.properties, topics, some.codes) if len(kept) else np.empty(0, ROW_TYPE)


def _topics(rows: Rows) -> tuple[list[str], Int64s]:
    if rows.one_topic is not None:
        return [rows.one_topic.decode()], np.zeros(len(rows), np.int64)
    coded = rows.topics.dictionary_encode()
    return [topic.decode() for topic in coded.dictionary.to_pylist()], coded.indices.to_numpy().astype(np.int64)


def _readable(rows: Rows) -> Int64s:
    """Numbers of the rows whose properties are text; the others have no tags and no keys, as at the broker."""
    texts = rows.source.gather(rows.properties_position, rows.properties_length, pa.binary())
    data = data_of(texts)
    if not len(data) or data.max() < 0x80:
        return np.arange(len(rows))
    is_text = np.fromiter((_is_utf8(text.as_py()) for text in texts), np.bool_, len(rows))
    for number in np.flatnonzero(~is_text).tolist():
        log.warning("record without tags and keys", extra={"offset": int(rows.physical[number])})
    return np.flatnonzero(is_text)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- scratch files ---------------------------------------------------------------------------------------------------


def _save(settings: ScanSettings, number: int, found: list[Found]) -> dict[str, object]:
    """Entries of one queue brought together. The table says: topic, queue, place, count, first number, in order."""
    names = sorted({topic for piece in found for topic in piece.topics})
    code_of = {name: code for code, name in enumerate(names)}
    if not found:
        return {"queues": [], "index_rows": 0}
    codes = np.concatenate([np.array([code_of[t] for t in one.topics], np.int64)[one.codes] for one in found])
    queue_ids, numbers = (np.concatenate(part) for part in zip(*(one[2:4] for one in found), strict=True))
    entries = np.concatenate([one.entries for one in found], dtype=ENTRY_TYPE)  # else the bytes would be turned around
    index = np.concatenate([one.keyed for one in found])
    keys = codes << 32 | (queue_ids & 0xFFFFFFFF)
    order = np.argsort(keys, kind="stable")
    keys, numbers, entries = keys[order], numbers[order], entries[order]
    scratch = Path(settings.scratch)
    entries.tofile(scratch / f"{number}.queues")
    numbers.tofile(scratch / f"{number}.numbers")
    index.tofile(scratch / f"{number}.index")
    return {"queues": list(_table(names, keys, numbers)), "index_rows": len(index)}


def _table(names: list[str], keys: Int64s, numbers: Int64s) -> Iterator[tuple[str, int, int, int, int, bool]]:
    if not len(keys):
        return
    starts = np.append(np.flatnonzero(np.append(True, keys[1:] != keys[:-1])), len(keys)).tolist()
    for begin, end in pairwise(starts):
        key, mine = int(keys[begin]), numbers[begin:end]
        queue_id = (key & 0xFFFFFFFF) - (1 << 32 if key & 0x80000000 else 0)
        in_order = bool((np.diff(mine) == 1).all())
        yield names[key >> 32], queue_id, begin, end - begin, int(mine[0]), in_order


# --- rebuild_write ---
#
# The second half of a rebuild: scratch files to queue files and index files, each made by one task, durable.


@dataclass(frozen=True, slots=True)
class Place:
    """Entries of a queue, or rows of the index, in the scratch files of one stretch."""

    stretch: int
    at: int
    count: int


@dataclass(frozen=True, slots=True)
class QueueWork:
    topic: str
    queue_id: int
    first: int
    is_plain: bool
    """Whether its numbers follow each other without a gap from `first` on, as they nearly always do."""
    places: tuple[Place, ...]

    @property
    def entries(self) -> int:
        return sum(place.count for place in self.places)


@dataclass(frozen=True, slots=True)
class IndexWork:
    name: str
    slots: int
    entries: int
    before: Place | None
    """The last row of the file before this one: its time is where this one begins to count."""
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Target:
    root: str
    commit_log: str
    scratch: str
    queue_segment_bytes: int

    @property
    def layout(self) -> RebuildLayout:
        return RebuildLayout(Path(self.root), Path(self.commit_log))


def write_one(target: Target, work: list[QueueWork] | IndexWork) -> int:
    """How many entries the queues have now, or the index file."""
    try:
        if isinstance(work, IndexWork):
            return _write_index(target, work)
        return sum(_write_queue(target, queue) for queue in work)
    except OSError as error:
        raise StoreFull(f"{target.layout.root} cannot be written: {error.strerror}") from error


# --- queues ----------------------------------------------------------------------------------------------------------


def _write_queue(target: Target, work: QueueWork) -> int:
    if not work.is_plain:
        return _replay_queue(target, work)
    directory = target.layout.queue(work.topic, work.queue_id)
    RealDisk().make_directory(directory, synced=False)
    data = memoryview(b"".join(_entries(target, place).tobytes() for place in work.places))
    position = work.first * ENTRY_BYTES
    end = position + len(data)
    segment = target.queue_segment_bytes
    for base in range(position - position % segment, end, segment):
        part = data[max(base - position, 0) : base + segment - position]
        _write_segment(directory / offset_name(base), segment, max(position - base, 0), part)
    RealDisk().sync_directory(directory)
    RealDisk().sync_directory(directory.parent)
    return work.entries


def _write_segment(path: Path, size: int, begin: int, data: memoryview) -> None:
    """A queue that begins inside a file has fillers before it."""
    file = RealDisk().create(path, size, allocated=0)
    try:
        if begin:
            file.write(FILLER * (begin // ENTRY_BYTES), 0)
        file.write(data, begin)
        file.sync()
    finally:
        file.close()


def _replay_queue(target: Target, work: QueueWork) -> int:
    """A queue with gaps, or one that begins anew: entry by entry, by the rules of the running broker."""
    settings = StoreSettings(root=target.layout.root, queue_segment_bytes=target.queue_segment_bytes)
    queues = ConsumeQueues(RealDisk(), target.layout, settings.queue_segment_bytes, 8)
    try:
        queue = queues.get_or_create(work.topic, work.queue_id)
        for place in work.places:
            numbers = _read(target, place, "numbers", np.dtype(np.int64)).tolist()
            for number, entry in zip(numbers, _entries(target, place).tolist(), strict=True):
                queue.append_at(number, *entry)
            queue.write()
        for unsynced in queue.take_unsynced():
            unsynced.sync()
        return queue.max_offset - queue.min_offset
    finally:
        queues.close()


def _entries(target: Target, place: Place) -> Entries:
    return _read(target, place, "queues", ENTRY_TYPE)


def _read(target: Target, place: Place, kind: str, dtype: np.dtype[np.generic]) -> npt.NDArray[np.void]:
    path = Path(target.scratch) / f"{place.stretch}.{kind}"
    with path.open("rb") as file:
        return np.fromfile(file, dtype, place.count, offset=place.at * dtype.itemsize)


# --- the index -------------------------------------------------------------------------------------------------------


def _write_index(target: Target, work: IndexWork) -> int:
    rows = np.concatenate([_rows(target, place) for place in work.places])
    before = None if work.before is None else _rows(target, work.before)[0]
    header = Header.following(*((0, 0) if before is None else (int(before["stored_ms"]), int(before["physical"]))))
    file = IndexFile.create(
        RealDisk(), target.layout.index / work.name, IndexCapacity(work.slots, work.entries), header
    )
    try:
        file.publish(
            file.write_entries(KeyRows(rows["hash"].copy(), rows["physical"].copy(), rows["stored_ms"].copy()))
        )
        file.sync()
    finally:
        file.close()
    return len(rows)


def _rows(target: Target, place: Place) -> IndexRows:
    return _read(target, place, "index", ROW_TYPE)


def index_works(counts: list[int], slots: int, entries: int, names: Iterator[str]) -> Iterator[IndexWork]:
    """A file is full with one entry less than it has places for. `counts` are the rows of each stretch."""
    room = entries - 1
    places: list[Place] = []
    free, before, last = room, None, None
    for stretch, count in enumerate(counts):
        at = 0
        while at < count:
            step = min(free, count - at)
            places.append(Place(stretch, at, step))
            at, free = at + step, free - step
            last = Place(stretch, at - 1, 1)
            if not free:
                yield IndexWork(next(names), slots, entries, before, tuple(places))
                places, free, before = [], room, last
    if places:
        yield IndexWork(next(names), slots, entries, before, tuple(places))
