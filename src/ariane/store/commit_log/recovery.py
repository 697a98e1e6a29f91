"""Recovery of the commit log: finds its end after a clean stop, a crash of the process or a crash of the machine.

An invalid record means one of two things. At or above the durable offset it is a torn write that was never
acknowledged, so the log ends before it. Below the durable offset it is corruption: messages after it were
acknowledged. Then its bytes are copied to quarantine, the scan resynchronises at the next record, and nothing is cut.

Recovery may have to read a million records. `scan_simple_records` decodes thousands of them at once with numpy, if they
have the common layout; one by one (wire/record/read.py) a record costs several times as much. The checks are the same.
It stops before any other record, from an IPv6 host to a torn end, which the general path then checks:

    head with two IPv4 hosts | body | length topic length properties
                                    |<--------- suffix ----------->|        version 1; topic and properties are text

It needs neither a store nor files, only a buffer. The suffixes of the records are joined (`RecordSuffixes`). In the
joined bytes the length fields are replaced by 0x02, which ends a property anyway. So each topic and each property
follows a 0x02, and ends before the next one or with the last suffix:

    2 topic 2 2 name 1 value 2 name 1 value 2 │ 2 topic 2 2 name 1 value │ 2 topic 2 2 name 1 value 2
    record 0                                    record 1                   record 2, the last

Only three property names are searched. The result is that of `RecordView.dispatch_facts`: of two values the later one
counts, and an empty value counts as none.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ariane.errors import StoreCorrupt, StoreMismatch
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE
from ariane.store.checkpoint import Checkpoint, LastExit
from ariane.store.commit_log.log import Segment, Segments
from ariane.store.disk import Disk, File, replace_all
from ariane.wire.hashes import POSITIVE_INT32, tags_code, unmasked_crc32_of_each
from ariane.wire.record.layout import (
    CHECKSUM_PREFIX,
    HOST_BITS,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    SIZE_AND_MAGIC,
    TOPIC_BYTES_MAX_V1,
    checksum_error,
    has_checksum,
)
from ariane.wire.record.numpy_fields import HEAD_BYTES, at_every_byte, heads_at
from ariane.wire.record.read import BlankRecord, BrokenRecord, Fault, RecordView, verify

Int64s: TypeAlias = npt.NDArray[np.int64]

_NAME_ENDS, _VALUE_ENDS = 1, 2
_PADDING = bytes(16)
"""Appended to the suffixes, so that a name can be compared at every position."""


class RecordFacts(NamedTuple):
    """What queues and index store of the properties of records."""

    tags_codes: list[int]
    keys: list[Sequence[str]]
    """The index keys of each record, the unique key first."""


class RecordSuffixes(NamedTuple):
    """What follows the bodies of many records, joined: topics and properties (drawn in the module docstring)."""

    data: bytes
    begins: Int64s
    """Where each suffix begins, and where the last one ends."""
    topic_lengths: Int64s

    @classmethod
    def joined(cls, pieces: Iterable[memoryview], lengths: Int64s, topic_lengths: Int64s) -> "RecordSuffixes":
        data = bytearray().join(pieces)
        begins = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        lengths_at = begins[:-1] + topic_lengths
        byte_array = np.frombuffer(data, np.uint8)
        for at in (begins[:-1], lengths_at + 1, lengths_at + 2):
            byte_array[at] = _VALUE_ENDS
        return cls(bytes(data), begins, topic_lengths)

    def first(self, count: int) -> "RecordSuffixes":
        return RecordSuffixes(self.data[: self.begins[count]], self.begins[: count + 1], self.topic_lengths[:count])

    def count_valid_text(self) -> int:
        """Number of suffixes before one that is not UTF-8 or holds a zero byte, as a page lost in a power cut does.

        Where invalid UTF-8 begins is not known: the first suffix that is not ASCII ends the count.
        """
        if b"\0" not in self.data and (self.data.isascii() or _is_utf8(self.data)):
            return len(self.topic_lengths)
        first = int((np.frombuffer(self.data, np.int8) <= 0).argmax())
        return int(np.searchsorted(self.begins, first, side="right")) - 1

    def topics(self) -> list[str]:
        begins = self.begins[:-1] + 1
        return list(map(self._text_at(), map(slice, begins.tolist(), (begins + self.topic_lengths).tolist())))

    @property
    def _text_begins(self) -> Int64s:
        return self.begins[:-1] + 3 + self.topic_lengths

    def text(self, number: int) -> bytes:
        """The properties of one record."""
        return self.data[self._text_begins[number] : self.begins[number + 1]]

    def _text_at(self) -> Callable[[slice], str]:
        """A function that returns the text of a slice; if all is ASCII, of one long str, in half the time."""
        joined = self.data
        return joined.decode().__getitem__ if joined.isascii() else lambda span: joined[span].decode()

    # --- properties -------------------------------------------------------------------------------------------------

    def facts(self) -> RecordFacts:
        data = np.frombuffer(self.data + _PADDING, np.uint8)
        separators = np.append(np.flatnonzero(data == _VALUE_ENDS), len(self.data))
        tags, unique_keys, keys = (
            self._values(name, data, separators) for name in (Property.TAGS, Property.UNIQUE_KEY, Property.KEYS)
        )
        codes = {tag: tags_code(tag) for tag in set(tags)}
        return RecordFacts(list(map(codes.__getitem__, tags)), self._all_keys(unique_keys, keys))

    def _all_keys(self, unique_keys: list[str | None], keys: list[str | None]) -> list[Sequence[str]]:
        """In the common cases one call for all: every message has a unique key, or one key, or both."""
        if b" " not in self.data:
            columns = [column for column in (unique_keys, keys) if any(column)]
            if not any(None in column for column in columns):
                return list(zip(*columns, strict=True)) if columns else [()] * len(keys)
        return list(map(_merge_keys, unique_keys, keys))

    def _values(self, name: str, data: npt.NDArray[np.uint8], separators: Int64s) -> list[str | None]:
        """The value of this property in each record, None where there is none."""
        begins, ends = _find_values(name.encode(), data, separators)
        numbers = np.searchsorted(self._text_begins, begins, side="right") - 1
        is_property = (numbers >= 0) & (begins < self.begins[numbers + 1])  # and not part of an odd topic name
        if not is_property.all():
            numbers, begins, ends = numbers[is_property], begins[is_property], ends[is_property]
        texts = map(self._text_at(), map(slice, begins.tolist(), ends.tolist()))
        values: list[str | None] = [None] * len(self.topic_lengths)
        if np.array_equal(numbers, np.arange(len(values))):
            return list(texts)
        for number, text in zip(numbers.tolist(), texts, strict=True):
            values[number] = text
        return values


def _find_values(name: bytes, data: npt.NDArray[np.uint8], separators: Int64s) -> tuple[Int64s, Int64s]:
    """Positions where the values of this property begin and end."""
    kind = np.dtype(f"<u{len(name)}")  # compared as one number, which is fast: the names have 4 and 8 letters
    hits = np.flatnonzero(at_every_byte(data.data, kind)[separators[:-1] + 1] == np.frombuffer(name, kind)[0])
    name_ends, ends = separators[hits] + 1 + len(name), separators[hits + 1]
    has_value = (data[name_ends] == _NAME_ENDS) & (name_ends + 1 < ends)
    return name_ends[has_value] + 1, ends[has_value]


def _merge_keys(unique_key: str | None, keys: str | None) -> Sequence[str]:
    words = () if keys is None else (keys,) if " " not in keys else tuple(word for word in keys.split(" ") if word)
    return words if unique_key is None else (unique_key, *words)


def _is_utf8(joined: bytes) -> bool:
    """Valid for all together means valid for each: the separators are not part of a character."""
    try:
        joined.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- many records of the common layout at once ---

Bools: TypeAlias = npt.NDArray[np.bool_]

RECORDS_MAX = 4096
"""Per scan: enough that a numpy call costs little per record, few enough to stay in the CPU's cache."""
_BYTES_MAX = 16 * 1024 * 1024
_LENGTHS_BYTES = 3
"""Length fields of the topic, 1, and of the properties, 2."""


