"""Loads a pipeline file: from YAML to the model, then checks. Also finds the pipelines that come with Ariane.

SettingsError has FILE:LINE, cause and hint for each problem.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from ariane.errors import SettingsError
from ariane.spark.pipeline.checks import check
from ariane.spark.pipeline.document import (
    NAMESRV,
    TYPES,
    Document,
    Node,
    Param,
    Problems,
    Scalar,
    Section,
    Values,
    is_null,
    line_of,
    named_options,
    nearest,
    read_yaml,
)
from ariane.spark.pipeline.model import (
    DeadLetterTarget,
    JobStep,
    Mode,
    Pipeline,
    PythonStep,
    Sink,
    SinkKind,
    Source,
    SourceKind,
    SqlStep,
    Step,
    Watermark,
)

# --- sources, steps and sinks: from YAML to the model ---

JOBS = ("archive", "replay", "rebuild")
FORMATS = ("parquet", "json", "csv", "text", "orc")
_SQL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MESSAGE_KEYS = ("topic", "topicPattern", "schema", "columns", "dead_letters", "watermark", "options")
_SOURCE_KEYS = {
    SourceKind.TOPIC: (*_MESSAGE_KEYS, "static"),
    SourceKind.STORE: (*_MESSAGE_KEYS, "store"),
    SourceKind.ARCHIVE: (*_MESSAGE_KEYS, "archive"),
    SourceKind.FILES: ("files", "format", "schema", "watermark", "static", "options"),
}
_OPTION_NAMES = {"topic": "topic", "topicPattern": "topicPattern", "store": "storePath", "archive": "archivePath"}
_SINK_KEYS = {
    SinkKind.TOPIC: ("topic", "from", "mode", "json", "options"),
    SinkKind.PARQUET: ("parquet", "from", "mode", "partition_by", "options"),
    SinkKind.DELTA: ("delta", "from", "mode", "options"),
    SinkKind.ICEBERG: ("iceberg", "from", "mode", "options"),
    SinkKind.CONSOLE: ("console", "from", "mode"),
}
_SINK_MODES = ("append", "overwrite", "update", "complete")
_CONSOLE_ROWS = 20


def view_names(document: Document, section: Section) -> list[str]:
    """The members of `sources`, `steps` or `sinks` whose names are valid in SQL and as directories."""
    for name in section.fields:
        if not _SQL_NAME.fullmatch(name):
            section.problem(name, "a name may have letters, digits and _, and must not begin with a digit")
    return [name for name in section.fields if _SQL_NAME.fullmatch(name)]


def _all_keys(keys: "dict[SourceKind, tuple[str, ...]] | dict[SinkKind, tuple[str, ...]]") -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for some in keys.values() for key in some))


def _reject_other_keys(section: Section, kind: str, known: tuple[str, ...]) -> None:
    for name in section.fields:
        if name not in known:
            section.problem(name, f"is not used with `{kind}`: remove it (there are {', '.join(known)})")


# --- sources ------------------------------------------------------------------------------------------------------


def read_source(document: Document, name: str, node: Node) -> Source | None:
    section = document.section(node, f"source {name}", _all_keys(_SOURCE_KEYS))
    kind = _source_kind(section)
    if kind is None:
        return None
    _reject_other_keys(section, kind, _SOURCE_KEYS[kind])
    if kind is SourceKind.FILES:
        options = {"path": section.required("files"), **section.texts("options")}
    else:
        options = named_options(section, _OPTION_NAMES) | section.texts("options")
    if kind is SourceKind.ARCHIVE:
        options.setdefault("readMode", "archive")
    return Source(
        name=name,
        line=section.line,
        kind=kind,
        options=options,
        option_lines=section.lines_in("options"),
        format=section.choice("format", FORMATS, "parquet") if kind is SourceKind.FILES else "rocketmq",
        schema=section.optional("schema"),
        schema_line=section.line_of("schema"),
        columns=section.words("columns"),
        dead_letters=_dead_letters(section),
        watermark=_watermark(section),
        is_static=section.boolean("static", default=False),
    )


def _source_kind(section: Section) -> SourceKind | None:
    """A topic next to a directory selects messages in it."""
    directories = [name for name in ("store", "archive", "files") if name in section]
    if not directories and section.only_one_of(("topic", "topicPattern", "store", "archive", "files")) is not None:
        return SourceKind.TOPIC
    if len(directories) > 1:
        section.only_one_of(("store", "archive", "files"))
    return SourceKind(directories[0]) if len(directories) == 1 else None


def _dead_letters(section: Section) -> DeadLetterTarget | None:
    if "dead_letters" not in section:
        return None
    if "schema" not in section:
        section.problem("dead_letters", "bodies are only parsed with a `schema`: give one, or remove this key")
    below = section.inner("dead_letters", ("topic", "parquet"))
    kind = below.only_one_of(("topic", "parquet"))
    return None if kind is None else DeadLetterTarget(SinkKind(kind), below.text(kind))


def _watermark(section: Section) -> Watermark | None:
    if "watermark" not in section:
        return None
    column, _, delay = section.text("watermark").partition(" ")
    if not column or not delay.strip():
        section.problem("watermark", "a column and a time expected, such as `at 10 minutes`")
    return Watermark(column, delay.strip())


# --- steps --------------------------------------------------------------------------------------------------------


def read_step(document: Document, name: str, node: Node) -> Step | None:
    section = document.section(node, f"step {name}", ("sql", "python", "job", "inputs", "args", "options", "cluster"))
    kind = section.only_one_of(("sql", "python", "job"))
    if kind == "sql":
        _reject_other_keys(section, kind, ("sql",))
        where = section.fields["sql"]
        is_block = isinstance(where, Scalar) and where.style == "|"
        return SqlStep(name, line_of(where), section.text("sql"), is_block)
    if kind == "python":
        _reject_other_keys(section, kind, ("python", "inputs", "args"))
        inputs = section.words("inputs") or ()
        return PythonStep(name, section.line_of("python"), section.text("python"), inputs, section.texts("args"))
    if kind == "job":
        _reject_other_keys(section, kind, ("job", "options", "cluster"))
        job = section.choice("job", JOBS, JOBS[0])
        options, lines = section.texts("options"), section.lines_in("options")
        return JobStep(name, section.line, job, options, section.boolean("cluster", default=True), lines)
    return None


# --- sinks --------------------------------------------------------------------------------------------------------


def read_sink(document: Document, name: str, node: Node) -> Sink | None:
    section = document.section(node, f"sink {name}", _all_keys(_SINK_KEYS))
    if section.unset & set(SinkKind) and not set(section.fields) & set(SinkKind):
        return None  # the parameter of its target is not set: an optional sink
    target = section.only_one_of(tuple(SinkKind))
    if target is None:
        return None
    kind = SinkKind(target)
    _reject_other_keys(section, kind, _SINK_KEYS[kind])
    is_console = kind is SinkKind.CONSOLE
    return Sink(
        name=name,
        line=section.line_of("from"),
        kind=kind,
        view=section.required("from"),
        target=str(section.whole("console", _CONSOLE_ROWS)) if is_console else section.text(kind),
        mode=section.choice("mode", _SINK_MODES, "append"),
        as_json=section.boolean("json", default=False),
        partition_by=section.words("partition_by") or (),
        options=section.texts("options"),
    )


# --- the whole file ---

_TOP = (
    *("pipeline", "about", "mode", "interval", "checkpoint", "metrics", "spark"),
    *("params", "sources", "steps", "sinks"),
)
_PIPELINE_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = Values({})
T = TypeVar("T")


def load_pipeline(path: Path, given: Mapping[str, str], namesrv: str, shown_as: str | None = None) -> Pipeline:
    """The pipeline with the parameters `given`. Connects to nothing and does not start Spark."""
    file = shown_as or str(path)
    root = read_yaml(path, file)
    problems = Problems(file)
    top = Document(_PLAIN, problems).section(root, "the pipeline", _TOP)
    params = _params(top, problems)
    document = Document(_values(params, given, namesrv, problems), problems)
    pipeline = _pipeline(document, root, path, file, params)
    if not problems:
        check(pipeline, namesrv, problems)
    problems.raise_if_any()
    return pipeline


def load_params(path: Path, shown_as: str | None = None) -> tuple[str, dict[str, Param]]:
    """The description of a pipeline, and the declarations of its parameters."""
    file = shown_as or str(path)
    root = read_yaml(path, file)
    problems = Problems(file)
    top = Document(_PLAIN, problems).section(root, "the pipeline", _TOP)
    params = _params(top, problems)
    about = top.text("about")
    problems.raise_if_any()
    return about, params


def _pipeline(document: Document, root: Node, path: Path, file: str, params: dict[str, Param]) -> Pipeline:
    top = document.section(root, "the pipeline", _TOP)
    name = top.required("pipeline")
    if name and not _PIPELINE_NAME.fullmatch(name):
        top.problem("pipeline", f"{name[:60]!r} is not a valid name: letters, digits, - and _ expected")
    return Pipeline(
        name=name,
        file=file,
        directory=path.resolve().parent,
        about=top.text("about"),
        mode=Mode(top.choice("mode", tuple(Mode), Mode.BATCH)),
        interval_s=top.duration("interval", 0.0),
        checkpoint=top.optional("checkpoint"),
        metrics=top.optional("metrics"),
        spark=top.texts("spark"),
        params=params,
        sources=_members(document, top, "sources", read_source),
        steps=_members(document, top, "steps", read_step),
        sinks=_members(document, top, "sinks", read_sink),
    )


def _members(
    document: Document, top: Section, name: str, read: Callable[[Document, str, Node], T | None]
) -> dict[str, T]:
    if name not in top:
        return {}
    section = document.section(top.fields[name], name)
    members = {member: read(document, member, section.fields[member]) for member in view_names(document, section)}
    return {member: value for member, value in members.items() if value is not None}


def _params(top: Section, problems: Problems) -> dict[str, Param]:
    if "params" not in top:
        return {}
    section = top.document.section(top.fields["params"], "params")
    params = {}
    for name in view_names(top.document, section):
        if name == NAMESRV:
            section.problem(name, "is built in, with the nameservers of -n: choose another name")
        params[name] = _param(section, name)
        param = params[name]
        problem = None if param.default is None else param.problem_with(param.default)
        if problem:
            section.problem(name, f"the default {problem}")
    return params


def _param(section: Section, name: str) -> Param:
    node = section.fields[name]
    if isinstance(node, Scalar):  # the short form
        return Param(name, line_of(node), default=None if is_null(node) else section.text(name))
    below = section.inner(name, ("type", "default", "choices", "about"))
    has_default = "default" in below and not is_null(below.fields["default"])
    return Param(
        name,
        below.line,
        below.choice("type", TYPES, "string"),
        below.text("default") if has_default else None,
        "default" not in below,
        below.words("choices") or (),
        below.text("about"),
    )


def _values(params: Mapping[str, Param], given: Mapping[str, str], namesrv: str, problems: Problems) -> Values:
    for name, text in given.items():
        if name not in params:
            raise SettingsError(f"--set {name}: {problems.file} has no such parameter: {nearest(name, params)}")
        problem = params[name].problem_with(text)
        if problem:
            raise SettingsError(f"--set {name}={text}: {problem}")
    values: dict[str, str | None] = {NAMESRV: namesrv}
    for name, param in params.items():
        values[name] = given.get(name, param.default)
        if param.is_required and name not in given:
            about = f" ({param.about.rstrip('.')})" if param.about else ""
            problems.add(param.line, f"parameter {name}{about} has no default: give it with --set {name}=VALUE")
            values[name] = _placeholder(param)
    return Values(values)


def _placeholder(param: Param) -> str:
    """For a missing value, so that its uses are not reported as well."""
    return param.choices[0] if param.choices else {"duration": "1s", "bool": "true"}.get(param.type, "0")


# --- the pipelines that come with Ariane ---

DIRECTORY = Path(__file__).parents[1] / "pipelines"


def shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(DIRECTORY.glob("*.yaml"))}


def find(name: str) -> tuple[Path, str]:
    """The file, and its name in messages. A path has a suffix or a slash; anything else is the name of a pipeline."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.parent != Path():
        return path, name
    known = shipped()
    if name not in known:
        raise SettingsError(
            f"there is no pipeline {name}: {nearest(name, known)}, or give a file such as ./{name}.yaml"
        )
    return known[name], f"{name}.yaml"
