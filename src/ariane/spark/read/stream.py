"""Streaming reads from brokers. The checkpoint decides: a micro-batch is a range of offsets, and can be read again.

Where a stream from `latest` (or from a time) began is not in the checkpoint before its first micro-batch is done, and
Spark asks for it again when that one is replayed. So the start is stored at the broker, as the offsets of the consumer
group. The same offsets then follow the stream, for tools that show the lag of a group; they are one micro-batch behind,
because Spark calls commit() that late.
"""

import logging
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ariane.errors import ArianeError, SettingsError
from ariane.model.route import MessageQueue
from ariane.spark.cluster import Cluster, Ends
from ariane.spark.data_loss import report_loss
from ariane.spark.offsets import EARLIEST, Offsets, QueueRange, StreamOffset
from ariane.spark.options.read import ReadOptions, delay_s
from ariane.spark.read.broker import read_range
from ariane.spark.read.columns import Columns
from ariane.spark.read.planning import Minimum, Planner, limited, rows_for_bytes, stream_ranges

log = logging.getLogger(__name__)

_REFRESH_INTERVAL_S = 0.05


class LatestOffsets:
    """The end offsets of the queues of a stream, requested from the brokers at most every 50 ms.

    Spark asks a hundred times a second while there is nothing new. A queue stays once it was seen, and for a broker
    that does not respond the last end offsets are kept: a stream waits for it and continues with the others.
    """

    def __init__(
        self,
        planner: Planner,
        route_refresh_s: float,
        *,
        fail_on_data_loss: bool,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._planner = planner
        self._route_refresh_s = route_refresh_s
        self._fails = fail_on_data_loss
        self._now_s = now_s
        self._ends: dict[MessageQueue, Ends] = {}
        self._routes_at = float("-inf")
        self._refreshed_at = float("-inf")

    def now(self) -> dict[MessageQueue, Ends]:
        """At most 50 ms old."""
        if self._now_s() - self._refreshed_at >= _REFRESH_INTERVAL_S:
            self.refresh()
        return self._ends

    def refresh(self) -> None:
        if self._now_s() - self._routes_at >= self._route_refresh_s:
            self._refresh_queues()
        self._refresh_ends()
        self._refreshed_at = self._now_s()

    def _refresh_queues(self) -> None:
        try:
            queues = self._planner.queues()
        except ArianeError as error:
            if not self._ends:
                raise
            log.warning("the list of queues could not be refreshed: %s", error)
        else:
            for queue in queues:
                self._ends.setdefault(queue, Ends(-1, -1))
            self._routes_at = self._now_s()

    def _refresh_ends(self) -> None:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in self._ends:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        received: dict[MessageQueue, Ends] = {}
        for queues in by_broker.values():
            try:
                received |= self._planner.ends(queues)
            except ArianeError as error:
                if (self._fails and not error.retriable) or any(self._ends[queue].next < 0 for queue in queues):
                    raise
                log.warning("a broker does not return the end offsets of its queues: %s", error)
                self._routes_at = float("-inf")  # it may have moved
        self._ends |= received


_ANY_NUMBER = 2**62  # rows: the limits are applied here, Spark only has to know that there are some


class BrokerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives as long as the query, in a Python process of the driver; pickled copies of it read in tasks."""

    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        _check(options)
        self._options = options
        self._columns = columns
        self._driver: _DriverSide | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}  # connections stay where they were opened

    @property
    def _side(self) -> "_DriverSide":
        if self._driver is None:
            self._driver = _DriverSide(self._options)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:
        return StreamOffset(self._side.initial()).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        is_limited = not isinstance(limit, ReadAllAvailable)
        return self._side.latest(StreamOffset.from_json(start), is_limited=is_limited).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        limits = (options.offsets_per_trigger, options.bytes_per_trigger, options.offsets_per_trigger_min)
        return ReadAllAvailable() if limits == (None, None, None) else ReadMaxRows(_ANY_NUMBER)

    def prepareForTriggerAvailableNow(self) -> None:
        self._side.pin_target()

    def reportLatestOffset(self) -> dict[str, Any]:
        return StreamOffset(self._side.end_offsets()).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = self._side.ranges(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return [InputPartition(part) for part in ranges] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return iter(())
        return read_range(partition.value, self._options, self._columns, with_times=False)

    def commit(self, end: dict[str, Any]) -> None:
        self._side.mirror(StreamOffset.from_json(end).next)

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()


class _DriverSide:
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._cluster = Cluster(options.client_settings())
        self._planner = Planner(self._cluster, options)
        self._latest = LatestOffsets(
            self._planner, options.route_refresh_s, fail_on_data_loss=options.fail_on_data_loss
        )
        self._target: Offsets | None = None
        rows_min = options.offsets_per_trigger_min
        self._minimum = None if rows_min is None else Minimum(rows_min, delay_s(options.trigger_delay))

    def initial(self) -> Offsets:
        self._latest.refresh()
        ends = self._latest.now()
        group = self._options.group
        if not needs_pin(self._options):
            return self._planner.starts(ends, "latest")
        assert group is not None
        pinned = {queue: self._cluster.group_offset(group, queue) for queue in ends}
        missing = {queue: ends[queue] for queue, offset in pinned.items() if offset is None}
        starts = self._planner.starts(missing, "latest") if missing else {}
        for queue, offset in starts.items():
            self._cluster.commit(group, queue, offset)
        return {queue: starts[queue] if offset is None else offset for queue, offset in pinned.items()}

    # --- the end of the next micro-batch ----------------------------------------------------------------------------

    def end_offsets(self) -> Offsets:
        return {queue: end.next for queue, end in self._latest.now().items()}

    def pin_target(self) -> None:
        self._latest.refresh()
        self._target = self.end_offsets()

    def latest(self, start: StreamOffset, *, is_limited: bool) -> StreamOffset:
        ends = self._latest.now()
        begins = {queue: end.first for queue, end in ends.items() if queue not in start.next}
        if self._target is not None:
            begins = {queue: first for queue, first in begins.items() if queue in self._target}
        at = start.next | begins
        latest = {queue: self._end_of(queue, offset, ends) for queue, offset in at.items()}
        if is_limited:
            latest = self._limited(at, latest)
        if latest == start.next and not any(queue not in start.next for queue in latest):
            return start  # exactly the same JSON: Spark compares it to see whether there is anything new
        return StreamOffset(latest, begins)

    def _end_of(self, queue: MessageQueue, offset: int, ends: dict[MessageQueue, Ends]) -> int:
        """For a queue that no broker has now, the position of the stream: the queue may come back."""
        end = ends.get(queue)
        if end is None:
            return offset
        if end.next < offset:
            report_loss(
                f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name} ends at {end.next}, and the "
                f"checkpoint is at {offset}: the topic was created again, or its broker lost messages",
                fail=self._options.fail_on_data_loss,
            )
            return offset
        target = end.next if self._target is None else self._target.get(queue, offset)
        return max(offset, min(end.next, target))

    def _limited(self, at: Offsets, latest: Offsets) -> Offsets:
        options = self._options
        waiting = sum(latest[queue] - offset for queue, offset in at.items())
        if self._minimum is not None and self._target is None and not self._minimum.is_enough(waiting, monotonic()):
            return dict(at)
        rows_max = float(options.offsets_per_trigger or waiting)
        if options.bytes_per_trigger is not None and waiting:
            ranges = [QueueRange(queue, offset, latest[queue]) for queue, offset in at.items()]
            sizes = self._planner.record_bytes(ranges)
            rows_max = min(rows_max, rows_for_bytes(at, latest, sizes, options.bytes_per_trigger))
        return limited(at, latest, rows_max)

    # --- the micro-batch --------------------------------------------------------------------------------------------

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
        return self._planner.split(stream_ranges(start, end))

    def mirror(self, offsets: Offsets) -> None:
        """Commits the offsets of the group, for monitoring: the stream does not depend on them, so a failure is only
        logged."""
        if self._options.group is None:
            return
        for queue, offset in offsets.items():
            try:
                self._cluster.commit(self._options.group, queue, offset)
            except ArianeError as error:
                log.warning("offsets of group %s could not be committed: %s", self._options.group, error)
                return

    def close(self) -> None:
        self._cluster.calls.close()


def needs_pin(options: ReadOptions) -> bool:
    """Whether the start offsets depend on the time at which they are determined."""
    if options.starting_timestamp is not None:
        return True
    position = options.start_position("latest")
    return position.word != EARLIEST if position.word is not None else any(n < 0 for n in position.numbers.values())


def _check(options: ReadOptions) -> None:
    if options.ending_timestamp is not None or options.as_of is not None or options.ending != "latest":
        raise SettingsError("a stream has no end: leave out endingOffsets, endingTimestamp and asOfTimestamp")
    if options.reads_store:
        raise SettingsError("streams are read from brokers: leave out storePath, or use spark.read")
    if needs_pin(options) and options.group is None:
        raise SettingsError(
            "a stream that starts from latest or from a time needs the option consumerGroup, under which the broker "
            "stores where it began; or set startingOffsets=earliest"
        )
