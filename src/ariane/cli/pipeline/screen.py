"""Output of `ariane pipeline run`: tables on stdout; progress on stderr, as a live table or as lines."""

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from ariane.cli.common.output import OutputFormat, render

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from ariane.spark.pipeline.progress import SinkProgress

_LINE_EVERY_S = 1.0
_FACTS_MAX = 6


class PipelineScreen:
    def __init__(self, output: OutputFormat) -> None:
        self._output = output
        self._lock = threading.Lock()
        self.is_terminal = sys.stderr.isatty()
        self._live: Live | None = None
        self._printed: dict[str, tuple[float, str, str]] = {}

    def progress(self, sinks: "Sequence[SinkProgress]") -> None:
        with self._lock:
            if self.is_terminal:
                self._refresh(sinks)
            else:
                for sink in sinks:
                    self._print_line(sink)

    def table(self, sink: str, batch: int | None, rows: Sequence[Mapping[str, object]], left_out: bool) -> None:
        plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
        with self._lock:
            self._stop_live()
            if self._output is OutputFormat.TABLE:
                click.echo(f"\n{sink}" if batch is None else f"\n{sink}, batch {batch}")
                render(plain, OutputFormat.TABLE)
                if not plain:
                    click.echo("(no rows)")
            else:
                render([{"sink": sink, **row} for row in plain], self._output)
            if left_out:
                click.echo(f"{sink}: only the first {len(rows)} rows are shown", err=True)
            sys.stdout.flush()

    def close(self) -> None:
        with self._lock:
            self._stop_live()

    # --- lines ---

    def _print_line(self, sink: "SinkProgress") -> None:
        """At most one line a second for each sink; changes of its state are always printed."""
        line = progress_line(sink)
        printed_at, state, last = self._printed.get(sink.name, (0.0, "waiting", ""))
        now = time.monotonic()
        if line == last or (state == sink.state and now - printed_at < _LINE_EVERY_S):
            return
        self._printed[sink.name] = (now, sink.state, line)
        click.echo(line, err=True)

    # --- live table on a terminal ---

    def _refresh(self, sinks: "Sequence[SinkProgress]") -> None:
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=Console(file=sys.stderr), auto_refresh=False)
            self._live.start()
        self._live.update(_live_table(sinks), refresh=True)

    def _stop_live(self) -> None:
        """Printing a result table would garble it; the next progress draws it again below."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def progress_line(sink: "SinkProgress") -> str:
    return (
        f"{sink.name}: {', '.join([sink.state, *(f'{text} {name}' for name, text in _figures(sink).items() if text)])}"
    )


def _figures(sink: "SinkProgress") -> dict[str, str]:
    done, total = sink.tasks or (0, 0)
    return {
        "batches": f"{sink.batches:,}" if sink.batches > 1 else "",
        "rows read": _count(sink.rows_read),
        "rows written": _count(sink.rows_written),
        "rows/s": "" if sink.rows_per_s is None else f"{sink.rows_per_s:,.0f}",
        "lag": _count(sink.lag),
        "s for a batch": "" if sink.batch_s is None else f"{sink.batch_s:.1f}",
        "tasks": f"{done} of {total}" if total else "",
        "": " ".join(f"{name}={value}" for name, value in list(sink.facts.items())[:_FACTS_MAX] if name != "rows"),
    }


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _live_table(sinks: "Sequence[SinkProgress]") -> "Table":
    from rich.table import Table

    rows = [_figures(sink) for sink in sinks]
    shown = [name for name in (rows[0] if rows else {}) if any(row[name] for row in rows)]
    table = Table(box=None, pad_edge=False)
    for name in ("sink", "state", *shown):
        table.add_column(name, justify="right" if name in shown and name else "left")
    for sink, row in zip(sinks, rows, strict=True):
        table.add_row(sink.name, sink.state, *(row[name] for name in shown))
    return table


def _plain(value: object) -> object:
    """A value that a table and JSON can show."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
    if isinstance(value, date | Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    return [_plain(member) for member in value] if isinstance(value, list | tuple) else value
