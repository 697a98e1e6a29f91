"""One index file checked against the log: every entry leads to a record that has a key of that hash."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ariane.store.index_entries import Entries, seconds_since
from ariane.store.index_header import SECOND_MS
from ariane.store.scan import DataFile, first_nonzero
from ariane.store.scan_index import ENTRIES_AT_ONCE, IndexScan
from ariane.store.verify_facts import FactColumns, Longs
from ariane.store.verify_index_chains import ChainCheck
from ariane.store.verify_report import Cure, Report

_HASH_BITS = 31

Flags = npt.NDArray[np.bool_]


def key_marks(columns: FactColumns) -> Longs:
    """One number for each different key of each record, in order: the record's row and the key's hash."""
    marks: Longs = np.sort((columns.key_records << _HASH_BITS) | columns.key_hashes)
    is_new: Flags = np.diff(marks, prepend=-1) != 0
    return marks[is_new]


def places_of(marks: Longs, among: Longs) -> tuple[Longs, Flags]:
    """Where each number stands among those, which are in order, and whether it does."""
    places = np.searchsorted(among, marks)
    is_there = places < len(among)
    is_there[is_there] = among[places[is_there]] == marks[is_there]
    return places, is_there


@dataclass(slots=True)
class IndexFileCheck:
    report: Report
    scan: IndexScan
    end_before_ms: int | None
    """The end of the file before, from which the first entry counts its seconds; None when there is none."""
    _chunks: list[tuple[int, int, int]] = field(default_factory=list)
    """Number of the first entry, lowest and highest physical offset: which of the log's files a chunk speaks of."""
    _ahead: list[tuple[int, int]] = field(default_factory=list)
    """Entries behind the last record of a log file: whether the log goes on is not known yet."""

    def survey(self) -> None:
        """What the file says by itself."""
        header = self.scan.header
        if not 0 <= header.entry_count <= self.scan.capacity:
            self._fault(36, f"the header counts {header.entry_count} entries, {self.scan.capacity} fit the file")
        ChainCheck(self.report, self.scan).check()
        for first, entries in self.scan.chunks():
            physical = entries["physical"]
            self._chunks.append((first, int(physical.min()), int(physical.max())))
        if self.scan.end > 1:
            self._check_offset("begin", 16, header.begin_physical, 1)
            self._check_offset("end", 24, header.end_physical, self.scan.end - 1)
        self._look_behind()

    def _check_offset(self, name: str, position: int, told: int, number: int) -> None:
        found = int(self.scan.entries(number, 1)[0]["physical"])
        if told != found:
            self._fault(position, f"the header's {name} offset is {told}, that of entry {number} is {found}")

    def _look_behind(self) -> None:
        """Entries are written before the header counts them, so a crash leaves some. Nothing reads them."""
        handle = self.scan.disk.open(self.scan.path, writable=False)
        try:
            position = first_nonzero(handle, self.scan.position(self.scan.end), self.scan.size)
        finally:
            handle.close()
        if position is not None:
            name = self.report.name(self.scan.path)
            self.report.note(
                f"{name}, byte {position}: bytes behind the last entry that are not zero; nothing reads them"
            )

    def compare(self, file: DataFile, columns: FactColumns, marks: Longs, is_found: Flags) -> None:
        """Checks the entries that lead into one log file, whose keys are `marks`; notes which of them it has."""
        for first, lowest, highest in self._chunks:
            if lowest < file.end and highest >= file.base:
                self._compare_chunk(first, file, columns, marks, is_found)

    def _compare_chunk(self, first: int, file: DataFile, columns: FactColumns, marks: Longs, is_found: Flags) -> None:
        entries = self.scan.entries(first, min(ENTRIES_AT_ONCE, self.scan.end - first))
        inside = np.flatnonzero((entries["physical"] >= file.base) & (entries["physical"] < file.end))
        numbers, entries = inside + first, entries[inside]
        rows, is_record = places_of(entries["physical"].astype(np.int64), columns.offsets)
        self._take_strays(numbers[~is_record], entries[~is_record], columns)
        numbers, entries, rows = numbers[is_record], entries[is_record], rows[is_record]
        places, has_key = places_of((rows << _HASH_BITS) | entries["hash"].astype(np.int64), marks)
        is_found[places[has_key]] = True
        for number, entry in zip(numbers[~has_key].tolist(), entries[~has_key], strict=True):
            self._entry_fault(number, f"the record at {entry['physical']} has no key of hash {entry['hash']}")
        self._check_times(numbers[has_key], entries[has_key], columns.store_times_ms[rows[has_key]])

    def _take_strays(self, numbers: Longs, entries: Entries, columns: FactColumns) -> None:
        last_end = int(columns.offsets[-1] + columns.sizes[-1]) if len(columns.offsets) else 0
        for number, physical in zip(numbers.tolist(), entries["physical"].tolist(), strict=True):
            if physical >= last_end:
                self._ahead.append((number, physical))
            else:
                self._entry_fault(number, f"no whole record begins at {physical}")

    def _check_times(self, numbers: Longs, entries: Entries, times_ms: Longs) -> None:
        header = self.scan.header
        wanted = seconds_since(header.begin_timestamp_ms, times_ms)
        differs = entries["seconds"] != wanted
        if len(numbers) and numbers[0] == 1:
            self._check_time("begin", 0, header.begin_timestamp_ms, int(times_ms[0]))
            differs[0] &= entries["seconds"][0] != seconds_since(self.end_before_ms or 0, times_ms[:1])[0]
        if len(numbers) and numbers[-1] == self.scan.end - 1:
            self._check_end_time(int(times_ms[-1]), int(wanted[-1]))
        for at in np.flatnonzero(differs).tolist():
            self._entry_fault(int(numbers[at]), f"{entries['seconds'][at]} seconds, its record is {wanted[at]} late")

    def _check_end_time(self, found_ms: int, seconds: int) -> None:
        """A file that was cut after a crash ends with the second of its last entry: nothing finer was there to read."""
        header = self.scan.header
        if header.end_timestamp_ms != header.begin_timestamp_ms + seconds * SECOND_MS + SECOND_MS - 1:
            self._check_time("end", 8, header.end_timestamp_ms, found_ms)

    def _check_time(self, name: str, position: int, told_ms: int, found_ms: int) -> None:
        if told_ms != found_ms:
            self._fault(position, f"the header's {name} time is {told_ms}, that of its record is {found_ms}")

    def finish(self, files_end: int, log_end: int) -> None:
        """Judges what leads to no file, or behind the last record."""
        for first, lowest, highest in self._chunks:
            if lowest < 0 or highest >= files_end:
                physical = self.scan.entries(first, min(ENTRIES_AT_ONCE, self.scan.end - first))["physical"]
                outside = np.flatnonzero((physical < 0) | (physical >= files_end))
                self._ahead.extend((first + at, int(physical[at])) for at in outside.tolist())
        for number, offset in self._ahead:
            if offset < log_end:
                self._entry_fault(number, f"no whole record begins at {offset}")
        behind_end = [number for number, offset in self._ahead if offset >= log_end]
        if behind_end:
            what = f"{len(behind_end)} entries lead behind the end of the log at {log_end}"
            self.report.unfinished(self.scan.path, self.scan.position(behind_end[0]), what, Cure.INDEX)

    def _entry_fault(self, number: int, what: str) -> None:
        self._fault(self.scan.position(number), f"entry {number}: {what}")

    def _fault(self, position: int, what: str) -> None:
        self.report.fault(self.scan.path, position, what, Cure.INDEX)
