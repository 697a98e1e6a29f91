"""Tables of messages: a topic that is pulled from its brokers, or read from the files of stores."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from ariane.arrow.decode import decode_records
from ariane.arrow.filter import OffsetRange
from ariane.arrow.log.files import QueueEntries, open_queues
from ariane.arrow.log.plan import LogPlan, plan_log
from ariane.arrow.log.read import ReadReport, read_split
from ariane.client.settings import ClientSettings
from ariane.errors import StoreMismatch
from ariane.spark import data_loss
from ariane.spark.cluster import Cluster
from ariane.spark.offsets import QueueRange
from ariane.spark.options.read import ReadOptions
from ariane.spark.read.planning import Planner
from ariane.spark.read.range_pull import PullSettings, RangePull
from ariane.sql.tables import Progress, Scan, ScanFilter, limit_per_queue
from ariane.store.layout import Layout

# --- data loss: messages that retention deleted before a pull reached them ---
#
# The readers that Spark uses report them to a logger. A query on the command line continues, and reports in the end
# that its result is not complete.


@contextmanager
def capture_data_loss(report: Callable[[str], None]) -> Iterator[None]:
    """Calls `report` with a sentence for every data loss inside the block."""
    handler = _LossHandler(report)
    data_loss.log.addHandler(handler)
    try:
        yield
    finally:
        data_loss.log.removeHandler(handler)


class _LossHandler(logging.Handler):
    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report(str(record.args[0]) if isinstance(record.args, tuple) and record.args else record.getMessage())


# --- a topic, pulled from its brokers ---

GROUP = "ariane-sql"
"""The consumer group of the pulls. Its offsets are never committed."""
_DECODE_BYTES = 1024 * 1024
_TIMEOUT_S = 10.0


class BrokerTable:
    def __init__(self, settings: ClientSettings, topic: str, scan_filter: ScanFilter) -> None:
        self._settings = settings
        self._filter = scan_filter
        whole = plan_ranges(settings, topic, scan_filter)
        counts = limit_per_queue([len(bounds) for bounds in whole], scan_filter.limit)
        self._ranges = [replace(bounds, end=bounds.start + n) for bounds, n in zip(whole, counts, strict=True)]
        total = sum(map(len, whole))
        self.progress = Progress(name=topic, queues=len(whole), total=total, left_out=total - sum(counts))

    def batches(self, columns: Sequence[str], scan: Scan) -> Iterator[pa.RecordBatch]:
        # Each scan has its own connections: an engine may run several scans in several threads.
        cluster = Cluster(self._settings)
        with closing(cluster.calls), capture_data_loss(self.progress.add_problem):
            for bounds in self._ranges:
                yield from self._queue_batches(cluster, bounds, columns, scan)
        scan.is_done = True

    def _queue_batches(
        self, cluster: Cluster, bounds: QueueRange, columns: Sequence[str], scan: Scan
    ) -> Iterator[pa.RecordBatch]:
        before = scan.scanned
        pull = RangePull(cluster, bounds, self._pull_settings())
        for data in _joined(pull):
            scan.scanned = before + min(pull.offset, bounds.end) - bounds.start
            yield from self._decode(data, bounds, columns)
        scan.scanned = before + len(bounds)

    def _decode(self, data: bytes, bounds: QueueRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Without messages past the end of the range, which a pull with a filter may return."""
        queue = bounds.queue
        ranges = (OffsetRange(queue.topic, queue.queue_id, bounds.start, bounds.end),)
        selection, done = replace(self._filter.selection, ranges=ranges), 0
        while done < len(data):
            part = decode_records(data, columns=columns, selection=selection, broker_name=queue.broker_name, start=done)
            for bad in part.bad:
                where = f"queue {queue.queue_id} of {queue.topic}"
                self.progress.add_problem(f"{where}: {bad.size} bytes are not a valid record: {bad.reason}")
            if part.batch.num_rows:
                yield part.batch
            done = part.end

    def _pull_settings(self) -> PullSettings:
        tags = " || ".join(sorted(self._filter.tags or {"*"}))
        return PullSettings(group=GROUP, expression=tags, patience_s=_TIMEOUT_S, fail_on_data_loss=False)