class SimpleRecords(NamedTuple):
    """Consecutive records of the common layout: the location of each, and what queues and index store of it."""

    end: int
    """End of the last record, in the buffer."""
    physical: list[int]
    sizes: list[int]
    topics: list[str]
    queue_ids: list[int]
    queue_offsets: list[int]
    sys_flags: list[int]
    timestamps_ms: list[int]
    facts: RecordFacts

    def entry(self, number: int) -> tuple[int, int, int]:
        """The queue entry of one record: physical offset, size, tags code."""
        return self.physical[number], self.sizes[number], self.facts.tags_codes[number]


class _Boundaries(NamedTuple):
    """Positions of each record's parts in the buffer."""

    starts: Int64s
    body_ends: Int64s
    topic_lengths: Int64s
    ends: Int64s

    def first(self, count: int) -> "_Boundaries":
        return _Boundaries(*(part[:count] for part in self))


def scan_simple_records(
    view: memoryview, position: int, base: int, size_max: int, records_max: int = RECORDS_MAX
) -> SimpleRecords | None:
    """Decodes and checks records of the common layout from `position` on, at most `records_max`.

    None when the first record is of another layout, or invalid; the caller then checks that one with
    `ariane.wire.record.read.verify`. `base` is the physical offset of the buffer's first byte: the offset that each
    record stores must be right. Records longer than `size_max` are left to the caller, and so are those of the schedule
    topic. Pass the result to `Dispatcher.replay`. Needs no running store.
    """
    starts = _record_starts(view, position, records_max)
    heads = heads_at(view, starts)
    bounds = _find_boundaries(view, starts, heads, base, size_max)
    bounds = bounds.first(_count_crc_valid(view, bounds, heads))
    suffixes = RecordSuffixes.joined(
        _pieces(view, bounds.body_ends, bounds.ends), bounds.ends - bounds.body_ends, bounds.topic_lengths
    )
    count = _count_checksum_valid(view, bounds.first(suffixes.count_valid_text()), suffixes)
    topics = suffixes.first(count).topics()
    if SCHEDULE in topics:  # their entries hold the delivery time in place of the tags code
        count = topics.index(SCHEDULE)
    if not count:
        return None
    bounds, heads = bounds.first(count), heads[:count]
    return SimpleRecords(
        end=int(bounds.ends[-1]),
        physical=(bounds.starts + base).tolist(),
        sizes=(bounds.ends - bounds.starts).tolist(),
        topics=topics[:count],
        queue_ids=heads["queueId"].tolist(),
        queue_offsets=heads["queueOffset"].tolist(),
        sys_flags=heads["sysFlag"].tolist(),
        timestamps_ms=heads["storeTimestamp"].tolist(),
        facts=suffixes.first(count).facts(),
    )


