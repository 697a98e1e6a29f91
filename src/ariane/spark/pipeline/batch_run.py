"""A batch: one sink after the other, with the tasks that are done shown meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

from pyspark.sql import Observation, SparkSession

from ariane.spark.pipeline.model import SinkKind
from ariane.spark.pipeline.outputs import Output
from ariane.spark.pipeline.progress import Screen, SinkProgress
from ariane.spark.pipeline.spark_faults import our_error

_LOOK_S = 0.5


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
        while not is_over.wait(_LOOK_S):
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
