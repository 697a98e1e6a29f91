"""Verifies the index: the hash table of each file in itself, then its entries against the records of the log.

`ChainCheck`: an entry is reachable when its slot, or one newer entry of that slot, links to it. If each entry is linked
once, from its own slot, and no entry links to a newer one, then the chains are the slots' entries, newest first, and
none has a cycle: no chain has to be followed.

`IndexFileCheck`: every entry leads to a record that has a key of that hash.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ariane.errors import StoreMismatch
from ariane.store.commit_log.scan import DataFile, first_nonzero
from ariane.store.disk import Disk
from ariane.store.index.entries import HEADER_BYTES, SECOND_MS, SLOT_BYTES, Entries, seconds_since
from ariane.store.index.scan import ENTRIES_AT_ONCE, IndexScan, list_index, open_index
from ariane.store.layout import Layout
from ariane.store.offline.verify_log import FactColumns, Longs
from ariane.store.offline.verify_report import Fix, Report

Ints = npt.NDArray[np.int32]


class ChainCheck:
    def __init__(self, report: Report, scan: IndexScan) -> None:
        self._report = report
        self._scan = scan
        self._slots = np.zeros(scan.end, np.int32)
        """The slot of each entry, by the entry's number."""
        self._named = np.zeros(scan.end, np.uint8)
        """Number of links to each entry."""

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
        self._report.fault(self._scan.path, position, what, Fix.INDEX)


# --- entries against the log ---

_HASH_BITS = 31

Flags = npt.NDArray[np.bool_]


def record_keys(columns: FactColumns) -> Longs:
    """One sorted number per distinct key of each record: the record's row and the key's hash."""
    record_key_ids: Longs = np.sort((columns.key_records << _HASH_BITS) | columns.key_hashes)
    is_new: Flags = np.diff(record_key_ids, prepend=-1) != 0
    return record_key_ids[is_new]


def positions_of(record_key_ids: Longs, among: Longs) -> tuple[Longs, Flags]:
    """The position of each number in the sorted array `among`, and whether it is there."""
    positions = np.searchsorted(among, record_key_ids)
    is_there = positions < len(among)
    is_there[is_there] = among[positions[is_there]] == record_key_ids[is_there]
    return positions, is_there


@dataclass(slots=True)
class IndexFileCheck:
    report: Report
    scan: IndexScan
    end_before_ms: int | None
    """End time of the previous file, from which the first entry counts its seconds; None without one."""
    _chunks: list[tuple[int, int, int]] = field(default_factory=list)
    """Number of the first entry, lowest and highest physical offset of each chunk: which log files it refers to."""
    _ahead: list[tuple[int, int]] = field(default_factory=list)
    """Entries after the last record of a log file: whether the log continues is not known yet."""

    def survey(self) -> None:
        """Checks the file by itself."""
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
        self._check_behind_last_entry()

    def _check_offset(self, name: str, position: int, stored: int, number: int) -> None:
        actual = int(self.scan.entries(number, 1)[0]["physical"])
        if stored != actual:
            self._fault(position, f"the header's {name} offset is {stored}, that of entry {number} is {actual}")

    def _check_behind_last_entry(self) -> None:
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

    def compare(self, file: DataFile, columns: FactColumns, record_key_ids: Longs, is_found: Flags) -> None:
        """Checks the entries of records in one log file, whose keys are `record_key_ids`; marks those it has."""
        for first, lowest, highest in self._chunks:
            if lowest < file.end and highest >= file.base:
                self._compare_chunk(first, file, columns, record_key_ids, is_found)

    def _compare_chunk(
        self, first: int, file: DataFile, columns: FactColumns, record_key_ids: Longs, is_found: Flags
    ) -> None:
        entries = self.scan.entries(first, min(ENTRIES_AT_ONCE, self.scan.end - first))
        inside = np.flatnonzero((entries["physical"] >= file.base) & (entries["physical"] < file.end))
        numbers, entries = inside + first, entries[inside]
        rows, is_record = positions_of(entries["physical"].astype(np.int64), columns.offsets)
        self._sort_strays(numbers[~is_record], entries[~is_record], columns)
        numbers, entries, rows = numbers[is_record], entries[is_record], rows[is_record]
        positions, has_key = positions_of((rows << _HASH_BITS) | entries["hash"].astype(np.int64), record_key_ids)
        is_found[positions[has_key]] = True
        for number, entry in zip(numbers[~has_key].tolist(), entries[~has_key], strict=True):
            self._entry_fault(number, f"the record at {entry['physical']} has no key of hash {entry['hash']}")
        self._check_times(numbers[has_key], entries[has_key], columns.store_times_ms[rows[has_key]])

    def _sort_strays(self, numbers: Longs, entries: Entries, columns: FactColumns) -> None:
        last_end = int(columns.offsets[-1] + columns.sizes[-1]) if len(columns.offsets) else 0
        for number, physical in zip(numbers.tolist(), entries["physical"].tolist(), strict=True):
            if physical >= last_end:
                self._ahead.append((number, physical))
            else:
                self._entry_fault(number, f"no whole record begins at {physical}")

    def _check_times(self, numbers: Longs, entries: Entries, times_ms: Longs) -> None:
        header = self.scan.header
        expected = seconds_since(header.begin_timestamp_ms, times_ms)
        differs = entries["seconds"] != expected
        if len(numbers) and numbers[0] == 1:
            self._check_time("begin", 0, header.begin_timestamp_ms, int(times_ms[0]))
            differs[0] &= entries["seconds"][0] != seconds_since(self.end_before_ms or 0, times_ms[:1])[0]
        if len(numbers) and numbers[-1] == self.scan.end - 1:
            self._check_end_time(int(times_ms[-1]), int(expected[-1]))
        for at in np.flatnonzero(differs).tolist():
            self._entry_fault(
                int(numbers[at]), f"{entries['seconds'][at]} seconds, its record was stored after {expected[at]}"
            )

    def _check_end_time(self, actual_ms: int, seconds: int) -> None:
        """A file truncated after a crash ends with the second of its last entry: entries store whole seconds."""
        header = self.scan.header
        if header.end_timestamp_ms != header.begin_timestamp_ms + seconds * SECOND_MS + SECOND_MS - 1:
            self._check_time("end", 8, header.end_timestamp_ms, actual_ms)

    def _check_time(self, name: str, position: int, stored_ms: int, actual_ms: int) -> None:
        if stored_ms != actual_ms:
            self._fault(position, f"the header's {name} time is {stored_ms}, that of its record is {actual_ms}")

    def finish(self, files_end: int, log_end: int) -> None:
        """Checks entries that lead to no log file, or beyond the last record."""
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
            what = f"{len(behind_end)} entries lead beyond the end of the log at {log_end}"
            self.report.lagging(self.scan.path, self.scan.position(behind_end[0]), what, Fix.INDEX)

    def _entry_fault(self, number: int, what: str) -> None:
        self._fault(self.scan.position(number), f"entry {number}: {what}")

    def _fault(self, position: int, what: str) -> None:
        self.report.fault(self.scan.path, position, what, Fix.INDEX)