def _record_starts(view: memoryview, position: int, records_max: int) -> Int64s:
    """Start positions of records of version 1, each found by the size of the one before. The last record may be cut
    off after its head."""
    starts: list[int] = []
    unpack, last = SIZE_AND_MAGIC.unpack_from, min(position + _BYTES_MAX, len(view) - RECORD_BYTES_MIN)
    for _ in range(records_max):
        if position > last:
            break
        size, magic = unpack(view, position)
        if magic != MAGIC_V1 or size < RECORD_BYTES_MIN:
            break
        starts.append(position)
        position += size
    return np.array(starts, np.int64)


def _find_boundaries(
    view: memoryview, starts: Int64s, heads: npt.NDArray[np.void], base: int, size_max: int
) -> _Boundaries:
    """Up to the first record whose lengths do not add up, or that stores another offset. Before a length is used, it is
    checked to stay inside the record, and the record to be inside the buffer."""
    sizes, bodies = heads["size"].astype(np.int64), heads["bodyLength"].astype(np.int64)
    ends, body_ends = starts + sizes, starts + HEAD_BYTES + bodies
    invalid = (heads["sysFlag"] & HOST_BITS) != 0
    invalid |= heads["physicalOffset"] != starts + base
    invalid |= (sizes > size_max) | (ends > len(view)) | (bodies < 0) | (body_ends + _LENGTHS_BYTES > ends)
    count = _count_before(invalid)
    bytes_ = np.frombuffer(view, np.uint8)
    topics = bytes_[body_ends[:count]].astype(np.int64)
    bounds = _Boundaries(starts, body_ends, topics, ends).first(count)
    texts = bounds.ends - bounds.body_ends - topics - _LENGTHS_BYTES
    bounds = bounds.first(_count_before((topics > TOPIC_BYTES_MAX_V1) | (texts < 0)))
    length_at = bounds.body_ends + 1 + bounds.topic_lengths
    stored = bytes_[length_at].astype(np.int64) << 8 | bytes_[length_at + 1]
    return bounds.first(_count_before(stored != texts[: len(stored)]))


