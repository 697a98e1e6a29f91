"""The timer wheel: the slot table of pending messages in memory, backed by the timer log.

The table has one entry for each tenth of a second of the next three days: the newest unit that waits for it. It is a
ring of fixed size, so ten million waiting messages take as much memory as none: at most 21 MB, of which the kernel
allocates only touched pages. It is rebuilt from the timer log at every start.

            cursor: all before it is delivered               cursor + SLOTS
    ────────────┼──────────────────────────────────────────────────┼────────▶ time
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ariane.broker.schedule.timer_log import FILE_BYTES, NO_UNIT, TimerLog, TimerUnit
from ariane.errors import StoreCorrupt
from ariane.store.disk import Disk

# --- slot table ---

SLOT_MS = 100
"""Maximum delay of a delivery without load. A slot is delivered after its end, so nothing is early."""
SLOTS = 3 * 86_400_000 // SLOT_MS
_SCAN_SLOTS = 1 << 16


class TimerSlots:
    """Newest unit by slot. Slots are numbered from 1970; arguments must be in `cursor` .. `cursor + SLOTS`."""

    def __init__(self) -> None:
        self._heads = np.zeros(SLOTS, dtype=np.int64)  # position + 1; 0 is an empty slot

    def head(self, slot: int) -> int:
        """The position of the slot's newest unit, NO_UNIT if the slot is empty."""
        return int(self._heads[slot % SLOTS]) - 1

    def set_head(self, slot: int, position: int) -> None:
        self._heads[slot % SLOTS] = position + 1

    def pop(self, slot: int) -> int:
        """Empties the slot and returns the position of its newest unit."""
        position = self.head(slot)
        self.set_head(slot, NO_UNIT)
        return position

    def set_heads(self, slots: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> None:
        """Sets many heads in log order: the last one for a slot wins."""
        self._heads[slots % SLOTS] = positions + 1

    def next_used(self, begin: int, end: int) -> int | None:
        """The first slot with a unit in `begin` .. `end`."""
        slot = begin
        end = min(end, begin + SLOTS)
        while slot < end:
            index = slot % SLOTS
            part = self._heads[index : min(index + _SCAN_SLOTS, index + end - slot, SLOTS)]
            used = int(np.argmax(part != 0))
            if part[used]:
                return slot + used
            slot += len(part)
        return None


def slot_of(time_ms: int) -> int:
    return time_ms // SLOT_MS


# --- wheel ---


class TimerWheel:
    """Use on the event loop only. Create it with `restore`, or with an empty log."""

    def __init__(self, log: TimerLog, delivered_ms: int) -> None:
        self.log = log
        self._slots = TimerSlots()
        self._cursor = slot_of(delivered_ms)
        self._used_from = self._cursor + SLOTS  # all slots before this one are empty: start of the next search
        self.pending = 0
        self.popped_at = NO_UNIT
        """The end of the log when the slot at the cursor was popped; NO_UNIT if it was not popped."""

    @classmethod
    def restore(
        cls,
        disk: Disk,
        directory: Path,
        log_end: int,
        delivered_ms: int,
        commit_log_end: int,
        file_bytes: int = FILE_BYTES,
        place: tuple[int, int] = (NO_UNIT, NO_UNIT),
    ) -> "TimerWheel":
        """Restores the state of the checkpoint. StoreError if the log does not match it.

        `place` is for a state within a slot (`TimerDrainer.place`).
        """
        log = TimerLog(disk, directory, file_bytes)
        try:
            log.set_end(log_end)
            wheel = cls(log, delivered_ms)
            wheel._load(commit_log_end)
            if place[0] != NO_UNIT:
                wheel._continue_slot(*place)
        except BaseException:
            log.close()
            raise
        return wheel

    def _load(self, commit_log_end: int) -> None:
        for position, units in self.log.scan():
            waiting = np.flatnonzero(units["wake_ms"] >= self._cursor * SLOT_MS)
            if not len(waiting):
                continue
            ends = units["physical"][waiting] + units["size"][waiting]
            if int(ends.max()) > commit_log_end:
                raise StoreCorrupt("the timer log points beyond the end of the commit log")
            slots = np.minimum(units["wake_ms"][waiting] // SLOT_MS, self._cursor + SLOTS - 1).astype(np.int64)
            self._slots.set_heads(slots, position + waiting * units.itemsize)
            self._used_from = min(self._used_from, int(slots.min()))
            self.pending += len(waiting)

    def _continue_slot(self, popped_at: int, rest: int) -> None:
        """The slot at the cursor was popped before, and `rest` is its newest unit that is not delivered.

        StoreCorrupt if the slot has other units than it had then.
        """
        position = self._slots.head(self._cursor)
        if position >= popped_at:
            raise StoreCorrupt("the timer log has new units of a slot that was being delivered")
        while position not in (rest, NO_UNIT):
            (unit,) = self.log.chain(position, 1)
            position = unit.previous
            self.pending -= 1
        if position != rest:
            raise StoreCorrupt(f"the timer log has no unit at {rest} in the slot that was being delivered")
        self._slots.set_head(self._cursor, rest)

    @property
    def delivered_ms(self) -> int:
        """All messages with an earlier wake-up time have left the wheel."""
        return self._cursor * SLOT_MS

    def add(self, wake_ms: int, physical_offset: int, size: int) -> None:
        """Adds a message for `wake_ms`. StoreFull, with nothing changed, if the log cannot be written.

        After the clock was set back, the slot may be before the cursor, which then moves back too: messages delivered
        in between are no longer in the wheel, and would be delivered again only after a crash. A time beyond the end
        of the ring goes into its last slot. The message is still not early, because its due time is checked again.
        """
        slot = min(slot_of(wake_ms), self._cursor + SLOTS - 1)
        unit = TimerUnit(self._slots.head(slot), wake_ms, physical_offset, size)
        self._slots.set_head(slot, self.log.append(unit))
        if slot <= self._cursor:
            self._cursor, self.popped_at = slot, NO_UNIT
        self._used_from = min(self._used_from, slot)
        self.pending += 1

    def pop_expired_slot(self, now_ms: int) -> int:
        """Empties the first expired slot and returns its newest unit; NO_UNIT if there is none."""
        end = slot_of(now_ms)
        slot = self._next_used(end)
        if slot is None:
            if end > self._cursor:
                self._cursor, self.popped_at = end, NO_UNIT
            return NO_UNIT
        self._cursor = slot
        self.popped_at = self.log.end
        return self._slots.pop(slot)

    def next_ms(self) -> int | None:
        """When the next used slot expires; None if the wheel is empty."""
        slot = self._next_used(self._cursor + SLOTS)
        return None if slot is None else (slot + 1) * SLOT_MS

    def _next_used(self, end: int) -> int | None:
        begin = max(self._used_from, self._cursor)
        slot = self._slots.next_used(begin, end)
        self._used_from = max(begin, min(end, begin + SLOTS)) if slot is None else slot
        return slot

    def chunk(self, position: int, count_max: int, bytes_max: int) -> list[TimerUnit]:
        """Units from `position` backwards: at most `count_max`, and at most `bytes_max` of records but at least one."""
        units = self.log.chain(position, count_max)
        return list(_limit_bytes(units, bytes_max))


def _limit_bytes(units: list[TimerUnit], bytes_max: int) -> Iterator[TimerUnit]:
    taken = 0
    for unit in units:
        taken += unit.size
        if taken > bytes_max and taken != unit.size:
            return
        yield unit
