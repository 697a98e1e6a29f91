"""Checks across the parts of a pipeline: unknown views, cycles, options, functions, stream settings and jobs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from ariane.errors import SettingsError, StoreMismatch
from ariane.spark.cluster import cluster_for
from ariane.spark.options.base import read_options
from ariane.spark.options.connection import ConnectionOptions
from ariane.spark.options.jobs import ArchiveOptions, RebuildOptions, ReplayOptions
from ariane.spark.options.lake import DeltaOptions, read_iceberg_options
from ariane.spark.options.read import ReadOptions
from ariane.spark.options.write import WriteOptions
from ariane.spark.pipeline.document import Problems, nearest
from ariane.spark.pipeline.functions import Connection, check_function, merged
from ariane.spark.pipeline.model import JobStep, Mode, Pipeline, PythonStep, Sink, SinkKind, Source, SourceKind, SqlStep
from ariane.spark.read.planning import Planner

# --- jobs: first the options, without any connection, then whether their inputs exist ---

Options = ArchiveOptions | ReplayOptions | RebuildOptions
_KINDS: dict[str, type[Options]] = {"archive": ArchiveOptions, "replay": ReplayOptions, "rebuild": RebuildOptions}


def check_job(job: JobStep, namesrv: str, problems: Problems) -> None:
    try:
        job_options(job, {"nameServer": namesrv})
    except SettingsError as error:
        named = [line for option, line in job.option_lines.items() if option in str(error)]
        problems.add(named[0] if named else job.line, f"step {job.name}: {error}")


def job_options(job: JobStep, connection: Connection) -> Options:
    return read_options(_KINDS[job.job], job_texts(job, connection))


def job_texts(job: JobStep, connection: Connection) -> dict[str, str]:
    """The options of a job, with the connection options if it uses a cluster; options of the file override them."""
    uses_cluster = job.needs_cluster and issubclass(_KINDS[job.job], ConnectionOptions)
    return merged(connection, job.options) if uses_cluster else dict(job.options)


def check_inputs_exist(pipeline: Pipeline, connection: Connection) -> None:
    """Checks the topics of jobs and every directory that is read, before Spark starts."""
    for source in pipeline.sources.values():
        if source.kind is SourceKind.STORE:
            _check_store(source.options["storePath"], pipeline.location(source.line))
        elif source.kind is SourceKind.ARCHIVE:
            _check_archive(source.options["archivePath"], pipeline.location(source.line))
    for job in pipeline.jobs:
        _check_job_inputs(job_options(job, connection), pipeline.location(job.line))


def _check_job_inputs(options: Options, location: str) -> None:
    if isinstance(options, RebuildOptions):
        _check_store(options.store_path, location)
    elif isinstance(options, ReplayOptions):
        cluster_for(options.client_settings()).route(options.to_topic, fresh=True)
        _check_read_inputs(options.reading(), location)
    else:
        _check_read_inputs(options.reading(), location)


def _check_read_inputs(options: ReadOptions, location: str) -> None:
    if options.store_path is not None:
        _check_store(options.store_path, location)
    elif options.archive_path is not None:
        _check_archive(options.archive_path, location)
    else:
        Planner(cluster_for(options.client_settings()), options).queues()


def _check_store(path: str, location: str) -> None:
    """Patterns are left to the reader, which expands them."""
    if not any(letter in path for letter in "*?[") and not (Path(path) / "commitlog").is_dir():
        raise StoreMismatch(f"{location}: {path} is not a store: give the directory that contains `commitlog`")


def _check_archive(path: str, location: str) -> None:
    if not Path(path).is_dir():
        raise StoreMismatch(f"{location}: there is no archive {path}: give the directory that the job archive wrote")


# --- views that an SQL text reads, found without Spark: names after FROM and JOIN that are not subqueries ---
#
# Only plain names are found. `db.table`, parquet.`path`, functions such as range(10) and wrong SQL are left to Spark,
# which reports them with their line before anything runs.

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[^\W\d]\w*)
      | (?P<number>\d[\w.]*)
      | (?P<mark>[(),.;])
      | (?P<space>\s+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ENDS_FROM = {"where", "group", "having", "order", "limit", "union", "intersect", "except", "minus", "window", "sort"}
_ENDS_FROM |= {"select", "qualify", "cluster", "distribute", "offset"}
_NO_VIEW = {"select", "lateral", "values"}


class Reference(NamedTuple):
    view: str
    position: int


class _Token(NamedTuple):
    kind: str
    text: str
    position: int

    @property
    def lower(self) -> str:
        return self.text.lower() if self.kind == "word" else self.text


@dataclass(slots=True)
class _Level:
    """Parser state inside one pair of brackets."""

    is_query: bool = False
    is_in_from: bool = False
    expects_view: bool = False


def views_read(sql: str) -> list[Reference]:
    tokens = list(_tokens(sql))
    defined = _defined_by_with(tokens)
    return [reference for reference in _references(tokens) if reference.view.lower() not in defined]


def _tokens(sql: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(sql):
        kind = found.lastgroup or "other"
        if kind in ("comment", "space"):
            continue
        text = found.group()
        if kind == "quoted":
            yield _Token("word", text[1:-1].replace("``", "`"), found.start())
        else:
            yield _Token(kind, text, found.start())


def _defined_by_with(tokens: list[_Token]) -> set[str]:
    """Names of common table expressions: NAME [(columns)] AS ( after WITH or a comma. One too many is harmless."""
    if not any(token.lower == "with" for token in tokens):
        return set()
    names = set()
    for at in range(len(tokens) - 2):
        is_plain = tokens[at + 1].lower == "as" and tokens[at + 2].text == "("
        has_columns = tokens[at + 1].text == "(" and _closes_before_as(tokens, at + 1)
        if tokens[at].kind == "word" and (is_plain or has_columns):
            names.add(tokens[at].lower)
    return names


def _closes_before_as(tokens: list[_Token], opening: int) -> bool:
    for at in range(opening, len(tokens) - 2):
        if tokens[at].text == ")":
            return tokens[at + 1].lower == "as" and tokens[at + 2].text == "("
    return False


def _references(tokens: list[_Token]) -> Iterator[Reference]:
    levels = [_Level(is_query=True)]
    for at, token in enumerate(tokens):
        level = levels[-1]
        if token.text == "(" and token.kind == "mark":
            # In FROM (a JOIN b) the list of tables continues inside the brackets.
            levels.append(_Level(is_in_from=level.expects_view, expects_view=level.expects_view))
            level.expects_view = False
        elif token.text == ")" and token.kind == "mark":
            if len(levels) > 1:
                levels.pop()
        elif token.text == "," and token.kind == "mark":
            level.expects_view = level.is_in_from
        elif token.kind == "word":
            yield from _word(level, tokens, at)
        else:
            level.expects_view = False


def _word(level: _Level, tokens: list[_Token], at: int) -> Iterator[Reference]:
    word = tokens[at].lower
    if level.expects_view:
        level.expects_view = word == "lateral"
        if word == "select":
            level.is_query, level.is_in_from = True, False
        elif word not in _NO_VIEW and not _is_more_than_a_name(tokens, at):
            yield Reference(tokens[at].text, tokens[at].position)
    elif word == "select":
        level.is_query, level.is_in_from = True, False
    elif word == "from" and level.is_query and not _is_distinct_from(tokens, at):
        level.is_in_from = level.expects_view = True
    elif word == "join" and level.is_in_from:
        level.expects_view = True
    elif word in _ENDS_FROM or word in ("on", "using"):
        level.is_in_from = level.is_in_from and word in ("on", "using")


def _is_more_than_a_name(tokens: list[_Token], at: int) -> bool:
    """A function, or a name of several parts."""
    following = tokens[at + 1].text if at + 1 < len(tokens) else ""
    return following in ("(", ".")


def _is_distinct_from(tokens: list[_Token], at: int) -> bool:
    return at >= 2 and tokens[at - 1].lower == "distinct" and tokens[at - 2].lower in ("is", "not")


# --- the whole pipeline ---

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


def check(pipeline: Pipeline, namesrv: str, problems: Problems) -> None:
    if pipeline.jobs:
        _check_jobs(pipeline, namesrv, problems)
        return
    _check_shape(pipeline, problems)
    for source in pipeline.sources.values():
        _check_source(source, pipeline.mode, problems)
    needs = {name: _needs(pipeline, name, problems) for name in pipeline.steps}
    try:
        tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        _report_cycle(pipeline, error.args[1], problems)
        return
    are_steps_right = not problems
    for sink in pipeline.sinks.values():
        _check_sink(pipeline, sink, problems)
        if are_steps_right and sink.view in (*pipeline.sources, *pipeline.steps):
            _check_reads_stream(pipeline, sink, problems)


def view_order(pipeline: Pipeline) -> list[str]:
    """Steps in an order in which each comes after those that it reads."""
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
        return [known[view.lower()] for view, _ in views_read(step.sql) if view.lower() in known]
    return list(step.inputs) if isinstance(step, PythonStep) else []


def _check_shape(pipeline: Pipeline, problems: Problems) -> None:
    for name in ("sources", "sinks"):
        if not getattr(pipeline, name):
            problems.add(1, f"the pipeline has no {name}: add `{name}:` with at least one")
    for name in sorted({source.lower() for source in pipeline.sources} & {step.lower() for step in pipeline.steps}):
        line = next(step.line for step in pipeline.steps.values() if step.name.lower() == name)
        problems.add(line, f"step {name} has the name of a source: choose another name")
    if pipeline.mode is Mode.STREAM and pipeline.checkpoint is None:
        problems.add(1, "a stream needs `checkpoint: DIRECTORY`, from which it continues after a stop")
    if pipeline.mode is Mode.BATCH and pipeline.interval_s:
        problems.add(1, "interval is for streams: leave it out, or set `mode: stream`")


def _check_jobs(pipeline: Pipeline, namesrv: str, problems: Problems) -> None:
    for job in pipeline.jobs:
        check_job(job, namesrv, problems)
    others = [step for step in pipeline.steps.values() if not isinstance(step, JobStep)]
    for other in (*others, *pipeline.sources.values(), *pipeline.sinks.values()):
        problems.add(other.line, f"{other.name} cannot be in a file with jobs: put it into another file")
    if pipeline.mode is Mode.STREAM:
        problems.add(1, "a file with jobs cannot be a stream: leave out `mode: stream`")


# --- sources ------------------------------------------------------------------------------------------------------


def _check_source(source: Source, mode: Mode, problems: Problems) -> None:
    if source.kind is SourceKind.FILES:
        if source.is_stream(mode) and source.schema is None:
            problems.add(source.line, f"source {source.name}: a stream of files needs `schema`, or set `static: true`")
        return
    columns = {} if source.columns is None else {"columns": ",".join(source.columns)}
    try:
        options = read_options(ReadOptions, {**source.options, **columns})
    except SettingsError as error:
        problems.add(_line_of_option(source, str(error)), f"source {source.name}: {error}")
        return
    if source.is_stream(mode):
        _check_stream(source, options, problems)


def _line_of_option(source: Source, message: str) -> int:
    """The line of the first option that the message names, else that of the source."""
    named = [line for option, line in source.option_lines.items() if option in message]
    return named[0] if named else source.line


def _check_stream(source: Source, options: ReadOptions, problems: Problems) -> None:
    if options.ending != "latest" or options.ending_timestamp is not None or options.as_of is not None:
        problems.add(source.line, f"source {source.name}: a stream has no end: leave out the options that name one")
    starts_now = options.starting == "latest" or options.starting_timestamp is not None
    if starts_now and options.group is None:
        problems.add(
            source.line,
            f"source {source.name}: a stream from latest or from a time needs the option consumerGroup, for which "
            "the broker stores the offsets where it began",
        )


# --- steps --------------------------------------------------------------------------------------------------------


def _needs(pipeline: Pipeline, name: str, problems: Problems) -> list[str]:
    step = pipeline.steps[name]
    known = [*pipeline.sources, *pipeline.steps]
    if isinstance(step, SqlStep):
        _check_sql(step, known, problems)
    elif isinstance(step, PythonStep):
        for view in step.inputs:
            if view not in known:
                problems.add(step.line, f"step {name} reads {view}, which is not a view: {nearest(view, known)}")
        problem = check_function(step, pipeline.directory)
        if problem:
            problems.add(step.line, f"step {name}: {problem}")
    return [view for view in needed_by(pipeline, name) if view in pipeline.steps]


def _check_sql(step: SqlStep, known: list[str], problems: Problems) -> None:
    lowered = {name.lower() for name in known}
    if not step.sql.strip():
        problems.add(step.line, f"step {step.name} has no SQL")
    for view, position in views_read(step.sql):
        if view.lower() not in lowered:
            line = step.line + (step.sql.count("\n", 0, position) if step.is_block else 0)
            problems.add(line, f"step {step.name} reads {view}, which is not a view: {nearest(view, known)}")


def _report_cycle(pipeline: Pipeline, cycle: list[str], problems: Problems) -> None:
    line = min(pipeline.steps[name].line for name in cycle)
    if len(set(cycle)) == 1:
        problems.add(line, f"step {cycle[0]} reads itself: read another view")
    else:
        problems.add(line, f"steps read each other in a cycle, {' <- '.join(cycle)}: one must read another view")


# --- sinks --------------------------------------------------------------------------------------------------------


def _check_sink(pipeline: Pipeline, sink: Sink, problems: Problems) -> None:
    known = [*pipeline.sources, *pipeline.steps]
    if sink.view not in known:
        problems.add(sink.line, f"sink {sink.name} reads {sink.view}, which is not a view: {nearest(sink.view, known)}")
        return
    modes = (_STREAM_MODES if pipeline.mode is Mode.STREAM else _BATCH_MODES)[sink.kind]
    if sink.mode not in modes:
        hint = f"in a {pipeline.mode} {sink.kind} supports {', '.join(modes)}"
        problems.add(sink.line, f"sink {sink.name} has mode {sink.mode}: {hint}")
    try:
        _check_sink_options(sink)
    except SettingsError as error:
        problems.add(sink.line, f"sink {sink.name}: {error}")


def _check_reads_stream(pipeline: Pipeline, sink: Sink, problems: Problems) -> None:
    streams = [name for name in sources_of(pipeline, sink.view) if pipeline.sources[name].is_stream(pipeline.mode)]
    if pipeline.mode is Mode.STREAM and not streams:
        problems.add(sink.line, f"sink {sink.name} reads no stream: use `mode: batch`, or a topic that is not static")


def _check_sink_options(sink: Sink) -> None:
    if sink.kind is SinkKind.TOPIC:
        read_options(WriteOptions, {"topic": sink.target, **sink.options})
    elif sink.kind is SinkKind.DELTA:
        read_options(DeltaOptions, {"path": sink.target, **sink.options})
    elif sink.kind is SinkKind.ICEBERG:
        read_iceberg_options({"table": sink.target, **sink.options})