def _count_crc_valid(view: memoryview, bounds: _Boundaries, heads: npt.NDArray[np.void]) -> int:
    """Number of records before the first one whose body does not match its CRC."""
    begins, ends = bounds.starts + HEAD_BYTES, bounds.body_ends
    crcs = np.fromiter(unmasked_crc32_of_each(_pieces(view, begins, ends)), np.int64, len(begins)) & POSITIVE_INT32
    return _count_before((crcs != heads["bodyCRC"][: len(begins)]) & (begins < ends))


def _count_checksum_valid(view: memoryview, bounds: _Boundaries, suffixes: RecordSuffixes) -> int:
    """Number of records before the first one whose own record checksum (`__CRC32#`) does not match."""
    if CHECKSUM_PREFIX in suffixes.data:
        for number, record in enumerate(_pieces(view, bounds.starts, bounds.ends)):
            text = suffixes.text(number)
            if has_checksum(text) and checksum_error(record, text) is not None:
                return number
    return len(bounds.starts)


def _pieces(view: memoryview, begins: Int64s, ends: Int64s) -> Iterator[memoryview]:
    return map(view.__getitem__, map(slice, begins.tolist(), ends.tolist()))


def _count_before(invalid: Bools) -> int:
    """Number of rows before the first invalid one."""
    first = int(invalid.argmax()) if len(invalid) else 0
    return first if len(invalid) and invalid[first] else len(invalid)


# --- scan and end of the log ---

log = logging.getLogger(__name__)

_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_ZERO_CHUNK = 1024 * 1024
_APACHE_SLACK_MS = 3_000
_RESYNC_BYTES_MAX = 32 * 1024 * 1024
_ONE_BY_ONE_MIN = 8
"""Records checked one by one after one of another layout; doubled each time the next attempt brings few."""
_TOGETHER_MIN = 64
"""So many records are checked together in about the time of one by one. An attempt is for twice as many as the last one
brought: what is checked behind a record of another layout is checked in vain."""


