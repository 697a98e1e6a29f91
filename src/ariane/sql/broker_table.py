"""A topic, pulled from its brokers."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from ariane.arrow.decode import decode_records
from ariane.arrow.selection import QueueRange as Offsets
from ariane.client.settings import ClientSettings
from ariane.spark.cluster import Cluster
from ariane.spark.planning import Planner
from ariane.spark.pulls import PullSettings, RangePull
from ariane.spark.ranges import QueueRange
from ariane.spark.read_options import ReadOptions
from ariane.sql.losses import telling_losses
from ariane.sql.progress import Progress, Scan
from ariane.sql.wanted import Wanted, shares

GROUP = "ariane-sql"
"""Whom brokers see pulling. No offset of it is ever stored."""
_DECODE_BYTES = 1024 * 1024
_PATIENCE_S = 10.0


class BrokerTable:
    def __init__(self, settings: ClientSettings, topic: str, wanted: Wanted) -> None:
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
        with closing(cluster.calls), telling_losses(self.progress.trouble):
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
        ranges = (Offsets(queue.topic, queue.queue_id, wanted.start, wanted.end),)
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


def plan_ranges(settings: ClientSettings, topic: str, wanted: Wanted) -> list[QueueRange]:
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
