"""The timer's one table: for each tenth of a second of the next three days, the newest unit that waits for it.

It is a ring of fixed size, so ten million waiting messages take as much memory as none: at most 21 MB, of which the
kernel hands out only the pages that are touched. It is rebuilt from the log of units at every start.

            cursor: all before it is delivered               cursor + SLOTS
    ────────────┼──────────────────────────────────────────────────┼────────▶ time
"""

import numpy as np
import numpy.typing as npt

from ariane.broker.schedule.timer_unit import NO_UNIT

SLOT_MS = 100
"""How late a message may be without load. A slot is delivered when it is over, so nothing is early."""
SLOTS = 3 * 86_400_000 // SLOT_MS
_LOOK = 1 << 16


class TimerSlots:
    """Slots are counted from 1970. One that is asked for lies in `cursor` .. `cursor + SLOTS`."""

    def __init__(self) -> None:
        self._heads = np.zeros(SLOTS, dtype=np.int64)  # position + 1; 0 is an empty slot

    def head(self, slot: int) -> int:
        """The position of the slot's newest unit, NO_UNIT when there is none."""
        return int(self._heads[slot % SLOTS]) - 1

    def set_head(self, slot: int, position: int) -> None:
        self._heads[slot % SLOTS] = position + 1

    def take(self, slot: int) -> int:
        """The slot's newest unit; the slot is empty then."""
        position = self.head(slot)
        self.set_head(slot, NO_UNIT)
        return position

    def set_heads(self, slots: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> None:
        """Many at once, in the order of the log: of those for one slot the last one stays."""
        self._heads[slots % SLOTS] = positions + 1

    def next_used(self, begin: int, end: int) -> int | None:
        """The first slot with a unit in `begin` .. `end`."""
        slot = begin
        end = min(end, begin + SLOTS)
        while slot < end:
            index = slot % SLOTS
            part = self._heads[index : min(index + _LOOK, index + end - slot, SLOTS)]
            used = int(np.argmax(part != 0))
            if part[used]:
                return slot + used
            slot += len(part)
        return None


def slot_of(time_ms: int) -> int:
    return time_ms // SLOT_MS
