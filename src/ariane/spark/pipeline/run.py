"""One run of a pipeline, from its views to its last row."""

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
from ariane.spark.pipeline.dataframes import Output, made_views, outputs
from ariane.spark.pipeline.functions import Connection, our_error
from ariane.spark.pipeline.model import JobStep, Mode, Pipeline, SinkKind
from ariane.spark.pipeline.progress import MetricsFile, Screen, SinkProgress

# --- batch_run ---
#
# A batch: one sink after the other, with the tasks that are done shown meanwhile.

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
        with _tasks_shown(spark, state, report):
            try:
                state.rows_written = _write(output, screen)
            except KeyboardInterrupt:
                state.state = "stopped"
                raise
            except Exception as error:
                state.state = "failed"
                raise our_error(error, f"sink {output.name} failed") from error
        _finish(state, monotonic() - began)
        report()


def _write(output: Output, screen: Screen) -> int | None:
    """How many rows were written; None when Spark did not count, which it does not for a plan it has emptied."""
    if output.sink.kind is SinkKind.CONSOLE:
        output.write(output.rows, screen)
        return None
    observation = Observation()
    output.write(output.counted(observation), screen)
    return _observed(observation)


def _observed(observation: Observation) -> int | None:
    """`get` waits for ever when the metric never comes; the future behind it says whether it is there."""
    assert observation._jo is not None
    return int(observation.get["rows"]) if observation._jo.future().isCompleted() else None


def _finish(state: SinkProgress, seconds: float) -> None:
    state.state, state.batches, state.batch_s, state.tasks = "done", 1, seconds, None
    if state.rows_written is not None and seconds:
        state.rows_per_s = state.rows_written / seconds


@contextmanager
def _tasks_shown(spark: SparkSession, state: SinkProgress, report: Callable[[], None]) -> Iterator[None]:
    """Spark's calls block this thread, so another one looks."""
    is_over = Event()

    def look() -> None:
        while not is_over.wait(_BATCH_POLL_S):
            tasks = _tasks(spark)
            if tasks is not None and tasks != state.tasks:
                state.tasks = tasks
                report()

    watcher = Thread(target=look, name="pipeline-progress", daemon=True)
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


# --- stream_run ---
#
# A stream: one query for each sink, with a checkpoint of its own, until all are done or somebody says stop.
#
# Each query has a Python process for its source, which Spark gives ten seconds to report. So queries are started one
# after the other, each when the one before has done its first micro-batch, and tried again when a busy machine took
# longer. With `--once` each runs to its end before the next starts: side by side they would only slow each other down.

_STREAM_POLL_S = 0.2
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
        self.stop.wait(_STREAM_POLL_S)
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
            Event().wait(_STREAM_POLL_S)
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


# --- jobs_run ---
#
# Jobs: archive, replay and rebuild, which are programs of their own and tell how far they are.

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
            told = find_job(pipeline, job)(spark, job_texts(job, connection), _teller(state, report))
        except KeyboardInterrupt:
            state.state = "stopped"
            raise
        except Exception as error:
            state.state = "failed"
            raise our_error(error, f"job {job.name} failed") from error
        _note(state, told)
        state.state, state.batch_s = "done", monotonic() - began
        report()


def find_job(pipeline: Pipeline, job: JobStep) -> Job:
    try:
        module: Any = importlib.import_module(f"ariane.spark.jobs.{job.job}")
    except ImportError as error:
        raise SettingsError(f"{pipeline.place(job.line)}: job {job.job} is not installed: {error}") from None
    run: Job = module.run
    return run


def _teller(state: SinkProgress, report: Callable[[], None]) -> Callable[[dict[str, object]], None]:
    def tell(facts: dict[str, object]) -> None:
        _note(state, facts)
        report()

    return tell


def _note(state: SinkProgress, facts: Mapping[str, object]) -> None:
    state.facts.update(facts)
    rows = facts.get("rows")
    if isinstance(rows, int):
        state.rows_written = rows


# ---


@dataclass(slots=True)
class PipelineRun:
    pipeline: Pipeline
    connection: Connection
    screen: Screen
    stop: Event
    """Set by somebody else to end a stream."""
    once: bool = False
    metrics: MetricsFile | None = None
    interval_s: float | None = None

    def run(self, spark: SparkSession) -> list[SinkProgress]:
        """How far each sink came; raises an ArianeError for whatever failed, after the metrics have been written."""
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
        with made_views(spark, self.pipeline, self.connection) as views:
            made = outputs(self.pipeline, views, self.connection)
            states += [SinkProgress(one.name, one.is_dead_letters) for one in made]
            if self.pipeline.mode is Mode.BATCH:
                run_batch(spark, made, self.screen, report, states)
            else:
                interval_s = self.pipeline.interval_s if self.interval_s is None else self.interval_s
                StreamRun(self.pipeline, self.screen, report, self.stop, self.once, interval_s).run(made, states)

    def _reporter(self, states: Sequence[SinkProgress]) -> Callable[[], None]:
        return lambda: self._report(states, "running")

    def _report(self, states: Sequence[SinkProgress], state: str) -> None:
        self.screen.progress(states)
        if self.metrics is not None:
            self.metrics.write(state, states)
