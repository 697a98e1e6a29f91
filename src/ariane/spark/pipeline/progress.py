"""How far each sink is. Numbers that nobody knows are None, and never 0."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ariane.errors import SettingsError
from ariane.spark.offsets import from_nested

ROWS_METRIC = "ariane_rows"
"""Under this name every sink's rows are counted on their way."""


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
    """Messages in the topics that no batch has read yet."""
    batch_s: float | None = None
    tasks: tuple[int, int] | None = None
    """Batch: tasks done, and all that are known."""
    facts: dict[str, object] = field(default_factory=dict)
    """What a job tells of itself."""

    def add(self, event: Mapping[str, Any]) -> None:
        """One of Spark's progress events: a micro-batch, or a look that found nothing new."""
        read = int(event.get("numInputRows") or 0)
        duration_ms = (event.get("durationMs") or {}).get("triggerExecution")
        self.state = "running"
        self.lag = _lag(event.get("sources") or [])
        if not read and not _written(event):
            return
        self.batches += 1
        self.rows_read = (self.rows_read or 0) + read
        self.rows_written = (self.rows_written or 0) + _written(event)
        self.rows_per_s = _number(event.get("processedRowsPerSecond"))
        self.batch_s = None if duration_ms is None else duration_ms / 1000


class Screen(Protocol):
    """Whoever shows a run to people. Tables come from another thread than the rest."""

    def progress(self, sinks: Sequence[SinkProgress]) -> None: ...

    def table(self, sink: str, batch: int | None, rows: Sequence[Mapping[str, object]], left_out: bool) -> None: ...


def _written(event: Mapping[str, Any]) -> int:
    observed = (event.get("observedMetrics") or {}).get(ROWS_METRIC)
    return 0 if observed is None else int(observed["rows"])


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value == value else None  # NaN is no number


def _lag(sources: Sequence[Mapping[str, Any]]) -> int | None:
    lags = [_source_lag(_json(one.get("endOffset")), _json(one.get("latestOffset"))) for one in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _source_lag(end: Any, latest: Any) -> int | None:
    """None for sources that are not ours."""
    try:
        ends, heads = from_nested(end["o"], "an offset"), from_nested(latest["o"], "an offset")
    except (TypeError, KeyError, SettingsError):
        return None
    return sum(max(0, head - ends.get(queue, 0)) for queue, head in heads.items())


def _json(value: object) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
