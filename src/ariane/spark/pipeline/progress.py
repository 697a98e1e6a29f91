"""Progress of the sinks of a run, for the terminal and for a metrics file. Unknown numbers are None, never 0."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Any, Protocol

from ariane.errors import SettingsError
from ariane.spark.offsets import from_nested

ROWS_METRIC = "ariane_rows"
"""Name of the Spark observation that counts the rows of a sink."""


@dataclass(slots=True)
class SinkProgress:
    name: str
    is_dead_letters: bool = False
    state: str = "waiting"
    """waiting, starting, running, done, stopped or failed."""
    batches: int = 0
    rows_read: int | None = None
    rows_written: int | None = None
    rows_per_s: float | None = None
    lag: int | None = None
    """Messages of the topics that no batch has read yet."""
    batch_s: float | None = None
    tasks: tuple[int, int] | None = None
    """In a batch: tasks done, and all known tasks."""
    facts: dict[str, object] = field(default_factory=dict)
    """What a job reports."""

    def add(self, event: Mapping[str, Any]) -> None:
        """Adds a progress event of Spark: a micro-batch, or a trigger without new data."""
        read = int(event.get("numInputRows") or 0)
        duration_ms = (event.get("durationMs") or {}).get("triggerExecution")
        self.state = "running"
        self.lag = _lag(event.get("sources") or [])
        if not read and not _rows_written(event):
            return
        self.batches += 1
        self.rows_read = (self.rows_read or 0) + read
        self.rows_written = (self.rows_written or 0) + _rows_written(event)
        self.rows_per_s = _number(event.get("processedRowsPerSecond"))
        self.batch_s = None if duration_ms is None else duration_ms / 1000


class Screen(Protocol):
    """Displays a run. `table` is called from another thread than `progress`."""

    def progress(self, sinks: Sequence[SinkProgress]) -> None: ...

    def table(self, sink: str, batch: int | None, rows: Sequence[Mapping[str, object]], left_out: bool) -> None: ...


def _rows_written(event: Mapping[str, Any]) -> int:
    observed = (event.get("observedMetrics") or {}).get(ROWS_METRIC)
    return 0 if observed is None else int(observed["rows"])


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value == value else None  # NaN is unknown


def _lag(sources: Sequence[Mapping[str, Any]]) -> int | None:
    lags = [_source_lag(_json(source.get("endOffset")), _json(source.get("latestOffset"))) for source in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _source_lag(end: Any, latest: Any) -> int | None:
    """None for a source other than `rocketmq`."""
    try:
        ends, latest_offsets = from_nested(end["o"], "an offset"), from_nested(latest["o"], "an offset")
    except (TypeError, KeyError, SettingsError):
        return None
    return sum(max(0, latest_offset - ends.get(queue, 0)) for queue, latest_offset in latest_offsets.items())


def _json(value: object) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None


# --- metrics file: JSON, or Prometheus text for the textfile collector of node_exporter ---

_GAUGES = {
    "rows_per_s": ("rows_per_second", "Rows of the last micro-batch by its time."),
    "lag": ("lag_messages", "Messages in the topics that no micro-batch has read yet."),
    "batch_s": ("batch_seconds", "Time of the last micro-batch."),
}
_COUNTERS = {
    "batches": ("batches_total", "Micro-batches with rows."),
    "rows_read": ("rows_read_total", "Rows read for a sink."),
    "rows_written": ("rows_written_total", "Rows written to a sink."),
}


@dataclass(slots=True)
class MetricsFile:
    """Replaced atomically each time, so that a reader never sees half of it."""

    pipeline: str
    path: Path
    started_s: float

    @classmethod
    def at(cls, pipeline: str, path: str) -> "MetricsFile":
        file = Path(path)
        if file.suffix not in (".json", ".prom"):
            raise SettingsError(f"metrics cannot be written to {path}: give a file that ends with .json or .prom")
        return cls(pipeline, file, time())

    def write(self, state: str, sinks: Sequence[SinkProgress]) -> None:
        text = self._json(state, sinks) if self.path.suffix == ".json" else "\n".join(self._prometheus(state, sinks))
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(text + "\n", encoding="utf-8")
            fresh.replace(self.path)
        except OSError as error:
            raise SettingsError(f"metrics cannot be written to {self.path}: {error.strerror or error}") from None

    def _json(self, state: str, sinks: Sequence[SinkProgress]) -> str:
        value = {
            "pipeline": self.pipeline,
            "state": state,
            "startedMs": int(self.started_s * 1000),
            "updatedMs": int(time() * 1000),
            "deadLetters": dead_letters(sinks),
            "sinks": {sink.name: _sink_json(sink) for sink in sinks},
        }
        return json.dumps(value, indent=2, default=str)

    def _prometheus(self, state: str, sinks: Sequence[SinkProgress]) -> Iterator[str]:
        for names, kind in ((_COUNTERS, "counter"), (_GAUGES, "gauge")):
            for attribute, (name, doc) in names.items():
                values = ((sink.name, getattr(sink, attribute)) for sink in sinks)
                known = [(sink, value) for sink, value in values if value is not None]
                yield from self._family(name, kind, doc, known)
        yield from self._family(
            "dead_letters_total", "counter", "Bodies that did not match the schema.", _dead_letters_by_name(sinks)
        )
        yield "# HELP ariane_pipeline_up Whether the pipeline runs.\n# TYPE ariane_pipeline_up gauge"
        yield f'ariane_pipeline_up{{pipeline="{self.pipeline}"}} {int(state == "running")}'

    def _family(self, name: str, kind: str, doc: str, values: list[tuple[str, float]]) -> Iterator[str]:
        if values:
            yield f"# HELP ariane_pipeline_{name} {doc}\n# TYPE ariane_pipeline_{name} {kind}"
        for sink, value in values:
            yield f'ariane_pipeline_{name}{{pipeline="{self.pipeline}",sink="{sink}"}} {value}'


def dead_letters(sinks: Sequence[SinkProgress]) -> int | None:
    """None when no source has a target for them."""
    counts = [sink.rows_written or 0 for sink in sinks if sink.is_dead_letters]
    return sum(counts) if counts else None


def _dead_letters_by_name(sinks: Sequence[SinkProgress]) -> list[tuple[str, float]]:
    return [(sink.name, float(sink.rows_written or 0)) for sink in sinks if sink.is_dead_letters]


def _sink_json(sink: SinkProgress) -> dict[str, object]:
    value: dict[str, object] = {"state": sink.state, "batches": sink.batches}
    value |= {"rowsRead": sink.rows_read, "rowsWritten": sink.rows_written, "rowsPerSecond": sink.rows_per_s}
    value |= {"lag": sink.lag, "batchSeconds": sink.batch_s}
    return value | ({"facts": sink.facts} if sink.facts else {})
