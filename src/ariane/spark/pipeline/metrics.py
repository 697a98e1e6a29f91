"""The state of a run in a file, for programs: JSON, or Prometheus' text for the textfile collector of node_exporter."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time

from ariane.errors import SettingsError
from ariane.spark.pipeline.progress import SinkProgress

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
    """Replaced as a whole each time, so that nobody ever reads half of it."""

    pipeline: str
    path: Path
    started_s: float

    @classmethod
    def at(cls, pipeline: str, path: str) -> "MetricsFile":
        file = Path(path)
        if file.suffix not in (".json", ".prom"):
            raise SettingsError(f"metrics are written to a file that ends with .json or .prom, and not to {path}")
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
            for field, (name, doc) in names.items():
                known = [(sink.name, getattr(sink, field)) for sink in sinks if getattr(sink, field) is not None]
                yield from self._family(name, kind, doc, known)
        yield from self._family("dead_letters_total", "counter", "Bodies that did not fit.", _dead_by_name(sinks))
        yield "# HELP ariane_pipeline_up Whether the pipeline runs.\n# TYPE ariane_pipeline_up gauge"
        yield f'ariane_pipeline_up{{pipeline="{self.pipeline}"}} {int(state == "running")}'

    def _family(self, name: str, kind: str, doc: str, values: list[tuple[str, float]]) -> Iterator[str]:
        if values:
            yield f"# HELP ariane_pipeline_{name} {doc}\n# TYPE ariane_pipeline_{name} {kind}"
        for sink, value in values:
            yield f'ariane_pipeline_{name}{{pipeline="{self.pipeline}",sink="{sink}"}} {value}'


def dead_letters(sinks: Sequence[SinkProgress]) -> int | None:
    """None when no source keeps them."""
    counts = [sink.rows_written or 0 for sink in sinks if sink.is_dead_letters]
    return sum(counts) if counts else None


def _dead_by_name(sinks: Sequence[SinkProgress]) -> list[tuple[str, float]]:
    return [(sink.name, float(sink.rows_written or 0)) for sink in sinks if sink.is_dead_letters]


def _sink_json(sink: SinkProgress) -> dict[str, object]:
    value: dict[str, object] = {"state": sink.state, "batches": sink.batches}
    value |= {"rowsRead": sink.rows_read, "rowsWritten": sink.rows_written, "rowsPerSecond": sink.rows_per_s}
    value |= {"lag": sink.lag, "batchSeconds": sink.batch_s}
    return value | ({"facts": sink.facts} if sink.facts else {})
