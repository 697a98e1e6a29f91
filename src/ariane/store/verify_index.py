"""The index checked against the log, file by file of both."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ariane.errors import StoreMismatch
from ariane.store.disk import Disk
from ariane.store.layout import Layout
from ariane.store.scan import DataFile
from ariane.store.scan_index import IndexScan, list_index, open_index
from ariane.store.verify_facts import FactColumns
from ariane.store.verify_index_file import IndexFileCheck, key_marks
from ariane.store.verify_report import Cure, Report


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
        # By offset and not by name: local time repeats an hour when summer time ends.
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
            self.report.unfinished(path, 0, str(error), Cure.INDEX)
        except OSError as error:
            self.report.fault(path, 0, f"it cannot be read: {error.strerror}", Cure.INDEX)
        return None

    def _add(self, check: IndexFileCheck) -> None:
        try:
            check.survey()
            self.checks.append(check)
        except OSError as error:
            self.report.fault(check.scan.path, 0, f"it cannot be read: {error.strerror}", Cure.INDEX)

    def compare(self, file: DataFile, columns: FactColumns) -> None:
        """The keys of the records of one log file."""
        marks = key_marks(columns)
        is_found = np.zeros(len(marks), np.bool_)
        for check in self.checks:
            check.compare(file, columns, marks, is_found)
        self._keys += len(marks)
        self._found += int(is_found.sum())

    def finish(self, files_end: int, log_end: int) -> None:
        for check in self.checks:
            check.finish(files_end, log_end)
        if self._found < self._keys:
            # Apache loses keys of whole index files in a crash, so this alone is no sign of damage.
            missing = self._keys - self._found
            self.report.note(f"{missing} of {self._keys} keys in the log are in no index file; rebuild it to find them")
