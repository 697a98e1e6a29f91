"""Verifies consume queues against the log, both ways: every record has its entry, and every entry has its record.

The log is scanned file by file. In each file, the records of one queue have consecutive queue offsets, so their entries
are one slice of the queue: it is read and compared as a whole, and only differences are examined one by one. At the
end, an entry that was not compared with any record is an entry without a record.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from ariane.errors import StoreError
from ariane.model.ids import topic_name_problem
from ariane.store.commit_log.scan import DataFile, record_at
from ariane.store.config.deletions import Deletions
from ariane.store.consume_queue.entry import ENTRY_BYTES, QueueExtension, extension_offset
from ariane.store.consume_queue.scan import Entries, QueueScan, is_filler, list_queues, queue_at
from ariane.store.disk import Disk
from ariane.store.dispatch import is_queued
from ariane.store.layout import Layout
from ariane.store.offline.verify_log import NOT_QUEUED, FactColumns, Longs, Queue
from ariane.store.offline.verify_report import Fix, Report, check_file_sequence, check_names
from ariane.wire.record.read import RecordView

DIFFERENCES_KEPT = 100
_INT_MIN = -(2**31)

Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class QueueCheck:
    report: Report
    scan: QueueScan
    extension: QueueExtension
    end: int = 0
    """The number after the last written entry."""
    last_end: int = 0
    """End of the record that the last entry points to."""
    matched: list[range] = field(default_factory=list)
    """Numbers of the entries that agree with their records."""
    deleted_to: int = 0
    """Records below this physical offset were deleted with their topic (store/config/deletions.py)."""
    deleted: int = 0
    superseded: int = 0
    """Records of an earlier queue of this name: the topic was deleted and created again."""
    _records: int = 0
    _differences: list[tuple[int, str]] = field(default_factory=list)
    _different: int = 0
    _missing: int = 0
    _first_missing: int = 0

    def survey(self) -> None:
        """Checks the files and finds the end of the entries."""
        scan = self.scan
        check_file_sequence(self.report, scan.files, unit_bytes=ENTRY_BYTES)
        check_names(self.report, scan.disk, scan.directory, scan.files)
        self.end = scan.first + scan.count()
        if self.end > scan.first:
            last = scan.read(self.end - 1, 1)[0]
            self.last_end = int(last["offset"]) + int(last["size"])
        leftover = scan.leftover(self.end)
        if leftover is not None:
            file, position = leftover
            self.report.lagging(file.path, position, "bytes after the last entry that are not zero", Fix.QUEUES)

    def compare(self, columns: FactColumns, rows: Longs) -> None:
        """`rows` are the records of this queue in one log file, in the order of the log."""
        if self.deleted_to:
            is_kept = columns.offsets[rows] >= self.deleted_to
            self.deleted += int(len(rows) - is_kept.sum())
            rows = rows[is_kept]
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
        """Offsets begin at 0 again: the earlier queue was deleted with its entries."""
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
        """A delivery time is the store time plus whole seconds, whatever the delay levels were."""
        expected = columns.tags_codes[rows]
        delays_ms = tags - columns.store_times_ms[rows]
        fits: Flags = (tags == expected) | (columns.is_delayed[rows] & (delays_ms >= 0) & (delays_ms % 1000 == 0))
        for at in np.flatnonzero(~fits & (tags < _INT_MIN)).tolist():
            fits[at] = self._extended_tags(int(tags[at])) == expected[at]
        return fits

    def _extended_tags(self, tags: int) -> int | None:
        """The tags code of the extension unit that an entry refers to, None when there is none."""
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
        """The entries without a record."""
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
        self.report.fault(path, position, f"entry {number}: {what}", Fix.QUEUES)

    def report_differences(self, *, is_deleted: bool) -> None:
        for number, what in self._differences:
            self.fault(number, what)
        if self._different > len(self._differences):
            rest = self._different - len(self._differences)
            self.fault(self._differences[-1][0], f"{rest} more entries differ from their records")
        if self.deleted:
            self.report.note(f"{self._name}: {self.deleted} records in the log are of a topic that was deleted")
        if self.superseded:
            self.report.note(
                f"{self._name}: {self.superseded} records are of a queue that was deleted and created again"
            )
        if self._missing and is_deleted and not self.scan.files:
            self.report.note(f"{self._name}: its topic was deleted, {self._missing} records of it are still in the log")
        elif self._missing:
            self._report_missing()

    @property
    def _name(self) -> str:
        return self.report.name(self.scan.directory)

    def _report_missing(self) -> None:
        place = self.scan.find(self.end)
        path, position = (place[0].path, place[1]) if place is not None else (self.scan.directory, 0)
        what = f"{self._missing} records are not in the queue, the first of them is at {self._first_missing}"
        self.report.lagging(path, position, what, Fix.QUEUES)


def consecutive(numbers: Longs) -> Iterator[slice]:
    """The slices in which each number is one more than the one before it."""
    if len(numbers):
        bounds = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        yield from map(slice, bounds, bounds[1:])


def _difference(columns: FactColumns, row: int, entry: np.void) -> str:
    actual = (int(entry["offset"]), int(entry["size"]), int(entry["tags"]))
    expected = (int(columns.offsets[row]), int(columns.sizes[row]), int(columns.tags_codes[row]))
    third = "a delivery time" if columns.is_delayed[row] else f"tags code {expected[2]}"
    return (
        f"offset {actual[0]}, size {actual[1]}, tags code {actual[2]}; "
        f"its record has {expected[0]}, {expected[1]}, {third}"
    )


# --- all queues ---

_READ_AT_ONCE = 65536


@dataclass(slots=True)
class QueuesCheck:
    report: Report
    disk: Disk
    layout: Layout
    log_files: Sequence[DataFile]
    deletions: Deletions
    checks: dict[Queue, QueueCheck] = field(default_factory=dict)

    def survey(self) -> None:
        """Finds every queue and its end."""
        for scan in list_queues(self.disk, self.layout.consume_queues):
            check = self._add(scan)
            self._guarded(check, check.survey)

    def _add(self, scan: QueueScan) -> QueueCheck:
        below = scan.directory.relative_to(self.layout.consume_queues)
        extension = QueueExtension(self.disk, self.layout.consume_queue_extensions / below)
        check = QueueCheck(self.report, scan, extension, deleted_to=self.deletions.end_of(scan.topic))
        self.checks[scan.topic, scan.queue_id] = check
        return check

    def _guarded(self, check: QueueCheck, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            self.report.fault(check.scan.directory, 0, f"it cannot be read: {error.strerror}", Fix.QUEUES)

    def dispatched_to(self, limit: int) -> int:
        """End of the last record that a queue points to; an entry beyond `limit` is reported separately."""
        return max((check.last_end for check in self.checks.values() if check.last_end <= limit), default=0)

    def compare(self, columns: FactColumns) -> None:
        """Compares the queues with the records of one log file, in order."""
        order = np.argsort(columns.queues, kind="stable")
        numbers, starts = np.unique(columns.queues[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, starts)[1:], strict=True):
            if number != NOT_QUEUED:
                check = self._check_of(columns.queue_names[number])
                self._guarded(check, partial(check.compare, columns, rows))

    def _check_of(self, queue: Queue) -> QueueCheck:
        if queue not in self.checks:
            topic, queue_id = queue
            # An invalid directory name must not become a path; Apache also allows "|".
            directory = self.layout.queue("" if topic_name_problem(topic.replace("|", "_")) else topic, queue_id)
            self._add(queue_at(self.disk, directory, topic, queue_id))
        return self.checks[queue]

    def finish(self, log_begin: int, log_end: int, topics: frozenset[str] | None) -> None:
        """`topics` are the known ones; None when nothing is known of them."""
        for check in self.checks.values():
            check.report_differences(is_deleted=topics is not None and check.scan.topic not in topics)
            self._guarded(check, partial(self._report_unmatched, check, log_begin, log_end))
        present = [check for check in self.checks.values() if check.scan.files]
        summary = self.report.summary
        summary.queues = len(present)
        summary.topics = len({check.scan.topic for check in present})
        summary.queue_entries = sum(sum(map(len, check.matched)) for check in present)

    def _report_unmatched(self, check: QueueCheck, log_begin: int, log_end: int) -> None:
        """The first entries may point to records that retention has removed; all others must have a record."""
        reported = ahead = deleted = 0
        for first, entries in _unmatched_chunks(check):
            is_gone = is_filler(entries) | (entries["offset"] < log_begin)
            if check.deleted_to:
                is_deleted = (entries["offset"] < check.deleted_to) & ~is_gone
                deleted += int(is_deleted.sum())
                is_gone |= is_deleted
            is_ahead = entries["offset"] >= log_end
            ahead += int(is_ahead.sum())
            suspects = np.flatnonzero(~is_ahead if check.has_match_before(first) else ~is_ahead & ~is_gone)
            for at in suspects[: DIFFERENCES_KEPT - reported].tolist():
                reported += self._report_entry(check, first + at, entries[at])
        if deleted:
            self.report.note(
                f"{self.report.name(check.scan.directory)}: {deleted} entries are of a topic that was deleted; "
                "the next start removes them"
            )
        if ahead:
            what = f"{ahead} entries point beyond the end of the log at {log_end}"
            self.report.lagging(check.scan.files[-1].path, 0, what, Fix.QUEUES)

    def _report_entry(self, check: QueueCheck, number: int, entry: np.void) -> bool:
        """Whether it reported a fault: an entry of a queue that was created again may be right after all."""
        offset, size = int(entry["offset"]), int(entry["size"])
        record = record_at(self.disk, self.log_files, offset)
        if record is None:
            check.fault(number, f"no valid record at {offset}")
            return True
        view = record.view
        actual = (view.topic, view.queue_id, view.queue_offset, view.size)
        if is_queued(view.sys_flag) and (
            actual == (check.scan.topic, check.scan.queue_id, number, size) or self._is_gap_entry(check, view, entry)
        ):
            return False
        kind = "" if is_queued(view.sys_flag) else ", prepared or rolled back"
        owner = f"{view.topic}, queue {view.queue_id}, queue offset {view.queue_offset}, {view.size} bytes{kind}"
        check.fault(number, f"the record at {offset} is of {owner}; the entry says {size} bytes")
        return True

    def _is_gap_entry(self, check: QueueCheck, view: RecordView, entry: np.void) -> bool:
        """Where the log has lost records, their entries are copies of the next record's entry."""
        if (view.topic, view.queue_id) != (check.scan.topic, check.scan.queue_id):
            return False
        following = check.scan.read(view.queue_offset, 1)
        return len(following) == 1 and bool(following[0] == entry)


def _unmatched_chunks(check: QueueCheck) -> Iterator[tuple[int, Entries]]:
    for numbers in check.unmatched():
        for first in range(numbers.start, numbers.stop, _READ_AT_ONCE):
            yield first, check.scan.read(first, min(_READ_AT_ONCE, numbers.stop - first))
