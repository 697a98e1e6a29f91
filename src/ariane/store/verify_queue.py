"""One consume queue checked against the records of the log that belong to it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ariane.errors import StoreError
from ariane.store.queue_entry import ENTRY_BYTES, extension_offset
from ariane.store.queue_extension import QueueExtension
from ariane.store.scan_queue import Entries, QueueScan
from ariane.store.verify_facts import FactColumns, Longs
from ariane.store.verify_files import check_names, check_run
from ariane.store.verify_report import Cure, Report

DIFFERENCES_KEPT = 100
_INT_MIN = -(2**31)

Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class QueueCheck:
    report: Report
    scan: QueueScan
    extension: QueueExtension
    end: int = 0
    """The number behind the last entry that is written."""
    last_end: int = 0
    """The end of the record that the last entry points to."""
    matched: list[range] = field(default_factory=list)
    """Entries that are what their records want them to be."""
    superseded: int = 0
    """Records of an earlier queue of this name: the topic was deleted and made again."""
    _records: int = 0
    _differences: list[tuple[int, str]] = field(default_factory=list)
    _different: int = 0
    _missing: int = 0
    _first_missing: int = 0

    def survey(self) -> None:
        """Checks the files and finds the end of the entries."""
        scan = self.scan
        check_run(self.report, scan.files, unit_bytes=ENTRY_BYTES)
        check_names(self.report, scan.disk, scan.directory, scan.files)
        self.end = scan.first + scan.count()
        if self.end > scan.first:
            last = scan.read(self.end - 1, 1)[0]
            self.last_end = int(last["offset"]) + int(last["size"])
        leftover = scan.leftover(self.end)
        if leftover is not None:
            file, position = leftover
            self.report.unfinished(file.path, position, "bytes after the last entry that are not zero", Cure.QUEUES)

    def compare(self, columns: FactColumns, rows: Longs) -> None:
        """`rows` are the records of this queue in one log file, in the order of the log."""
        queue_offsets = columns.queue_offsets[rows]
        for run in consecutive(queue_offsets):
            self._compare_run(columns, rows[run], int(queue_offsets[run][0]))

    def _compare_run(self, columns: FactColumns, rows: Longs, first: int) -> None:
        if first == 0 and self._records:
            self._restart()
        self._records += len(rows)
        entries = self.scan.read(first, min(len(rows), self.end - first))
        self._compare_entries(columns, rows[: len(entries)], first, entries)
        if len(entries) < len(rows):
            self._first_missing = self._first_missing or int(columns.offsets[rows[len(entries)]])
            self._missing += len(rows) - len(entries)

    def _restart(self) -> None:
        """Offsets begin at 0 again: what came before was deleted, and its entries with it."""
        self.superseded, self._records = self.superseded + self._records, 0
        self._differences.clear()
        self._different = self._missing = self._first_missing = 0

    def _compare_entries(self, columns: FactColumns, rows: Longs, first: int, entries: Entries) -> None:
        same = (
            (entries["offset"] == columns.offsets[rows])
            & (entries["size"] == columns.sizes[rows])
            & self._tags_fit(columns, rows, entries["tags"].astype(np.int64))
        )
        for run in consecutive(np.flatnonzero(same)):
            start = int(np.flatnonzero(same)[run][0])
            self._match(range(first + start, first + start + run.stop - run.start))
        self._different += int(len(rows) - same.sum())
        for at in np.flatnonzero(~same)[: DIFFERENCES_KEPT - len(self._differences)].tolist():
            self._differences.append((first + at, _difference(columns, int(rows[at]), entries[at])))

    def _tags_fit(self, columns: FactColumns, rows: Longs, tags: Longs) -> Flags:
        """A delay is some whole seconds, whatever the levels were: a delivery time is the store time plus those."""
        wanted = columns.tags_codes[rows]
        delays_ms = tags - columns.store_times_ms[rows]
        fits: Flags = (tags == wanted) | (columns.is_delayed[rows] & (delays_ms >= 0) & (delays_ms % 1000 == 0))
        for at in np.flatnonzero(~fits & (tags < _INT_MIN)).tolist():
            fits[at] = self._extended_tags(int(tags[at])) == wanted[at]
        return fits

    def _extended_tags(self, tags: int) -> int | None:
        """The tags code of the unit that an entry names in its place, None when there is none."""
        address = extension_offset(tags)
        try:
            return None if address is None else self.extension.unit(address).tags_code
        except StoreError:
            return None

    def _match(self, numbers: range) -> None:
        if self.matched and self.matched[-1].stop == numbers.start:
            numbers = range(self.matched.pop().start, numbers.stop)
        self.matched.append(numbers)

    def unmatched(self) -> Iterator[range]:
        """The entries that no record asked for."""
        position = self.scan.first
        for numbers in sorted(self.matched, key=lambda numbers: numbers.start):
            if numbers.start > position:
                yield range(position, numbers.start)
            position = max(position, numbers.stop)
        if position < self.end:
            yield range(position, self.end)

    def has_match_before(self, number: int) -> bool:
        return any(numbers.start < number for numbers in self.matched)

    def fault(self, number: int, what: str) -> None:
        """At the place of an entry."""
        place = self.scan.find(number)
        path, position = (place[0].path, place[1]) if place is not None else (self.scan.directory, 0)
        self.report.fault(path, position, f"entry {number}: {what}", Cure.QUEUES)

    def tell_differences(self, *, is_deleted: bool) -> None:
        for number, what in self._differences:
            self.fault(number, what)
        if self._different > len(self._differences):
            rest = self._different - len(self._differences)
            self.fault(self._differences[-1][0], f"{rest} more entries differ from their records")
        if self.superseded:
            self.report.note(f"{self._name}: {self.superseded} records are of a queue that was deleted and made again")
        if self._missing and is_deleted and not self.scan.files:
            self.report.note(f"{self._name}: its topic was deleted, {self._missing} records of it are still in the log")
        elif self._missing:
            self._tell_missing()

    @property
    def _name(self) -> str:
        return self.report.name(self.scan.directory)

    def _tell_missing(self) -> None:
        place = self.scan.find(self.end)
        path, position = (place[0].path, place[1]) if place is not None else (self.scan.directory, 0)
        what = f"{self._missing} records are not in the queue, the first of them is at {self._first_missing}"
        self.report.unfinished(path, position, what, Cure.QUEUES)


def consecutive(numbers: Longs) -> Iterator[slice]:
    """The slices in which each number is one more than the one before it."""
    if len(numbers):
        cuts = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        yield from map(slice, cuts, cuts[1:])


def _difference(columns: FactColumns, row: int, entry: np.void) -> str:
    has = (int(entry["offset"]), int(entry["size"]), int(entry["tags"]))
    wants = (int(columns.offsets[row]), int(columns.sizes[row]), int(columns.tags_codes[row]))
    third = "a delivery time" if columns.is_delayed[row] else f"tags code {wants[2]}"
    return f"offset {has[0]}, size {has[1]}, tags code {has[2]}; its record has {wants[0]}, {wants[1]}, {third}"
