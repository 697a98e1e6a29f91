"""The timer's log: a unit for each pending message, in files under `timer/`, never changed once written.

It holds nothing that the commit log does not: a start that finds it damaged throws it away and reads the timer topic
again. Where it ends is said by the checkpoint; what a crash left behind that is overwritten.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ariane.broker.schedule.timer_unit import NO_UNIT, UNIT_BYTES, TimerUnit, pack_unit, unpack_unit, unpack_units
from ariane.errors import StoreCorrupt, StoreFull
from ariane.store.disk import Disk
from ariane.store.layout import offset_of
from ariane.store.segments import Segment, Segments
from ariane.store.steps import Steps

FILE_BYTES = 32 * 1024 * 1024
"""A million units: 32 MB are also what the oldest pending message can keep from being deleted."""
_SCAN_BYTES = 1024 * 1024


class TimerLog:
    def __init__(self, disk: Disk, directory: Path, file_bytes: int = FILE_BYTES) -> None:
        assert file_bytes % UNIT_BYTES == 0
        disk.make_directory(directory)
        self._segments = Segments(disk, directory, file_bytes, writable=True)
        self._synced_to = self._segments.base
        self.end = self._segments.base
        """Where the next unit will be."""
        self._one_at_a_time = threading.Lock()
        self._sync_error: OSError | None = None
        self._last_wakes: dict[int, int] = {}  # by the base of a file, the latest time in it

    @classmethod
    def afresh(cls, disk: Disk, directory: Path, file_bytes: int = FILE_BYTES) -> "TimerLog":
        """An empty one; what was there is removed."""
        for name in disk.names(directory):
            if offset_of(name) is not None:
                disk.remove(directory / name)
        return cls(disk, directory, file_bytes)

    # --- at the start -----------------------------------------------------------------------------------------------

    def set_end(self, end: int) -> None:
        """The checkpoint's word: units end here, all of them durable. StoreCorrupt when they do not reach so far."""
        while (last := self._segments.last) is not None and self._is_behind(last, end):
            self._segments.drop_last()
        if end % UNIT_BYTES or not (self._segments.base <= end <= last.end if last is not None else end == 0):
            raise StoreCorrupt(f"the timer's log does not reach to {end}")
        self.end = self._synced_to = end

    def _is_behind(self, segment: Segment, end: int) -> bool:
        """An empty file right at the end may be the only one, and then says where the log goes on."""
        return segment.base > end or (segment.base == end and len(self._segments) > 1)

    def scan(self) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """All units in chunks, each with the position of its first. StoreCorrupt at a damaged one."""
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
        """The next file. Blocks, and changes nothing here: for a thread; then `adopt` it. StoreFull without space."""
        last = self._segments.last
        try:
            return self._segments.create(last.end if last is not None else 0, allocated=0)
        except OSError as error:
            raise _full(error) from error

    def adopt(self, segment: Segment) -> None:
        self._segments.adopt(segment)

    def append(self, unit: TimerUnit) -> int:
        """The unit's position. StoreFull, and nothing taken, when it cannot be written."""
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
        """A unit and those it links to, at most so many. For a thread: one small read each."""
        units: list[TimerUnit] = []
        while position != NO_UNIT and len(units) < count_max:
            segment = self._segments.find(position)
            if segment is None:
                raise StoreCorrupt(f"the timer's log has nothing at {position}")
            units.append(unpack_unit(segment.file.read(UNIT_BYTES, position - segment.base), position))
            position = units[-1].previous
        return units

    def oldest_from(self, time_ms: int) -> int | None:
        """Where in the commit log the oldest message for this time or a later one is. Blocks: for a thread.

        Units stand in the order of their records, so the first is the one. What cannot be read may be anything: it is
        taken to be as old as can be.
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
        """Makes all units durable. Blocks: for a thread. After a failure never again: the kernel forgets what it could
        not write, and the next sync would succeed without it (as in store/flush.py)."""
        with self._one_at_a_time:
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

    def drop_before(self, time_ms: int) -> Steps[int]:
        """Removes the files whose units were all for earlier times, but never the last; how many."""
        dropped = 0
        while len(self._segments) > 1 and (first := self._segments.first) is not None:
            if self._last_wakes.get(first.base, 0) >= time_ms:
                break
            yield from self._segments.dropping_first()
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
            raise StoreCorrupt(f"the timer's log is too short at {position}")
        yield position, unpack_units(data)


def _full(error: OSError) -> StoreFull:
    return StoreFull(f"the timer's log cannot be written ({error.strerror}): free some space; it is tried again")