def plan_ranges(settings: ClientSettings, topic: str, scan_filter: ScanFilter) -> list[QueueRange]:
    """The offsets of each queue between the two times, up to its current end."""
    options = ReadOptions(
        topic=topic,
        starting_timestamp=None if scan_filter.since_ms is None else str(scan_filter.since_ms),
        ending_timestamp=None if scan_filter.until_ms is None else str(scan_filter.until_ms),
        fail_on_data_loss=False,
    )
    cluster = Cluster(settings)
    with closing(cluster.calls):
        return Planner(cluster, options).batch_ranges()


def _joined(bodies: Iterable[bytes]) -> Iterator[bytes]:
    """Joins responses to pieces that are worth a call of the decoder. The first is not delayed, for short queries."""
    pieces: list[bytes] = []
    size = 0
    enough = 0
    for body in bodies:
        pieces.append(body)
        size += len(body)
        if size >= enough:
            yield b"".join(pieces)
            pieces, size, enough = [], 0, _DECODE_BYTES
    if pieces:
        yield b"".join(pieces)


# --- a topic, read from the files of one or several store directories, of Ariane or Apache; a broker may be running ---

_BATCH_BYTES = 1024 * 1024


class StoreTable:
    def __init__(self, roots: Sequence[Path], topic: str, scan_filter: ScanFilter) -> None:
        self._topic = topic
        self._filter = scan_filter
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
            self.progress.add_problem(f"the log in {root} has no file for its bytes {begin} to {end}")
        if self._filter.limit is None or not plan.splits:
            return plan
        return self._plan_log(root, self._limited(plan, queues, self._filter.limit))

    def _limited(self, plan: LogPlan, queues: Sequence[QueueEntries], limit: int) -> list[OffsetRange]:
        """The oldest messages of every queue, in the part of the log that is to be read."""
        begin, end = plan.splits[0].begin, plan.splits[-1].end
        inside = [(queue, queue.offset_at(begin), queue.offset_at(end)) for queue in queues]
        lengths = [last - first for _, first, last in inside]
        counts = limit_per_queue(lengths, limit)
        self.progress.left_out += sum(lengths) - sum(counts)
        return [
            OffsetRange(queue.topic, queue.queue_id, first, first + count)
            for (queue, first, _), count in zip(inside, counts, strict=True)
            if count
        ]

    def _plan_log(self, root: Path, ranges: Sequence[OffsetRange] | None = None) -> LogPlan:
        scan_filter = self._filter
        return plan_log(
            root,
            topics=[self._topic],
            queues=ranges,
            starting_timestamp_ms=scan_filter.since_ms,
            ending_timestamp_ms=scan_filter.until_ms,
            tags=scan_filter.tags,
            keys=scan_filter.keys,
        )

    def batches(self, columns: Sequence[str], scan: Scan) -> Iterator[pa.RecordBatch]:
        report = ReadReport()
        for plan in self._plans:
            for split in plan.splits:
                try:
                    for batch in read_split(split, columns, batch_bytes=_BATCH_BYTES, report=report):
                        scan.scanned = min(report.records, self.progress.total)
                        yield batch
                except StoreMismatch as error:  # retention removed a file
                    self.progress.add_problem(str(error))
                self._report_bad(report, split.commit_log)
        scan.scanned = min(report.records, self.progress.total)
        scan.is_done = True

    def _report_bad(self, report: ReadReport, commit_log: str) -> None:
        for bad in report.bad:
            where = f"{commit_log}: {bad.size} bytes at {bad.position}"
            self.progress.add_problem(f"{where} are not a valid record: {bad.reason}")
        report.bad.clear()