@dataclass(slots=True)
class LogScan:
    """Scans records from `start` to the end of the log and keeps what recovery needs to know about them."""

    disk: Disk
    segments: Segments
    start: int
    durable_to: int
    size_max: int
    quarantine: Path
    is_in_order: bool = False
    """Everything before the last byte was written, as after a crash of the process: a valid record behind an invalid
    one shows that this one is damaged, not torn."""
    damaged: Sequence[tuple[int, int]] = ()
    """Ranges that do not match their block checksums, in order."""
    is_next: Callable[[RecordView], bool] = lambda view: False
    """Whether the record is the next of its queue, or in it already: one in a damaged range is used only then, for its
    queue entry; what is read from there is checked again."""
    limit: int | None = None
    """At a slave: no record ends behind this offset. What begins before it and is not complete has not arrived yet."""
    together_max: int = RECORDS_MAX
    """Records that are checked, and yielded, together."""
    is_blocked: bool = False
    """At a slave: what follows is not a record, and none was found behind it so far."""
    end: int = 0
    last_timestamp_ms: int = 0
    records: int = 0
    quarantined: list[Path] = field(default_factory=list)
    _one_by_one: int = 0
    _one_by_one_next: int = _ONE_BY_ONE_MIN
    _together: int = RECORDS_MAX

    def whole_records(self) -> Iterator[RecordView | SimpleRecords]:
        """Every valid record, many at once where possible. When exhausted, `end` is the end of the log."""
        self.end = position = self.start
        files_end = self.segments.last.end if self.segments.last is not None else 0
        if self.start > files_end:
            raise StoreCorrupt(
                f"the commit log was durable up to {self.start}, but its files end at {files_end}: restore them. Or, "
                "to begin anew without those messages, remove `checkpoint`, `consumequeue` and `index`"
            )
        while (segment := self.segments.find(position)) is not None:
            batch = self._scan_simple(segment, position)
            if batch is not None:
                self.records += len(batch.physical)
                self.last_timestamp_ms = max(self.last_timestamp_ms, *batch.timestamps_ms)
                self.end = position = segment.base + batch.end
                yield batch
                continue
            verdict = verify(self._view(segment), position - segment.base, size_max=self.size_max)
            suspect = self._suspect(segment, position, verdict)
            if suspect is not None:
                self.end = position = position + suspect.size
                if self._agrees(segment, suspect):
                    self.records += 1
                    yield suspect
            elif isinstance(verdict, RecordView) and self._is_whole(verdict, position):
                self.records += 1
                self.last_timestamp_ms = max(self.last_timestamp_ms, verdict.store_timestamp_ms)
                self.end = position = position + verdict.size
                yield verdict
            elif self._is_incomplete(verdict):
                return
            elif isinstance(verdict, BlankRecord) and position + verdict.size == segment.end:
                position = segment.end
                continue  # a blank record alone does not move the end: nothing follows it yet
            elif self.limit is not None and isinstance(verdict, BlankRecord):
                raise StoreMismatch(
                    f"the master's log has the end of a file at {position + verdict.size}, where this one has none: "
                    "its files have another size; set mappedFileSizeCommitLog alike, and begin with an empty slave"
                )
            elif position < self.durable_to:
                position = self._pass_corruption(segment, position, verdict)
            elif self.is_in_order and (following := self._following(segment, position, verdict)) is not None:
                position = self._quarantine(segment, position, following, verdict)
            else:
                self.is_blocked = self.limit is not None
                return
            self.end = position

    def _view(self, segment: Segment) -> memoryview:
        view = segment.file.view()
        return view if self.limit is None else view[: max(0, self.limit - segment.base)]

    def _is_incomplete(self, verdict: object) -> bool:
        """Whether more bytes are to arrive before this can be judged."""
        return self.limit is not None and isinstance(verdict, BrokenRecord) and verdict.fault is Fault.TORN

    def _damage_at(self, begin: int, end: int) -> tuple[int, int] | None:
        """The first damaged range that these bytes touch."""
        return next((bad for bad in self.damaged if bad[0] < end and bad[1] > begin), None)

    def _suspect(self, segment: Segment, position: int, verdict: object) -> RecordView | None:
        """The record, if it lies in a damaged range and has a plausible layout, whatever its body is."""
        if not self.damaged or not isinstance(verdict, RecordView | BrokenRecord):
            return None
        view = verify(segment.file.view(), position - segment.base, size_max=self.size_max, check_body_crc=False)
        if not isinstance(view, RecordView) or view.physical_offset != position:
            return None
        return view if self._damage_at(position, position + view.size) is not None else None

    def _agrees(self, segment: Segment, view: RecordView) -> bool:
        is_next = self.is_next(view)
        log.error(
            "a record of a damaged block was found: its queue has an entry for it, and no consumer gets it"
            if is_next
            else "a record of a damaged block was found, and it is not the next of its queue: it is left out",
            extra={"file": str(segment.path), "offset": view.physical_offset, "bytes": view.size},
        )
        return is_next

    def _following(self, segment: Segment, position: int, verdict: object) -> int | None:
        """The next valid record behind an invalid one, not far away. None if only zeros follow, as nearly always."""
        if isinstance(verdict, BrokenRecord) and verdict.fault is Fault.EMPTY:
            return None
        end = min(position + _RESYNC_BYTES_MAX, segment.end - 1)
        return next_record(segment, position, end if self.limit is None else min(end, self.limit), self.size_max)

    def _scan_simple(self, segment: Segment, position: int) -> SimpleRecords | None:
        """None when the next record must be checked alone: records of another layout often come in groups."""
        if self._one_by_one:
            self._one_by_one -= 1
            return None
        view = self._view(segment)
        damage = self._damage_at(position, segment.end) if self.damaged else None
        if damage is not None:
            view = view[: max(0, max(damage[0], position) - segment.base)]
        batch = scan_simple_records(
            view, position - segment.base, segment.base, self.size_max, min(self._together, self.together_max)
        )
        count = 0 if batch is None else len(batch.physical)
        self._together = min(max(2 * count, _TOGETHER_MIN), RECORDS_MAX)
        if count < _TOGETHER_MIN:
            self._one_by_one = self._one_by_one_next
            self._one_by_one_next = min(2 * self._one_by_one_next, RECORDS_MAX)
        else:
            self._one_by_one_next = _ONE_BY_ONE_MIN
        return batch

    def _is_whole(self, view: RecordView, position: int) -> bool:
        """A record may end on a page that a power cut lost, and its CRC covers the body only. Such a page reads as
        zeros, which no topic and no property text contains.
        """
        if view.physical_offset != position:
            return False  # a stale record of an earlier log
        return position < self.durable_to or not ("\0" in view.topic or b"\0" in view.property_text)

    def _pass_corruption(self, segment: Segment, position: int, verdict: object) -> int:
        """Copies the damaged bytes to quarantine; returns where the next valid record begins."""
        following = next_record(segment, position, min(self.durable_to, segment.end), self.size_max)
        if following is None and self._damage_at(position, self.durable_to) is not None:
            following = self.durable_to  # always between two records
        if following is None:
            raise StoreCorrupt(
                f"{segment.path}: no valid record at byte {position - segment.base} ({_reason(verdict)}), and none "
                f"follows up to {self.durable_to}, below which all was durable. Restore the file from a copy or a "
                "replica; `ariane store verify` shows what is damaged"
            )
        return self._quarantine(segment, position, following, verdict)

    def _quarantine(self, segment: Segment, position: int, following: int, verdict: object) -> int:
        kept = self.quarantine / f"{position:020d}-{following - position}"
        self.disk.make_directory(self.quarantine)
        replace_all(self.disk, kept, bytes(segment.file.view()[position - segment.base : following - segment.base]))
        self.quarantined.append(kept)
        log.error(
            "corruption below the durable offset: bytes moved to quarantine",
            extra={
                "file": str(segment.path), "offset": position, "bytes": following - position,
                "reason": _reason(verdict),
            },
        )  # fmt: skip
        return following


