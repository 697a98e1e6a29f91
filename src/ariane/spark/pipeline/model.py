"""The pipeline model: the contents of a file, with parameters filled in. `line` is the line in the file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ariane.spark.pipeline.document import Param


class Mode(StrEnum):
    BATCH = "batch"
    STREAM = "stream"


class SourceKind(StrEnum):
    TOPIC = "topic"
    STORE = "store"
    ARCHIVE = "archive"
    FILES = "files"


class SinkKind(StrEnum):
    TOPIC = "topic"
    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class DeadLetterTarget:
    """Where bodies are written that do not match the schema."""

    kind: SinkKind
    target: str


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    name: str
    line: int
    kind: SourceKind
    options: Mapping[str, str]
    """Options of the data source or the file format, including topics and directories."""
    option_lines: Mapping[str, int] = field(default_factory=dict)
    format: str = "rocketmq"
    schema: str | None = None
    schema_line: int = 0
    columns: tuple[str, ...] | None = None
    dead_letters: DeadLetterTarget | None = None
    watermark: Watermark | None = None
    is_static: bool = False

    def is_stream(self, mode: Mode) -> bool:
        return mode is Mode.STREAM and self.kind in (SourceKind.TOPIC, SourceKind.FILES) and not self.is_static


@dataclass(frozen=True, slots=True)
class SqlStep:
    name: str
    line: int
    sql: str
    is_block: bool = False
    """Whether the lines of the SQL are lines of the file, beginning with `line`; else all of it is on `line`."""


@dataclass(frozen=True, slots=True)
class PythonStep:
    name: str
    line: int
    function: str
    inputs: tuple[str, ...]
    args: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobStep:
    name: str
    line: int
    job: str
    options: Mapping[str, str]
    needs_cluster: bool = True
    option_lines: Mapping[str, int] = field(default_factory=dict)


Step = SqlStep | PythonStep | JobStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    name: str
    line: int
    kind: SinkKind
    view: str
    target: str
    mode: str = "append"
    as_json: bool = False
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    file: str
    directory: Path
    about: str = ""
    mode: Mode = Mode.BATCH
    interval_s: float = 0.0
    checkpoint: str | None = None
    metrics: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Param] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    steps: Mapping[str, Step] = field(default_factory=dict)
    sinks: Mapping[str, Sink] = field(default_factory=dict)

    @property
    def jobs(self) -> list[JobStep]:
        return [step for step in self.steps.values() if isinstance(step, JobStep)]

    def location(self, line: int) -> str:
        return f"{self.file}:{line}"
