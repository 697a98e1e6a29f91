"""A stream: one query for each sink, with a checkpoint of its own, until all are done or somebody says stop.

Each query has a Python process for its source, which Spark gives ten seconds to report. So queries are started one
after the other, each when the one before has done its first micro-batch, and tried again when a busy machine took
longer. With `--once` each runs to its end before the next starts: side by side they would only slow each other down.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from time import monotonic

from pyspark.sql.streaming.query import StreamingQuery

from ariane.spark.pipeline.model import Pipeline
from ariane.spark.pipeline.outputs import Output
from ariane.spark.pipeline.progress import Screen, SinkProgress
from ariane.spark.pipeline.spark_faults import our_error

_LOOK_S = 0.2
_TRIES = 5
_LATE_WORKER = "Python worker failed to connect back"
_BATCH_END_S = 10.0  # a stop waits so long for the micro-batch that runs; the checkpoint repeats one that was cut off


@dataclass(slots=True)
class StreamRun:
    pipeline: Pipeline
    screen: Screen
    report: Callable[[], None]
    stop: Event
    once: bool
    interval_s: float
    _running: "list[_Running]" = field(default_factory=list)

    def run(self, outputs: Sequence[Output], states: Sequence[SinkProgress]) -> None:
        try:
            for output, state in zip(outputs, states, strict=True):
                self._start(output, state)
            while not self.stop.is_set() and any(one.is_active for one in self._running):
                self._look()
            self._let_batches_end()
        finally:
            for one in self._running:
                one.query.stop()
                one.look()
        for one in self._running:
            one.progress.state = "stopped" if self.stop.is_set() else "done"

    def _start(self, output: Output, state: SinkProgress) -> None:
        """Returns when the first micro-batch is done; with `once`, when all are."""
        for attempt in range(_TRIES):
            if self.stop.is_set():
                return
            state.state = "starting"
            self.report()
            one = _Running(self._query(output), state)
            while one.is_active and not self.stop.is_set() and (self.once or not one.has_begun):
                self._look(one)
            if attempt == _TRIES - 1 or not one.came_late:
                self._running.append(one)
                self._look()
                return

    def _query(self, output: Output) -> StreamingQuery:
        try:
            return output.start(self.pipeline, self.screen, once=self.once, interval_s=self.interval_s)
        except Exception as error:
            raise our_error(error, f"sink {output.name} cannot start") from error

    def _look(self, *starting: "_Running") -> None:
        """The failure of any query that is under way is everybody's end."""
        self.stop.wait(_LOOK_S)
        news = [one.look() for one in (*self._running, *starting)]
        for one in self._running:
            one.raise_failure()
        if any(news):
            self.report()

    def _let_batches_end(self) -> None:
        """A micro-batch that runs may end, so that the next start need not repeat it."""
        limit = monotonic() + _BATCH_END_S
        busy = [one for one in self._running if one.is_in_batch]
        while busy and monotonic() < limit:
            Event().wait(_LOOK_S)
            busy = [one for one in busy if not one.look() and one.is_in_batch]


@dataclass(slots=True)
class _Running:
    query: StreamingQuery
    progress: SinkProgress
    _seen: set[str] = field(default_factory=set)

    @property
    def is_active(self) -> bool:
        return self.query.isActive

    @property
    def is_in_batch(self) -> bool:
        return self.query.isActive and bool(self.query.status["isTriggerActive"])

    @property
    def has_begun(self) -> bool:
        return bool(self._seen)

    @property
    def came_late(self) -> bool:
        """Whether it ended only because the process of its source did not report in time."""
        return not self.query.isActive and _LATE_WORKER in str(self.query.exception() or "")

    def look(self) -> bool:
        """Whether there was news."""
        events = self.query.recentProgress
        fresh = [event for event in events if f"{event['batchId']} {event['timestamp']}" not in self._seen]
        for event in fresh:
            self._seen.add(f"{event['batchId']} {event['timestamp']}")
            self.progress.add(event)
        return bool(fresh)

    def raise_failure(self) -> None:
        error = self.query.exception()
        if error is not None:
            self.progress.state = "failed"
            raise our_error(error, f"sink {self.progress.name} failed") from error
        if not self.query.isActive:
            self.progress.state = "done"
