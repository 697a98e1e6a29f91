"""What can be wrong although each part is right: views that nobody makes, cycles, options, streams without an end."""

from graphlib import CycleError, TopologicalSorter

from ariane.errors import SettingsError
from ariane.spark.delta_options import DeltaOptions
from ariane.spark.iceberg_options import read_iceberg_options
from ariane.spark.option_values import read_options
from ariane.spark.pipeline.functions import check_function
from ariane.spark.pipeline.job_checks import check_job
from ariane.spark.pipeline.mistakes import Mistakes, nearest
from ariane.spark.pipeline.model import JobStep, Mode, Pipeline, PythonStep, Sink, SinkKind, Source, SourceKind, SqlStep
from ariane.spark.pipeline.sql_names import views_read
from ariane.spark.read_options import ReadOptions
from ariane.spark.write_options import WriteOptions

_STREAM_MODES = {
    SinkKind.TOPIC: ("append", "update"),
    SinkKind.PARQUET: ("append",),
    SinkKind.DELTA: ("append",),
    SinkKind.ICEBERG: ("append",),
    SinkKind.CONSOLE: ("append", "update", "complete"),
}
_BATCH_MODES = {
    SinkKind.TOPIC: ("append",),
    SinkKind.PARQUET: ("append", "overwrite"),
    SinkKind.DELTA: ("append", "overwrite"),
    SinkKind.ICEBERG: ("append", "overwrite"),
    SinkKind.CONSOLE: ("append",),
}


def check(pipeline: Pipeline, namesrv: str, mistakes: Mistakes) -> None:
    if pipeline.jobs:
        _check_jobs(pipeline, namesrv, mistakes)
        return
    _check_shape(pipeline, mistakes)
    for source in pipeline.sources.values():
        _check_source(source, pipeline.mode, mistakes)
    needs = {name: _needs(pipeline, name, mistakes) for name in pipeline.steps}
    try:
        tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        _tell_cycle(pipeline, error.args[1], mistakes)
        return
    are_steps_right = not mistakes
    for sink in pipeline.sinks.values():
        _check_sink(pipeline, sink, mistakes)
        if are_steps_right and sink.view in (*pipeline.sources, *pipeline.steps):
            _check_reads_stream(pipeline, sink, mistakes)


def view_order(pipeline: Pipeline) -> list[str]:
    """Steps, each behind those that it reads."""
    needs = {name: [view for view in needed_by(pipeline, name) if view in pipeline.steps] for name in pipeline.steps}
    return list(TopologicalSorter(needs).static_order())


def sources_of(pipeline: Pipeline, view: str) -> set[str]:
    """The sources that a view is made from."""
    if view in pipeline.sources:
        return {view}
    return {name for below in needed_by(pipeline, view) for name in sources_of(pipeline, below)}


def needed_by(pipeline: Pipeline, step_name: str) -> list[str]:
    step = pipeline.steps.get(step_name)
    if isinstance(step, SqlStep):
        known = {name.lower(): name for name in (*pipeline.sources, *pipeline.steps)}
        return [known[one.view.lower()] for one in views_read(step.sql) if one.view.lower() in known]
    return list(step.inputs) if isinstance(step, PythonStep) else []


def _check_shape(pipeline: Pipeline, mistakes: Mistakes) -> None:
    for name in ("sources", "sinks"):
        if not getattr(pipeline, name):
            mistakes.add(1, f"the pipeline has no {name}: add `{name}:` with at least one")
    for name in sorted({one.lower() for one in pipeline.sources} & {one.lower() for one in pipeline.steps}):
        line = next(step.line for step in pipeline.steps.values() if step.name.lower() == name)
        mistakes.add(line, f"step {name} has the name of a source: choose another one")
    if pipeline.mode is Mode.STREAM and pipeline.checkpoint is None:
        mistakes.add(1, "a stream needs `checkpoint: DIRECTORY`, from which it goes on after a stop")
    if pipeline.mode is Mode.BATCH and pipeline.interval_s:
        mistakes.add(1, "interval is for streams: leave it out, or say `mode: stream`")


def _check_jobs(pipeline: Pipeline, namesrv: str, mistakes: Mistakes) -> None:
    for job in pipeline.jobs:
        check_job(job, namesrv, mistakes)
    others = [step for step in pipeline.steps.values() if not isinstance(step, JobStep)]
    for other in (*others, *pipeline.sources.values(), *pipeline.sinks.values()):
        mistakes.add(other.line, f"{other.name} stands beside a job: a file with jobs has nothing else")
    if pipeline.mode is Mode.STREAM:
        mistakes.add(1, "a file with jobs is no stream: leave out `mode: stream`")


# --- sources ------------------------------------------------------------------------------------------------------


