"""The timer log and checkpoint: one unit per pending message, in append-only files under `timer/`.

The log is derived from the commit log: a start that finds it damaged deletes it and reads the timer topic again. The
checkpoint contains its end; units that a crash left after that are overwritten.

One unit, a pending message. Units of one time slot are linked, the newest first:

    offset  bytes  field
         0      8  previous         position of the unit before it in its slot, -1 when it is the first
         8      8  wakeMs           when to look at the message: due, or to be moved on before retention reaches it
        16      8  physicalOffset   of its record in the commit log
        24      4  size             of its record
        28      4  check            over the seven words before it

The check is the sum of the words multiplied by odd numbers: it detects a change of any single word, and numpy computes
a million of them in a few milliseconds, which a start after a crash waits for.

The checkpoint `timer/checkpoint`, replaced as a whole, with an equal copy `timer/checkpoint.bak`:

    offset  bytes  field
         0      8  magic          "ARTIMER2"
         8      8  deliveredMs    every unit for an earlier time is delivered, and what was delivered is durable
        16      8  logEnd         the units before this are durable ...
        24      8  queueOffset    ... and stand for every message of the timer topic before this
        32      8  knownBelow     while the topic is read again because the log was lost: messages before this offset
        40      8  knownMs          that were for an earlier time than this were delivered already
        48      8  knownWindowMs    if they were not stored again after this time (0: the window of our settings)
        56      4  crc            over all before it

"ARTIMER1" is the same without knownWindowMs.
"""

import logging
import struct
import threading
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ariane.errors import StoreCorrupt, StoreFull
from ariane.store.blocking_io import IoSteps
from ariane.store.commit_log.log import Segment, Segments
from ariane.store.disk import Disk, read_all, replace_all
from ariane.store.layout import offset_of
from ariane.wire.hashes import crc32

log = logging.getLogger(__name__)

# --- units ---

_UNIT = struct.Struct(">qqqiI")
_WORDS = struct.Struct(">7I")
UNIT_BYTES = _UNIT.size
NO_UNIT = -1

_FACTORS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0xD6E8FEB9, 0xA0761D65)
_SEED = 0x5F356495  # so that zeros are not a valid unit
_FACTOR_ROW = np.array(_FACTORS, dtype=np.uint32)
_MASK = 0xFFFFFFFF

UNITS = np.dtype([("previous", ">i8"), ("wake_ms", ">i8"), ("physical", ">i8"), ("size", ">i4"), ("check", ">u4")])


class TimerUnit(NamedTuple):
    previous: int
    wake_ms: int
    physical_offset: int
    size: int


def pack_unit(unit: TimerUnit) -> bytes:
    fields = _UNIT.pack(*unit, 0)[:-4]
    return fields + _check(fields).to_bytes(4, "big")


def unpack_unit(data: bytes, position: int) -> TimerUnit:
    """The unit read at `position`; StoreCorrupt if it is invalid or its link does not point backwards."""
    if len(data) == UNIT_BYTES:
        previous, wake_ms, physical, size, check = _UNIT.unpack(data)
        if check == _check(data[:-4]) and NO_UNIT <= previous < position:
            return TimerUnit(previous, wake_ms, physical, size)
    raise StoreCorrupt(f"the timer log is damaged at {position}")


