"""The hash table of an index file checked in itself: every entry is reached from its slot, once.

An entry is reached when its slot, or one newer entry of that slot, names it. If each entry is named once, by something
of its own slot, and no entry names a newer one, then the chains are the slots' entries, newest first, and none turns
back: no chain has to be walked.
"""

import numpy as np
import numpy.typing as npt

from ariane.store.index_entries import Entries
from ariane.store.index_layout import HEADER_BYTES, SLOT_BYTES
from ariane.store.scan_index import IndexScan
from ariane.store.verify_report import Cure, Report

Ints = npt.NDArray[np.int32]


class ChainCheck:
    def __init__(self, report: Report, scan: IndexScan) -> None:
        self._report = report
        self._scan = scan
        self._slots = np.zeros(scan.end, np.int32)
        """The slot of each entry, by the entry's number."""
        self._named = np.zeros(scan.end, np.uint8)
        """How often each entry is named."""

    def check(self) -> None:
        for first, entries in self._scan.chunks():
            self._slots[first : first + len(entries)] = entries["hash"].astype(np.int32) % self._scan.slots
        for first, entries in self._scan.chunks():
            self._check_previous(first, entries)
        values = self._scan.slot_values()
        self._check_values(values)
        self._check_named()
        self._check_count(values)

    def _check_previous(self, first: int, entries: Entries) -> None:
        numbers = np.arange(first, first + len(entries))
        previous = entries["previous"].astype(np.int64)
        is_older = (previous >= 0) & (previous < numbers)
        fits = is_older & (self._slots[np.where(is_older, previous, 0)] == self._slots[numbers]) | (previous == 0)
        for at in np.flatnonzero(~fits).tolist():
            self._entry_fault(first + at, f"it names {previous[at]} as its slot's entry before it")
        self._name(previous[fits])

    def _check_values(self, values: Ints) -> None:
        is_number = (values >= 0) & (values < self._scan.end)
        fits = is_number & (self._slots[np.where(is_number, values, 0)] == np.arange(len(values))) | (values == 0)
        for slot in np.flatnonzero(~fits).tolist():
            position = HEADER_BYTES + slot * SLOT_BYTES
            self._fault(position, f"slot {slot} names {values[slot]}, which is no entry of this slot")
        self._name(values[fits].astype(np.int64))

    def _name(self, numbers: npt.NDArray[np.int64]) -> None:
        np.add.at(self._named, numbers[numbers > 0], 1)

    def _check_named(self) -> None:
        for number in (np.flatnonzero(self._named[1:] != 1) + 1).tolist():
            times = int(self._named[number])
            self._entry_fault(number, "no chain leads to it" if not times else f"{times} chains lead to it")

    def _check_count(self, values: Ints) -> None:
        """Older releases of Apache count every entry here, not every slot."""
        count = self._scan.header.slot_count
        used = int(np.count_nonzero(values))
        if count not in (used, self._scan.end - 1):
            self._fault(32, f"the header counts {count} slots in use, {used} are")

    def _entry_fault(self, number: int, what: str) -> None:
        self._fault(self._scan.position(number), f"entry {number}: {what}")

    def _fault(self, position: int, what: str) -> None:
        self._report.fault(self._scan.path, position, what, Cure.INDEX)