def _reason(verdict: object) -> str:
    return verdict.reason if isinstance(verdict, BrokenRecord) else "a record of another physical offset"


def next_record(segment: Segment, position: int, end: int, size_max: int) -> int | None:
    """The first offset after `position` of a valid record that stores this offset; or the end of the file."""
    view = segment.file.view()
    data = bytes(view[position - segment.base : end - segment.base])
    at = 1
    while True:
        hits = [hit for magic in _MAGICS if (hit := data.find(magic, at + 4)) >= 0]
        if not hits:
            return segment.end if end == segment.end else None
        at = min(hits) - 4
        candidate = verify(view, position - segment.base + at, size_max=size_max)
        if isinstance(candidate, RecordView) and candidate.physical_offset == position + at:
            return position + at
        at += 1


def scan_start(segments: Segments, checkpoint: Checkpoint, exit_: LastExit, queued_to: int) -> int:
    """Where recovery starts: the end of what is known to be valid and dispatched. `queued_to`: end of the queues."""
    if checkpoint.has_ariane_slot:
        known = checkpoint.written_to if exit_ is LastExit.PROCESS_CRASH else checkpoint.dispatched_to
        return max(segments.base, known)
    return _start_from_apache_files(segments, checkpoint, exit_, max(segments.base, queued_to))


