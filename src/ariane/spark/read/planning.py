"""Plans a read: from the options to topics, queues and offset ranges, and how much goes into a micro-batch.

Spark's partitions are the ranges, split (`Planner.split`): of a batch read those of `batch_ranges`, of a micro-batch
those of `stream_ranges`. How a range is cut is in spark/offsets.py (`split_ranges`).
"""

import re
from collections.abc import Iterable, Mapping

from ariane.errors import ArianeError, SettingsError
from ariane.model.route import MessageQueue
from ariane.spark.cluster import Cluster, Ends
from ariane.spark.data_loss import report_loss
from ariane.spark.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    Position,
    QueueRange,
    SplitLimits,
    StreamOffset,
    split_ranges,
)
from ariane.spark.options.read import ReadOptions
from ariane.wire.requests.messages import QueryConsumeQueue

_SAMPLE = 32


class Planner:
    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options

    # --- which queues -----------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        options = self._options
        if options.topic_pattern is not None:
            try:
                return self._cluster.topics_matching(re.compile(options.topic_pattern))
            except re.error as error:
                raise SettingsError(f"option topicPattern is not a regular expression: {error}") from None
        if options.queues is not None:
            return sorted({queue.topic for queue in options.assigned()})
        return options.topics

    def queues(self) -> list[MessageQueue]:
        """As the nameserver knows them now; SettingsError when a queue of the option `queues` is not among them."""
        known = self._cluster.queues(self.topics(), fresh=True)
        if self._options.queues is None:
            return known
        assigned = sorted(self._options.assigned())
        for queue in assigned:
            if queue not in known:
                raise SettingsError(f"option queues names {_named(queue)}, which does not exist")
        return assigned

    def ends(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Ends]:
        """One call for each topic and broker."""
        selected = set(queues)
        ends: dict[MessageQueue, Ends] = {}
        for topic, broker in sorted({(queue.topic, queue.broker_name) for queue in selected}):
            ends |= self._cluster.ends(topic, broker)
        return {queue: ends.get(queue, Ends(0, 0)) for queue in selected}

    # --- start and end offsets --------------------------------------------------------------------------------------

    def starts(self, ends: dict[MessageQueue, Ends], default: str) -> Offsets:
        from_ms, _ = self._options.time_range()
        if from_ms is not None:
            return {queue: self._at(queue, from_ms, end) for queue, end in ends.items()}
        position = self._options.start_position(default)
        _check_known(position, ends, "startingOffsets")
        return {queue: self._start(queue, position, end) for queue, end in ends.items()}

    def _start(self, queue: MessageQueue, position: Position, end: Ends) -> int:
        offset = _resolved(position.of(queue, EARLIEST), end)
        if offset > end.next:
            raise SettingsError(
                f"startingOffsets says {offset} for {_named(queue)}, which has {end.first} to {end.next}: choose less"
            )
        if offset < end.first:
            report_loss(
                f"startingOffsets says {offset} for {_named(queue)}, which now begins at {end.first}",
                fail=self._options.fail_on_data_loss,
            )
        return max(offset, end.first)

    def _at(self, queue: MessageQueue, timestamp_ms: int, end: Ends) -> int:
        """Brokers return the nearest message when all are on one side of the time; the row filter corrects that."""
        return min(max(self._cluster.offset_at(queue, timestamp_ms), end.first), end.next)

    def batch_ranges(self) -> list[QueueRange]:
        ends = self.ends(self.queues())
        starts = self.starts(ends, "earliest")
        stops = self._stops(ends)
        return [QueueRange(queue, starts[queue], max(starts[queue], stops[queue])) for queue in sorted(ends)]

    def _stops(self, ends: dict[MessageQueue, Ends]) -> Offsets:
        _, before_ms = self._options.time_range()
        position = self._options.end_position()
        _check_known(position, ends, "endingOffsets")
        stops: Offsets = {}
        for queue, end in ends.items():
            stop = _resolved(position.of(queue, LATEST), end)
            if stop > end.next:
                report_loss(
                    f"endingOffsets says {stop} for {_named(queue)}, which ends at {end.next}",
                    fail=self._options.fail_on_data_loss,
                )
            if before_ms is not None:
                # One more than the broker says: Apache's 4.x returns the nearest message, which may be before the time.
                stop = min(stop, self._at(queue, before_ms, end) + 1)
            stops[queue] = min(stop, end.next)
        return stops

    # --- partitions -------------------------------------------------------------------------------------------------

    def split(self, ranges: list[QueueRange]) -> list[QueueRange]:
        options = self._options
        limits = SplitLimits(
            partitions_min=options.partitions_min,
            records_max=options.records_per_partition,
            bytes_max=options.bytes_per_partition,
        )
        sizes = self.record_bytes(ranges) if options.bytes_per_partition is not None else {}
        return split_ranges(ranges, limits, sizes)

    def record_bytes(self, ranges: Iterable[QueueRange]) -> dict[MessageQueue, float]:
        """The mean size of a few messages at the start of each range. A queue whose broker fails is left out."""
        sizes = {}
        for part in ranges:
            if len(part) > 0:
                queue = part.queue
                request = QueryConsumeQueue(queue.topic, queue.queue_id, part.start, min(_SAMPLE, len(part)))
                try:
                    address = self._cluster.address(queue.topic, queue.broker_name)
                    entries = self._cluster.calls.call(address, request).body.queue_data
                except ArianeError:
                    continue
                sizes[queue] = sum(entry.physic_size for entry in entries) / max(1, len(entries))
        return sizes


