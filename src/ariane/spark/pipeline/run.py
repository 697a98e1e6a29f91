"""Runs a pipeline: a batch, a stream or jobs.

A stream is one query for each sink, with its own checkpoint, until all queries end or the run is stopped. Each query
has a Python process for its source, to which Spark gives ten seconds to connect. So queries are started one after the
other, each when the one before has finished its first micro-batch, and started again if a busy machine took longer.
With `--once` each runs to its end before the next starts: in parallel they would only slow each other down.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic
from typing import Any

from pyspark.sql import Observation, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ariane.errors import SettingsError
from ariane.spark.pipeline.checks import job_texts
from ariane.spark.pipeline.dataframes import Output, outputs, temp_views
from ariane.spark.pipeline.functions import Connection, to_ariane_error
from ariane.spark.pipeline.model import JobStep, Mode, Pipeline, SinkKind
from ariane.spark.pipeline.progress import MetricsFile, Screen, SinkProgress

# --- batch: one sink after the other, with a display of finished tasks ---

_BATCH_POLL_S = 0.5


def run_batch(
    spark: SparkSession,
    outputs: Sequence[Output],
    screen: Screen,
    report: Callable[[], None],
    states: Sequence[SinkProgress],
) -> None:
    for output, state in zip(outputs, states, strict=True):
        state.state = "running"
        began = monotonic()
        with _tasks_displayed(spark, state, report):
            try:
                state.rows_written = _write(output, screen)
            except KeyboardInterrupt:
                state.state = "stopped"
                raise
            except Exception as error:
                state.state = "failed"
                raise to_ariane_error(error, f"sink {output.name} failed") from error
        _finish(state, monotonic() - began)
        report()


def _write(output: Output, screen: Screen) -> int | None:
    """The number of rows written; None when Spark did not count, as for a plan that it optimised to nothing."""
    if output.sink.kind is SinkKind.CONSOLE:
        output.write(output.rows, screen)
        return None
    observation = Observation()
    output.write(output.counted(observation), screen)
    return _observed(observation)


def _observed(observation: Observation) -> int | None:
    """`get` would wait forever for a metric that never arrives; the future behind it is completed if it has."""
    assert observation._jo is not None
    return int(observation.get["rows"]) if observation._jo.future().isCompleted() else None


def _finish(state: SinkProgress, seconds: float) -> None:
    state.state, state.batches, state.batch_s, state.tasks = "done", 1, seconds, None
    if state.rows_written is not None and seconds:
        state.rows_per_s = state.rows_written / seconds


@contextmanager
def _tasks_displayed(spark: SparkSession, state: SinkProgress, report: Callable[[], None]) -> Iterator[None]:
    """Spark's calls block this thread, so another one polls the tasks."""
    is_over = Event()

    def poll() -> None:
        while not is_over.wait(_BATCH_POLL_S):
            tasks = _tasks(spark)
            if tasks is not None and tasks != state.tasks:
                state.tasks = tasks
                report()

    watcher = Thread(target=poll, name="pipeline-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _tasks(spark: SparkSession) -> tuple[int, int] | None:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    if not known:
        return None
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


# --- stream ---

_STREAM_POLL_S = 0.2
_TRIES = 5
_CONNECT_ERROR = "Python worker failed to connect back"
_BATCH_END_S = (
    10.0  # a stop waits so long for the running micro-batch; after the next start an interrupted one is repeated
)


@dataclass(slots=True)
class StreamRun:
    pipeline: Pipeline
    screen: Screen
    report: Callable[[], None]
    stop: Event
    once: bool
    interval_s: float
    _running: "list[_RunningQuery]" = field(default_factory=list)

    def run(self, outputs: Sequence[Output], states: Sequence[SinkProgress]) -> None:
        try:
            for output, state in zip(outputs, states, strict=True):
                self._start(output, state)
            while not self.stop.is_set() and any(running.is_active for running in self._running):
                self._poll()
            self._wait_for_batches()
        finally:
            for running in self._running:
                running.query.stop()
                running.poll()
        for running in self._running:
            running.progress.state = "stopped" if self.stop.is_set() else "done"

    def _start(self, output: Output, state: SinkProgress) -> None:
        """Returns after the first micro-batch; with `once`, after all."""
        for attempt in range(_TRIES):
            if self.stop.is_set():
                return
            state.state = "starting"
            self.report()
            query = _RunningQuery(self._query(output), state)
            while query.is_active and not self.stop.is_set() and (self.once or not query.has_begun):
                self._poll(query)
            if attempt == _TRIES - 1 or not query.connected_late:
                self._running.append(query)
                self._poll()
                return

    def _query(self, output: Output) -> StreamingQuery:
        try:
            return output.start(self.pipeline, self.screen, once=self.once, interval_s=self.interval_s)
        except Exception as error:
            raise to_ariane_error(error, f"sink {output.name} cannot start") from error

    def _poll(self, *starting: "_RunningQuery") -> None:
        """Raises the error of any query that failed, which ends all of them."""
        self.stop.wait(_STREAM_POLL_S)
        has_news = [query.poll() for query in (*self._running, *starting)]
        for query in self._running:
            query.raise_failure()
        if any(has_news):
            self.report()

    def _wait_for_batches(self) -> None:
        """Lets running micro-batches finish, so that the next start need not repeat them."""
        limit = monotonic() + _BATCH_END_S
        busy = [query for query in self._running if query.is_in_batch]
        while busy and monotonic() < limit:
            Event().wait(_STREAM_POLL_S)
            busy = [query for query in busy if not query.poll() and query.is_in_batch]


@dataclass(slots=True)
class _RunningQuery:
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
    def connected_late(self) -> bool:
        """Whether it ended only because the process of its source did not connect in time."""
        return not self.query.isActive and _CONNECT_ERROR in str(self.query.exception() or "")

    def poll(self) -> bool:
        """Adds new progress events; whether there were any."""
        events = self.query.recentProgress
        new = [event for event in events if f"{event['batchId']} {event['timestamp']}" not in self._seen]
        for event in new:
            self._seen.add(f"{event['batchId']} {event['timestamp']}")
            self.progress.add(event)
        return bool(new)

    def raise_failure(self) -> None:
        error = self.query.exception()
        if error is not None:
            self.progress.state = "failed"
            raise to_ariane_error(error, f"sink {self.progress.name} failed") from error
        if not self.query.isActive:
            self.progress.state = "done"


# --- jobs: archive, replay and rebuild, which report their own progress ---

Job = Callable[[SparkSession, Mapping[str, str], Callable[[dict[str, object]], None]], dict[str, object]]


def run_jobs(
    spark: SparkSession,
    pipeline: Pipeline,
    connection: Connection,
    report: Callable[[], None],
    states: Sequence[SinkProgress],
) -> None:
    for job, state in zip(pipeline.jobs, states, strict=True):
        state.state = "running"
        report()
        began = monotonic()
        try:
            facts = find_job(pipeline, job)(spark, job_texts(job, connection), _job_callback(state, report))
        except KeyboardInterrupt:
            state.state = "stopped"
            raise
        except Exception as error:
            state.state = "failed"
            raise to_ariane_error(error, f"job {job.name} failed") from error
        _update(state, facts)
        state.state, state.batch_s = "done", monotonic() - began
        report()


def find_job(pipeline: Pipeline, job: JobStep) -> Job:
    try:
        module: Any = importlib.import_module(f"ariane.spark.jobs.{job.job}")
    except ImportError as error:
        raise SettingsError(f"{pipeline.location(job.line)}: job {job.job} is not installed: {error}") from None
    run: Job = module.run
    return run


def _job_callback(state: SinkProgress, report: Callable[[], None]) -> Callable[[dict[str, object]], None]:
    def callback(facts: dict[str, object]) -> None:
        _update(state, facts)
        report()

    return callback


def _update(state: SinkProgress, facts: Mapping[str, object]) -> None:
    state.facts.update(facts)
    rows = facts.get("rows")
    if isinstance(rows, int):
        state.rows_written = rows


# --- runs ---


@dataclass(slots=True)
class PipelineRun:
    pipeline: Pipeline
    connection: Connection
    screen: Screen
    stop: Event
    """Set from outside to end a stream."""
    once: bool = False
    metrics: MetricsFile | None = None
    interval_s: float | None = None

    def run(self, spark: SparkSession) -> list[SinkProgress]:
        """The progress of each sink; raises an ArianeError if one failed, after the metrics have been written."""
        states: list[SinkProgress] = []
        try:
            self._run(spark, states)
        except BaseException as error:
            self._report(states, "stopped" if isinstance(error, KeyboardInterrupt) else "failed")
            raise
        self._report(states, "stopped" if self.stop.is_set() else "done")
        return states

    def _run(self, spark: SparkSession, states: list[SinkProgress]) -> None:
        report = self._reporter(states)
        if self.pipeline.jobs:
            states += [SinkProgress(job.name) for job in self.pipeline.jobs]
            run_jobs(spark, self.pipeline, self.connection, report, states)
            return
        with temp_views(spark, self.pipeline, self.connection) as views:
            sinks = outputs(self.pipeline, views, self.connection)
            states += [SinkProgress(output.name, output.is_dead_letters) for output in sinks]
            if self.pipeline.mode is Mode.BATCH:
                run_batch(spark, sinks, self.screen, report, states)
            else:
                interval_s = self.pipeline.interval_s if self.interval_s is None else self.interval_s
                StreamRun(self.pipeline, self.screen, report, self.stop, self.once, interval_s).run(sinks, states)

    def _reporter(self, states: Sequence[SinkProgress]) -> Callable[[], None]:
        return lambda: self._report(states, "running")

    def _report(self, states: Sequence[SinkProgress], state: str) -> None:
        self.screen.progress(states)
        if self.metrics is not None:
            self.metrics.write(state, states)