def unpack_units(data: bytes) -> npt.NDArray[np.void]:
    """Many consecutive units; StoreCorrupt if one of them is invalid."""
    words = np.frombuffer(data, dtype=">u4").astype(np.uint32).reshape(-1, UNIT_BYTES // 4)
    checks = (words[:, :-1] * _FACTOR_ROW).sum(axis=1, dtype=np.uint32) + np.uint32(_SEED)
    if not np.array_equal(checks, words[:, -1]):
        raise StoreCorrupt(f"the timer log is damaged in unit {int(np.argmax(checks != words[:, -1]))} of a chunk")
    return np.frombuffer(data, dtype=UNITS)


def _check(fields: bytes) -> int:
    words: tuple[int, ...] = _WORDS.unpack(fields)
    return (sum(word * factor for word, factor in zip(words, _FACTORS, strict=True)) + _SEED) & _MASK


# --- log ---

FILE_BYTES = 32 * 1024 * 1024
"""A million units. One pending message can prevent the deletion of 32 MB."""
_SCAN_BYTES = 1024 * 1024


class TimerLog:
    def __init__(self, disk: Disk, directory: Path, file_bytes: int = FILE_BYTES) -> None:
        assert file_bytes % UNIT_BYTES == 0
        disk.make_directory(directory)
        self._segments = Segments(disk, directory, file_bytes, writable=True)
        self._synced_to = self._segments.base
        self.end = self._segments.base
        """Where the next unit will be."""
        self._sync_lock = threading.Lock()
        self._sync_error: OSError | None = None
        self._last_wakes: dict[int, int] = {}  # by base position of a file: the latest wake-up time in it

    @classmethod
    def create_empty(cls, disk: Disk, directory: Path, file_bytes: int = FILE_BYTES) -> "TimerLog":
        """A new empty log; existing files are deleted."""
        for name in disk.names(directory):
            if offset_of(name) is not None:
                disk.remove(directory / name)
        return cls(disk, directory, file_bytes)

    # --- at the start -----------------------------------------------------------------------------------------------

    def set_end(self, end: int) -> None:
        """Sets the end from the checkpoint; all units before it are durable. StoreCorrupt if the files are shorter."""
        while (last := self._segments.last) is not None and self._is_behind(last, end):
            self._segments.drop_last()
        if end % UNIT_BYTES or not (self._segments.base <= end <= last.end if last is not None else end == 0):
            raise StoreCorrupt(f"the end {end} in the checkpoint does not fit the timer log")
        self.end = self._synced_to = end

    def _is_behind(self, segment: Segment, end: int) -> bool:
        """An empty file at the end is kept if it is the only one: its name is the position where the log continues."""
        return segment.base > end or (segment.base == end and len(self._segments) > 1)

    def scan(self) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """All units in chunks, each with the position of its first unit. StoreCorrupt at a damaged one."""
        for segment in self._segments:
            for position, units in _units_of(segment, self.end):
                self._note(segment, int(units["wake_ms"].max()))
                yield position, units

    # --- while it runs ----------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        last = self._segments.last
        return last is not None and self.end < last.end

    def make_file(self) -> Segment:
        """Creates the next file, to be passed to `adopt`. Blocking, for a thread. StoreFull without space."""
        last = self._segments.last
        try:
            return self._segments.create(last.end if last is not None else 0, allocated=0)
        except OSError as error:
            raise _full(error) from error

    def adopt(self, segment: Segment) -> None:
        self._segments.adopt(segment)

    def append(self, unit: TimerUnit) -> int:
        """Returns the unit's position. StoreFull, with nothing changed, if it cannot be written."""
        segment = self._segments.last
        assert segment is not None, "adopt() begins a file"
        assert self.has_room, "adopt() begins the next file"
        position = self.end
        try:
            segment.file.write(pack_unit(unit), position - segment.base)
        except OSError as error:
            raise _full(error) from error
        self._note(segment, unit.wake_ms)
        self.end = position + UNIT_BYTES
        return position

    def _note(self, segment: Segment, wake_ms: int) -> None:
        self._last_wakes[segment.base] = max(self._last_wakes.get(segment.base, 0), wake_ms)

    def chain(self, position: int, count_max: int) -> list[TimerUnit]:
        """A unit and the units it links to, at most `count_max`. Blocking, for a thread: one small read each."""
        units: list[TimerUnit] = []
        while position != NO_UNIT and len(units) < count_max:
            segment = self._segments.find(position)
            if segment is None:
                raise StoreCorrupt(f"the timer log has no unit at {position}")
            units.append(unpack_unit(segment.file.read(UNIT_BYTES, position - segment.base), position))
            position = units[-1].previous
        return units

    def oldest_from(self, time_ms: int) -> int | None:
        """Commit log offset of the oldest message with this wake-up time or a later one. Blocking, for a thread.

        Units are in the order of their records, so the first match is the oldest. If the log cannot be read, the result
        is 0, the oldest possible offset.
        """
        end = self.end
        try:
            for segment in tuple(self._segments):
                for _, units in _units_of(segment, end):
                    waiting = np.flatnonzero(units["wake_ms"] >= time_ms)
                    if len(waiting):
                        return int(units["physical"][waiting[0]])
        except (OSError, StoreCorrupt):
            return 0
        return None

    def sync_now(self) -> None:
        """Makes all units durable. Blocking, for a thread. Never retried after a failure: the kernel drops the pages it
        could not write, and the next sync would succeed without them (as in store/maintenance/flush.py)."""
        with self._sync_lock:
            if self._sync_error is not None:
                raise self._sync_error
            end = self.end
            try:
                for segment in tuple(self._segments):
                    if segment.end > self._synced_to and segment.base < end:
                        segment.file.sync()
            except OSError as error:
                self._sync_error = error
                raise
            self._synced_to = end

    def drop_before(self, time_ms: int) -> IoSteps[int]:
        """Deletes the files whose units all have earlier times, but never the last file; returns how many."""
        dropped = 0
        while len(self._segments) > 1 and (first := self._segments.first) is not None:
            if self._last_wakes.get(first.base, 0) >= time_ms:
                break
            yield from self._segments.drop_first_steps()
            self._last_wakes.pop(first.base, None)
            dropped += 1
        return dropped

    def close(self) -> None:
        self._segments.close()


def _units_of(segment: Segment, end: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    for position in range(segment.base, min(segment.end, end), _SCAN_BYTES):
        length = min(_SCAN_BYTES, segment.end - position, end - position)
        data = segment.file.read(length, position - segment.base)
        if len(data) != length:
            raise StoreCorrupt(f"the timer log is too short at {position}")
        yield position, unpack_units(data)


def _full(error: OSError) -> StoreFull:
    return StoreFull(f"the timer log cannot be written ({error.strerror}): free disk space; it is retried")


# --- checkpoint ---

_LAYOUT = struct.Struct(">8s6qI")
_MAGIC = b"ARTIMER2"
_OLD_LAYOUT = struct.Struct(">8s5qI")
_OLD_MAGIC = b"ARTIMER1"
_APACHE = struct.Struct(">3q")
_APACHE_DOUBT_MS = 60_000


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    delivered_ms: int
    log_end: int
    queue_offset: int
    known_below: int = 0
    known_ms: int = 0
    known_window_ms: int = 0

    def read_again(self) -> "TimerCheckpoint":
        """The state to begin with when the timer log is lost: the topic is read again."""
        known = (self.queue_offset, self.delivered_ms, 0)
        if self.queue_offset < self.known_below:  # it was being read again, and had not come further
            known = (self.known_below, self.known_ms, self.known_window_ms)
        return TimerCheckpoint(self.delivered_ms, 0, 0, *known)


def copy_of(path: Path) -> Path:
    """The copy of the checkpoint: the same bytes, written just before."""
    return path.with_name(path.name + ".bak")


def read_timer_checkpoint(disk: Disk, path: Path, *, with_copy: bool = True) -> TimerCheckpoint | None:
    """None if there is no checkpoint: the timer was never used. If it is damaged or missing, its copy is used."""
    data = read_all(disk, path, _LAYOUT.size + 1)
    copy = read_all(disk, copy_of(path), _LAYOUT.size + 1) if with_copy else None
    checkpoint = _decode_checkpoint(data)
    if checkpoint is None and (of_copy := _decode_checkpoint(copy)) is not None:
        what = "missing" if data is None else "damaged"
        log.error(f"the timer's checkpoint is {what}: its copy is used", extra={"file": str(path)})
        return of_copy
    if checkpoint is None and (data is not None or copy is not None):
        raise StoreCorrupt(
            f"{path} is damaged, and there is no intact copy: restore it from a backup, or remove it, {path.name}.bak "
            "and `progress` beside it: all messages of the timer topic that are still in the log are then delivered "
            "again"
        )
    return checkpoint


def _decode_checkpoint(data: bytes | None) -> TimerCheckpoint | None:
    for layout, expected in ((_LAYOUT, _MAGIC), (_OLD_LAYOUT, _OLD_MAGIC)):
        if data is not None and len(data) == layout.size:
            magic, *fields, crc = layout.unpack(data)
            return TimerCheckpoint(*fields) if magic == expected and crc == crc32(data[:-4]) else None
    return None


def read_apache_checkpoint(disk: Disk, path: Path) -> TimerCheckpoint | None:
    """The checkpoint `config/timercheck` of Apache 5, if it ran this store before: up to when it delivered, and which
    messages it had enqueued. Its log and wheel are not read; the topic is read again. One minute is subtracted, because
    Apache records a delivery when it starts."""
    data = read_all(disk, path, _APACHE.size)
    if data is None or len(data) < _APACHE.size:
        return None
    read_ms, _, queue_offset = _APACHE.unpack(data)
    return TimerCheckpoint(read_ms, 0, 0, known_below=queue_offset, known_ms=read_ms - _APACHE_DOUBT_MS)


def write_timer_checkpoint(disk: Disk, path: Path, checkpoint: TimerCheckpoint) -> None:
    """Blocks for some syncs."""
    data = _LAYOUT.pack(_MAGIC, *astuple(checkpoint), 0)[:-4]
    data += struct.pack(">I", crc32(data))
    replace_all(disk, copy_of(path), data)
    replace_all(disk, path, data)