def _resolved(position: int, end: Ends) -> int:
    return {EARLIEST: end.first, LATEST: end.next}.get(position, position)


def _check_known(position: Position, ends: dict[MessageQueue, Ends], option: str) -> None:
    for queue, offset in position.numbers.items():
        if queue not in ends:
            raise SettingsError(f"{option} names {_named(queue)}, which is not among the queues to read")
        if offset < EARLIEST:
            raise SettingsError(f"{option} says {offset} for {_named(queue)}: an offset, -2 or -1 expected")


def _named(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"


# --- a micro-batch: its ranges, and how much goes into the next one ---


def stream_ranges(start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
    """Deterministic: always the same for the same two offsets."""
    ranges = []
    for queue in sorted(end.next):
        begin = start.next.get(queue, end.begins.get(queue, 0))
        ranges.append(QueueRange(queue, begin, max(begin, end.next[queue])))
    return ranges


def limited(start: Mapping[MessageQueue, int], latest: Mapping[MessageQueue, int], rows_max: float) -> Offsets:
    """`latest`, or less: each queue gets a share in proportion to its messages, and at least one message if it has any.

    Otherwise a small queue beside a large one would wait until the large one is read.
    """
    waiting = {queue: max(0, end - start.get(queue, end)) for queue, end in latest.items()}
    total = sum(waiting.values())
    if total <= rows_max:
        return {queue: max(end, start.get(queue, end)) for queue, end in latest.items()}
    share = max(0.0, rows_max) / total
    return {
        queue: start.get(queue, latest[queue]) + (max(1, int(count * share)) if count else 0)
        for queue, count in waiting.items()
    }


def rows_for_bytes(
    start: Mapping[MessageQueue, int],
    latest: Mapping[MessageQueue, int],
    record_bytes: Mapping[MessageQueue, float],
    bytes_max: int,
) -> float:
    """How many rows make `bytes_max` with shares in proportion; `record_bytes` are mean sizes."""
    waiting = {queue: max(0, end - start.get(queue, end)) for queue, end in latest.items()}
    total = sum(waiting.values())
    if not total:
        return float("inf")
    mean = sum(count * record_bytes.get(queue, 0.0) for queue, count in waiting.items()) / total
    return bytes_max / mean if mean else float("inf")


class Minimum:
    """Waits until there are enough rows, or until the first of them has waited long enough."""

    def __init__(self, rows_min: int, delay_max_s: float) -> None:
        self._rows_min = rows_min
        self._delay_max_s = delay_max_s
        self._waiting_since: float | None = None

    def is_enough(self, rows: int, now_s: float) -> bool:
        if rows >= self._rows_min or (rows and self._is_overdue(now_s)):
            self._waiting_since = None
            return True
        if rows and self._waiting_since is None:
            self._waiting_since = now_s
        return False

    def _is_overdue(self, now_s: float) -> bool:
        return self._waiting_since is not None and now_s - self._waiting_since >= self._delay_max_s
