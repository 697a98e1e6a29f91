"""Sources, steps and sinks, from YAML to values."""

import re

from ariane.spark.pipeline.document import Document, Section, as_options
from ariane.spark.pipeline.model import (
    JobStep,
    Place,
    PythonStep,
    Sink,
    SinkKind,
    Source,
    SourceKind,
    SqlStep,
    Step,
    Watermark,
)
from ariane.spark.pipeline.nodes import Node, Scalar, line_of

JOBS = ("archive", "replay", "rebuild")
FORMATS = ("parquet", "json", "csv", "text", "orc")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
    """The members of `sources`, `steps` or `sinks` whose names SQL and directories can have."""
    for name in section.fields:
        if not _NAME.fullmatch(name):
            section.mistake(name, "a name has letters, digits and _, and does not begin with a digit")
    return [name for name in section.fields if _NAME.fullmatch(name)]


def _all_keys(keys: "dict[SourceKind, tuple[str, ...]] | dict[SinkKind, tuple[str, ...]]") -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for some in keys.values() for key in some))


def _refuse_others(section: Section, kind: str, known: tuple[str, ...]) -> None:
    for name in section.fields:
        if name not in known:
            section.mistake(name, f"means nothing beside `{kind}`: leave it out (there are {', '.join(known)})")


# --- sources ------------------------------------------------------------------------------------------------------


def read_source(document: Document, name: str, node: Node) -> Source | None:
    section = document.section(node, f"source {name}", _all_keys(_SOURCE_KEYS))
    kind = _source_kind(section)
    if kind is None:
        return None
    _refuse_others(section, kind, _SOURCE_KEYS[kind])
    if kind is SourceKind.FILES:
        options = {"path": section.required("files"), **section.texts("options")}
    else:
        options = as_options(section, _OPTION_NAMES) | section.texts("options")
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
    """A topic beside a directory says what is wanted of it."""
    places = [name for name in ("store", "archive", "files") if name in section]
    if not places and section.only_one_of(("topic", "topicPattern", "store", "archive", "files")) is not None:
        return SourceKind.TOPIC
    if len(places) > 1:
        section.only_one_of(("store", "archive", "files"))
    return SourceKind(places[0]) if len(places) == 1 else None


def _dead_letters(section: Section) -> Place | None:
    if "dead_letters" not in section:
        return None
    if "schema" not in section:
        section.mistake("dead_letters", "bodies are only taken apart with a `schema`: give one, or leave this out")
    below = section.inner("dead_letters", ("topic", "parquet"))
    kind = below.only_one_of(("topic", "parquet"))
    return None if kind is None else Place(SinkKind(kind), below.text(kind))


def _watermark(section: Section) -> Watermark | None:
    if "watermark" not in section:
        return None
    column, _, delay = section.text("watermark").partition(" ")
    if not column or not delay.strip():
        section.mistake("watermark", "a column and a time expected, such as `at 10 minutes`")
    return Watermark(column, delay.strip())


# --- steps --------------------------------------------------------------------------------------------------------


def read_step(document: Document, name: str, node: Node) -> Step | None:
    section = document.section(node, f"step {name}", ("sql", "python", "job", "inputs", "args", "options", "cluster"))
    kind = section.only_one_of(("sql", "python", "job"))
    if kind == "sql":
        _refuse_others(section, kind, ("sql",))
        where = section.fields["sql"]
        is_block = isinstance(where, Scalar) and where.style == "|"
        return SqlStep(name, line_of(where), section.text("sql"), is_block)
    if kind == "python":
        _refuse_others(section, kind, ("python", "inputs", "args"))
        inputs = section.words("inputs") or ()
        return PythonStep(name, section.line_of("python"), section.text("python"), inputs, section.texts("args"))
    if kind == "job":
        _refuse_others(section, kind, ("job", "options", "cluster"))
        job = section.choice("job", JOBS, JOBS[0])
        options, lines = section.texts("options"), section.lines_in("options")
        return JobStep(name, section.line, job, options, section.boolean("cluster", default=True), lines)
    return None


# --- sinks --------------------------------------------------------------------------------------------------------


def read_sink(document: Document, name: str, node: Node) -> Sink | None:
    section = document.section(node, f"sink {name}", _all_keys(_SINK_KEYS))
    if section.unset & set(SinkKind) and not set(section.fields) & set(SinkKind):
        return None  # it would go where nobody said: an optional sink
    found = section.only_one_of(tuple(SinkKind))
    if found is None:
        return None
    kind = SinkKind(found)
    _refuse_others(section, kind, _SINK_KEYS[kind])
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