def _check_source(source: Source, mode: Mode, mistakes: Mistakes) -> None:
    if source.kind is SourceKind.FILES:
        if source.is_stream(mode) and source.schema is None:
            mistakes.add(source.line, f"source {source.name}: a stream of files needs `schema`, or say `static: true`")
        return
    columns = {} if source.columns is None else {"columns": ",".join(source.columns)}
    try:
        options = read_options(ReadOptions, {**source.options, **columns})
    except SettingsError as error:
        mistakes.add(_line_of_fault(source, str(error)), f"source {source.name}: {error}")
        return
    if source.is_stream(mode):
        _check_stream(source, options, mistakes)


def _line_of_fault(source: Source, told: str) -> int:
    """Of the first option that the message names, when the file gives it by itself."""
    named = [line for option, line in source.option_lines.items() if option in told]
    return named[0] if named else source.line


def _check_stream(source: Source, options: ReadOptions, mistakes: Mistakes) -> None:
    if options.ending != "latest" or options.ending_timestamp is not None or options.as_of is not None:
        mistakes.add(source.line, f"source {source.name}: a stream has no end: leave out the options that name one")
    starts_now = options.starting == "latest" or options.starting_timestamp is not None
    if starts_now and options.group is None:
        mistakes.add(
            source.line,
            f"source {source.name}: a stream from latest or from a time needs the option consumerGroup, under which "
            "the broker keeps where it began",
        )


# --- steps --------------------------------------------------------------------------------------------------------


def _needs(pipeline: Pipeline, name: str, mistakes: Mistakes) -> list[str]:
    step = pipeline.steps[name]
    known = [*pipeline.sources, *pipeline.steps]
    if isinstance(step, SqlStep):
        _check_sql(step, known, mistakes)
    elif isinstance(step, PythonStep):
        for view in step.inputs:
            if view not in known:
                mistakes.add(step.line, f"step {name} reads {view}, which is no view: {nearest(view, known)}")
        fault = check_function(step, pipeline.directory)
        if fault:
            mistakes.add(step.line, f"step {name}: {fault}")
    return [view for view in needed_by(pipeline, name) if view in pipeline.steps]


def _check_sql(step: SqlStep, known: list[str], mistakes: Mistakes) -> None:
    lowered = {name.lower() for name in known}
    if not step.sql.strip():
        mistakes.add(step.line, f"step {step.name} has no SQL")
    for view, position in views_read(step.sql):
        if view.lower() not in lowered:
            line = step.line + (step.sql.count("\n", 0, position) if step.is_block else 0)
            mistakes.add(line, f"step {step.name} reads {view}, which is no view: {nearest(view, known)}")


def _tell_cycle(pipeline: Pipeline, cycle: list[str], mistakes: Mistakes) -> None:
    line = min(pipeline.steps[name].line for name in cycle)
    if len(set(cycle)) == 1:
        mistakes.add(line, f"step {cycle[0]} reads itself: read the view it is made from")
    else:
        mistakes.add(line, f"steps read each other in a circle, {' <- '.join(cycle)}: one must read something else")


# --- sinks --------------------------------------------------------------------------------------------------------


def _check_sink(pipeline: Pipeline, sink: Sink, mistakes: Mistakes) -> None:
    known = [*pipeline.sources, *pipeline.steps]
    if sink.view not in known:
        mistakes.add(sink.line, f"sink {sink.name} is from {sink.view}, which is no view: {nearest(sink.view, known)}")
        return
    modes = (_STREAM_MODES if pipeline.mode is Mode.STREAM else _BATCH_MODES)[sink.kind]
    if sink.mode not in modes:
        told = f"in a {pipeline.mode} {sink.kind} knows {', '.join(modes)}"
        mistakes.add(sink.line, f"sink {sink.name} has mode {sink.mode}: {told}")
    try:
        _check_sink_options(sink)
    except SettingsError as error:
        mistakes.add(sink.line, f"sink {sink.name}: {error}")


def _check_reads_stream(pipeline: Pipeline, sink: Sink, mistakes: Mistakes) -> None:
    streams = [name for name in sources_of(pipeline, sink.view) if pipeline.sources[name].is_stream(pipeline.mode)]
    if pipeline.mode is Mode.STREAM and not streams:
        mistakes.add(sink.line, f"sink {sink.name} reads no stream: use `mode: batch`, or a topic that is not static")


def _check_sink_options(sink: Sink) -> None:
    if sink.kind is SinkKind.TOPIC:
        read_options(WriteOptions, {"topic": sink.target, **sink.options})
    elif sink.kind is SinkKind.DELTA:
        read_options(DeltaOptions, {"path": sink.target, **sink.options})
    elif sink.kind is SinkKind.ICEBERG:
        read_iceberg_options({"table": sink.target, **sink.options})
