"""A topic, pulled from its brokers."""

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
from ariane.sql.tables import Progress, Scan, ScanFilter, shares
from ariane.store.layout import Layout

# --- losses ---
#
# Messages that were gone before a pull reached them: the readers that Spark uses tell them to a log.
#
# A query on the command line goes on, too, but says in the end that it is not complete.


@contextmanager
def capture_data_loss(tell: Callable[[str], None]) -> Iterator[None]:
    """Calls `tell` with a sentence for every loss inside."""
    handler = _Teller(tell)
    data_loss.log.addHandler(handler)
    try:
        yield
    finally:
        data_loss.log.removeHandler(handler)


class _Teller(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(str(record.args[0]) if isinstance(record.args, tuple) and record.args else record.getMessage())


# ---

GROUP = "ariane-sql"
"""Whom brokers see pulling. No offset of it is ever stored."""
_DECODE_BYTES = 1024 * 1024
_PATIENCE_S = 10.0


class BrokerTable:
    def __init__(self, settings: ClientSettings, topic: str, wanted: ScanFilter) -> None:
        self._settings = settings
        self._wanted = wanted
        whole = plan_ranges(settings, topic, wanted)
        kept = shares([len(one) for one in whole], wanted.limit)
        self._ranges = [replace(one, end=one.start + count) for one, count in zip(whole, kept, strict=True)]
        total = sum(map(len, whole))
        self.progress = Progress(name=topic, queues=len(whole), total=total, left_out=total - sum(kept))

    def batches(self, columns: Sequence[str], scan: Scan) -> Iterator[pa.RecordBatch]:
        # A scan has connections of its own: an engine may run several scans in several threads.
        cluster = Cluster(self._settings)
        with closing(cluster.calls), capture_data_loss(self.progress.trouble):
            for one in self._ranges:
                yield from self._of_queue(cluster, one, columns, scan)
        scan.is_done = True

    def _of_queue(
        self, cluster: Cluster, wanted: QueueRange, columns: Sequence[str], scan: Scan
    ) -> Iterator[pa.RecordBatch]:
        before = scan.scanned
        pull = RangePull(cluster, wanted, self._pull_settings())
        for data in _gathered(pull):
            scan.scanned = before + min(pull.offset, wanted.end) - wanted.start
            yield from self._decoded(data, wanted, columns)
        scan.scanned = before + len(wanted)

    def _decoded(self, data: bytes, wanted: QueueRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Without what a pull with a filter brings from behind the end of its range."""
        queue = wanted.queue
        ranges = (OffsetRange(queue.topic, queue.queue_id, wanted.start, wanted.end),)
        selection, done = replace(self._wanted.selection, ranges=ranges), 0
        while done < len(data):
            part = decode_records(data, columns=columns, selection=selection, broker_name=queue.broker_name, start=done)
            for bad in part.bad:
                self.progress.trouble(f"queue {queue.queue_id} of {queue.topic}: {bad.size} bytes are {bad.reason}")
            if part.batch.num_rows:
                yield part.batch
            done = part.end

    def _pull_settings(self) -> PullSettings:
        tags = " || ".join(sorted(self._wanted.tags or {"*"}))
        return PullSettings(group=GROUP, expression=tags, patience_s=_PATIENCE_S, fail_on_data_loss=False)


def plan_ranges(settings: ClientSettings, topic: str, wanted: ScanFilter) -> list[QueueRange]:
    """The offsets of each queue between the two times, as far as it reaches now."""
    options = ReadOptions(
        topic=topic,
        starting_timestamp=None if wanted.since_ms is None else str(wanted.since_ms),
        ending_timestamp=None if wanted.until_ms is None else str(wanted.until_ms),
        fail_on_data_loss=False,
    )
    cluster = Cluster(settings)
    with closing(cluster.calls):
        return Planner(cluster, options).batch_ranges()


def _gathered(bodies: Iterable[bytes]) -> Iterator[bytes]:
    """Answers joined to pieces that are worth a call of the decoder. The first is given at once, for short queries."""
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


# --- store_table ---
#
# A topic, read from the files of one store directory or of several, ours or Apache's. A broker may run there.

_BATCH_BYTES = 1024 * 1024


class StoreTable:
    def __init__(self, roots: Sequence[Path], topic: str, wanted: ScanFilter) -> None:
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

    def _limited(self, plan: LogPlan, queues: Sequence[QueueEntries], limit: int) -> list[OffsetRange]:
        """The oldest of every queue, in the stretch of the log that was to be read."""
        begin, end = plan.splits[0].begin, plan.splits[-1].end
        inside = [(queue, queue.offset_at(begin), queue.offset_at(end)) for queue in queues]
        lengths = [last - first for _, first, last in inside]
        counts = shares(lengths, limit)
        self.progress.left_out += sum(lengths) - sum(counts)
        return [
            OffsetRange(queue.topic, queue.queue_id, first, first + count)
            for (queue, first, _), count in zip(inside, counts, strict=True)
            if count
        ]

    def _plan_log(self, root: Path, ranges: Sequence[OffsetRange] | None = None) -> LogPlan:
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
