"""A topic, read from the files of one store directory or of several, ours or Apache's. A broker may run there."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from ariane.arrow.log_plan import LogPlan, plan_log
from ariane.arrow.log_queues import QueueEntries, open_queues
from ariane.arrow.log_read import ReadReport, read_split
from ariane.arrow.selection import QueueRange
from ariane.errors import StoreMismatch
from ariane.sql.progress import Progress, Scan
from ariane.sql.wanted import Wanted, shares
from ariane.store.layout import Layout

_BATCH_BYTES = 1024 * 1024


class StoreTable:
    def __init__(self, roots: Sequence[Path], topic: str, wanted: Wanted) -> None:
        self._topic = topic
        self._wanted = wanted
        queues = {root: list(open_queues(Layout.under(root), [topic])) for root in roots}
        self.progress = Progress(
            name=topic,
            queues=sum(map(len, queues.values())),
            total=sum(len(queue) for of_root in queues.values() for queue in of_root),
        )
        self._plans = [self._plan(root, queues[root]) for root in roots if queues[root]]

    def _plan(self, root: Path, queues: Sequence[QueueEntries]) -> LogPlan:
        plan = self._plan_log(root)
        for begin, end in plan.gaps:
            self.progress.trouble(f"the log in {root} has no file for its bytes {begin} to {end}")
        if self._wanted.limit is None or not plan.splits:
            return plan
        return self._plan_log(root, self._limited(plan, queues, self._wanted.limit))

    def _limited(self, plan: LogPlan, queues: Sequence[QueueEntries], limit: int) -> list[QueueRange]:
        """The oldest of every queue, in the stretch of the log that was to be read."""
        begin, end = plan.splits[0].begin, plan.splits[-1].end
        inside = [(queue, queue.number_at(begin), queue.number_at(end)) for queue in queues]
        lengths = [last - first for _, first, last in inside]
        counts = shares(lengths, limit)
        self.progress.left_out += sum(lengths) - sum(counts)
        return [
            QueueRange(queue.topic, queue.queue_id, first, first + count)
            for (queue, first, _), count in zip(inside, counts, strict=True)
            if count
        ]

    def _plan_log(self, root: Path, ranges: Sequence[QueueRange] | None = None) -> LogPlan:
        wanted = self._wanted
        return plan_log(
            root,
            topics=[self._topic],
            queues=ranges,
            starting_timestamp_ms=wanted.since_ms,
            ending_timestamp_ms=wanted.until_ms,
            tags=wanted.tags,
            keys=wanted.keys,
        )

    def batches(self, columns: Sequence[str], scan: Scan) -> Iterator[pa.RecordBatch]:
        report = ReadReport()
        for plan in self._plans:
            for split in plan.splits:
                try:
                    for batch in read_split(split, columns, batch_bytes=_BATCH_BYTES, report=report):
                        scan.scanned = min(report.records, self.progress.total)
                        yield batch
                except StoreMismatch as error:  # retention was faster
                    self.progress.trouble(str(error))
                self._tell_bad(report, split.commit_log)
        scan.scanned = min(report.records, self.progress.total)
        scan.is_done = True

    def _tell_bad(self, report: ReadReport, place: str) -> None:
        for bad in report.bad:
            self.progress.trouble(f"{place}: {bad.size} bytes at {bad.position} are {bad.reason}")
        report.bad.clear()