# --- the whole index ---


@dataclass(slots=True)
class IndexCheck:
    report: Report
    disk: Disk
    layout: Layout
    slots: int | None = None
    checks: list[IndexFileCheck] = field(default_factory=list)
    _keys: int = 0
    _found: int = 0

    def survey(self) -> None:
        """Opens every file, and checks each by itself."""
        paths = list_index(self.disk, self.layout.index)
        scans = [scan for path in paths if (scan := self._open(path)) is not None]
        end_before_ms: int | None = None
        # By offset and not by name: when summer time ends, local time repeats an hour.
        for scan in sorted(scans, key=lambda scan: (scan.header.begin_physical, scan.path.name)):
            self._add(IndexFileCheck(self.report, scan, end_before_ms))
            end_before_ms = scan.header.end_timestamp_ms
        summary = self.report.summary
        summary.index_files = len(paths)
        summary.index_entries = sum(check.scan.end - 1 for check in self.checks)

    def _open(self, path: Path) -> IndexScan | None:
        try:
            return open_index(self.disk, path, self.slots)
        except StoreMismatch as error:
            self.report.lagging(path, 0, str(error), Fix.INDEX)
        except OSError as error:
            self.report.fault(path, 0, f"it cannot be read: {error.strerror}", Fix.INDEX)
        return None

    def _add(self, check: IndexFileCheck) -> None:
        try:
            check.survey()
            self.checks.append(check)
        except OSError as error:
            self.report.fault(check.scan.path, 0, f"it cannot be read: {error.strerror}", Fix.INDEX)

    def compare(self, file: DataFile, columns: FactColumns) -> None:
        """Compares the index with the keys of the records of one log file."""
        record_key_ids = record_keys(columns)
        is_found = np.zeros(len(record_key_ids), np.bool_)
        for check in self.checks:
            check.compare(file, columns, record_key_ids, is_found)
        self._keys += len(record_key_ids)
        self._found += int(is_found.sum())

    def finish(self, files_end: int, log_end: int) -> None:
        for check in self.checks:
            check.finish(files_end, log_end)
        if self._found < self._keys:
            # In a crash Apache loses the keys of whole index files, so this alone does not mean damage.
            missing = self._keys - self._found
            self.report.note(f"{missing} of {self._keys} keys in the log are in no index file; rebuild it to find them")