def _start_from_apache_files(segments: Segments, checkpoint: Checkpoint, exit_: LastExit, queued_to: int) -> int:
    """For a store of Apache, or a log without a checkpoint: by files, since Apache's checkpoint has only times."""
    files = list(segments)
    if exit_ is LastExit.CLEAN:
        return min(files[max(0, len(files) - 3)].base, queued_to) if files else 0
    safe_ms = min(checkpoint.physic_timestamp_ms, checkpoint.logics_timestamp_ms) - _APACHE_SLACK_MS
    for segment in reversed(files):
        first = verify(segment.file.view(), 0, check_body_crc=False)
        if isinstance(first, RecordView) and 0 < first.store_timestamp_ms <= safe_ms:
            return segment.base
    return segments.base


def rewrite_log(segments: Segments, position: int) -> None:
    """Writes the bytes from `position` on over themselves: after a failed sync the kernel takes them for clean, though
    the disk may not have them. The next sync then covers them, or fails."""
    for segment in segments:
        for start, end in list(_data_chunks(segment.file, max(position - segment.base, 0))):
            data = segment.file.read(end - start, start)
            if data.strip(b"\0"):
                segment.file.write(data, start)


def end_log(segments: Segments, end: int) -> None:
    """Truncates the log to `end`: removes later files, and zeroes and syncs the rest of its own file.

    Otherwise old records there, valid by themselves, would reappear behind new ones after the next crash.
    """
    while segments.last is not None and segments.last.base > end:
        segments.drop_last()
    segment = segments.find(end)
    if segment is not None and _zero_from(segment.file, end - segment.base):
        segment.file.sync()


def written_end(segments: Segments, begin: int) -> int:
    """The end of the last byte that is not zero, or `begin`."""
    for segment in reversed(segments.between(begin, segments.last.end if segments.last is not None else 0)):
        for start, end in reversed(list(_data_chunks(segment.file, max(begin - segment.base, 0)))):
            data = segment.file.read(end - start, start).rstrip(b"\0")
            if data:
                return segment.base + start + len(data)
    return begin


def _zero_from(file: File, position: int) -> bool:
    """Whether anything had to be zeroed. Skips ranges that were never written."""
    changed = False
    zeros = bytes(_ZERO_CHUNK)
    for start, end in list(_data_chunks(file, position)):
        data = file.read(end - start, start)
        if data != zeros[: len(data)]:
            file.write(zeros[: len(data)], start)
            changed = True
    return changed


def _data_chunks(file: File, position: int) -> Iterator[tuple[int, int]]:
    """Ranges that may hold data. List all of them before reading one: the kernel reads ahead, and counts what it has
    read as data. One read would lead to the next, through a gigabyte of zeros that was only allocated."""
    while (start := file.next_data(position)) is not None:
        position = start + min(_ZERO_CHUNK - start % _ZERO_CHUNK, file.size - start)
        yield start, position
