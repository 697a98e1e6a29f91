"""Consume queues checked against the log, both ways: every record has its entry, and every entry has its record.

The log is walked file by file. Of each file, the records of one queue are a run of consecutive queue offsets, so their
entries are one slice of the queue: it is read and compared as a whole, and only what differs is looked at one by one.
What no record has asked for at the end of the log is an entry without a record.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ariane.model.ids import topic_fault
from ariane.store.disk import Disk
from ariane.store.dispatch import is_queued
from ariane.store.layout import Layout
from ariane.store.queue_extension import QueueExtension
from ariane.store.scan import DataFile, record_at
from ariane.store.scan_queue import Entries, QueueScan, is_filler, list_queues, queue_at
from ariane.store.verify_facts import NOT_QUEUED, FactColumns, Queue
from ariane.store.verify_queue import DIFFERENCES_KEPT, QueueCheck
from ariane.store.verify_report import Cure, Report
from ariane.wire.record_view import RecordView

_READ_AT_ONCE = 65536


@dataclass(slots=True)
class QueuesCheck:
    report: Report
    disk: Disk
    layout: Layout
    log_files: Sequence[DataFile]
    checks: dict[Queue, QueueCheck] = field(default_factory=dict)

    def survey(self) -> None:
        """Finds every queue that is there, and its end."""
        for scan in list_queues(self.disk, self.layout.consume_queues):
            check = self._add(scan)
            self._guarded(check, check.survey)

    def _add(self, scan: QueueScan) -> QueueCheck:
        below = scan.directory.relative_to(self.layout.consume_queues)
        extension = QueueExtension(self.disk, self.layout.consume_queue_extensions / below)
        check = QueueCheck(self.report, scan, extension)
        self.checks[scan.topic, scan.queue_id] = check
        return check

    def _guarded(self, check: QueueCheck, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            self.report.fault(check.scan.directory, 0, f"it cannot be read: {error.strerror}", Cure.QUEUES)

    def dispatched_to(self, limit: int) -> int:
        """The end of the last record that a queue points to; an entry beyond `limit` is a fault of its own."""
        return max((check.last_end for check in self.checks.values() if check.last_end <= limit), default=0)

    def compare(self, columns: FactColumns) -> None:
        """The records of one log file, in order."""
        order = np.argsort(columns.queues, kind="stable")
        numbers, starts = np.unique(columns.queues[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, starts)[1:], strict=True):
            if number != NOT_QUEUED:
                check = self._check_of(columns.queue_names[number])
                self._guarded(check, partial(check.compare, columns, rows))

    def _check_of(self, queue: Queue) -> QueueCheck:
        if queue not in self.checks:
            topic, queue_id = queue
            # A name that can be no directory must not become a path; Apache also allows "|".
            directory = self.layout.queue("" if topic_fault(topic.replace("|", "_")) else topic, queue_id)
            self._add(queue_at(self.disk, directory, topic, queue_id))
        return self.checks[queue]

    def finish(self, log_begin: int, log_end: int, topics: frozenset[str] | None) -> None:
        """`topics` are those that exist by config/topics.json; None when that cannot be told."""
        for check in self.checks.values():
            check.tell_differences(is_deleted=topics is not None and check.scan.topic not in topics)
            self._guarded(check, partial(self._tell_unmatched, check, log_begin, log_end))
        present = [check for check in self.checks.values() if check.scan.files]
        summary = self.report.summary
        summary.queues = len(present)
        summary.topics = len({check.scan.topic for check in present})
        summary.queue_entries = sum(sum(map(len, check.matched)) for check in present)

    def _tell_unmatched(self, check: QueueCheck, log_begin: int, log_end: int) -> None:
        """Entries in front may point to records that retention has removed; all others must have one."""
        told = ahead = 0
        for first, entries in _unmatched_chunks(check):
            is_gone = is_filler(entries) | (entries["offset"] < log_begin)
            is_ahead = entries["offset"] >= log_end
            ahead += int(is_ahead.sum())
            suspects = np.flatnonzero(~is_ahead if check.has_match_before(first) else ~is_ahead & ~is_gone)
            for at in suspects[: DIFFERENCES_KEPT - told].tolist():
                told += self._tell_entry(check, first + at, entries[at])
        if ahead:
            what = f"{ahead} entries point behind the end of the log at {log_end}"
            self.report.unfinished(check.scan.files[-1].path, 0, what, Cure.QUEUES)

    def _tell_entry(self, check: QueueCheck, number: int, entry: np.void) -> bool:
        """Whether there was something to tell: an entry of a queue that was made again may be right after all."""
        offset, size = int(entry["offset"]), int(entry["size"])
        found_record = record_at(self.disk, self.log_files, offset)
        if found_record is None:
            check.fault(number, f"no whole record at {offset}")
            return True
        view = found_record.view
        found = (view.topic, view.queue_id, view.queue_offset, view.size)
        if is_queued(view.sys_flag) and (
            found == (check.scan.topic, check.scan.queue_id, number, size) or self._stands_in(check, view, entry)
        ):
            return False
        kind = "" if is_queued(view.sys_flag) else ", prepared or rolled back"
        told = f"{view.topic}, queue {view.queue_id}, queue offset {view.queue_offset}, {view.size} bytes{kind}"
        check.fault(number, f"the record at {offset} is of {told}; the entry says {size} bytes")
        return True

    def _stands_in(self, check: QueueCheck, view: RecordView, entry: np.void) -> bool:
        """Where the log has lost records, their entries are that of the next record there is."""
        if (view.topic, view.queue_id) != (check.scan.topic, check.scan.queue_id):
            return False
        following = check.scan.read(view.queue_offset, 1)
        return len(following) == 1 and bool(following[0] == entry)


def _unmatched_chunks(check: QueueCheck) -> Iterator[tuple[int, Entries]]:
    for numbers in check.unmatched():
        for first in range(numbers.start, numbers.stop, _READ_AT_ONCE):
            yield first, check.scan.read(first, min(_READ_AT_ONCE, numbers.stop - first))
