"""Output of commands: rows as a table for people, or as JSON, JSON lines or CSV for programs; and progress bars.

`render` prints rows that are all there, `RowStream` prints each row as it comes. On a terminal a table is truncated at
the right edge. In a file or a pipe nothing is ever truncated, so `| less -S` shows everything.
"""

import csv
import io
import json
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Row: TypeAlias = Mapping[str, object]

_GAP = "  "
_ELLIPSIS = "…"


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


def output_option(*formats: OutputFormat) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`-o`, with the formats that a command supports; all of them when none is named."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice([output.value for output in formats or OutputFormat]),
        callback=lambda context, parameter, value: OutputFormat(value),
        default=OutputFormat.TABLE.value,
        show_default=True,
        help="Output format.",
    )


def render(
    rows: Iterable[Row], output: OutputFormat, columns: Sequence[str] | None = None, *, truncate: bool = True
) -> None:
    """Prints the rows. A table shows only `columns`, or those of the first row; the other formats show every field.

    Without `truncate` a terminal wraps the long lines of a table, and nothing is lost.
    """
    if output is OutputFormat.TABLE:
        _print_table(list(rows), columns, truncate=truncate)
    elif output is OutputFormat.JSON:
        print_json(list(rows))
    else:
        with RowStream(output, {}) as stream:
            for row in rows:
                stream.add(row)
                sys.stdout.flush()


def print_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


class RowStream:
    """Prints rows as they come, while their number is not known yet.

    A table shows only `columns`. It cannot know how wide they will be: each has a minimum width, and a longer value
    shifts the rest of its line. JSON is one list, printed on exit.

    Rows are not flushed here. The caller flushes stdout before it waits: a system call for each row would cost more
    than the row.
    """

    def __init__(self, output: OutputFormat, columns: Mapping[str, int]) -> None:
        self._output = output
        self._columns = columns
        self._rows: list[Row] = []
        self._csv_names: list[str] | None = None
        self._has_heading = False

    def add(self, row: Row) -> None:
        if self._output is OutputFormat.JSON:
            self._rows.append(row)
        elif self._output is OutputFormat.JSONL:
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
        elif self._output is OutputFormat.CSV:
            self._add_csv(row)
        else:
            self._add_to_table(row)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Also after an error: the rows before it are valid."""
        if self._output is OutputFormat.JSON:
            print_json(self._rows)
        sys.stdout.flush()

    def _add_csv(self, row: Row) -> None:
        if self._csv_names is None:
            self._csv_names = list(row)
            sys.stdout.write(_csv_line(self._csv_names))
        sys.stdout.write(_csv_line([_csv_value(row.get(name)) for name in self._csv_names]))

    def _add_to_table(self, row: Row) -> None:
        if not self._has_heading:
            self._has_heading = True
            self._print_line({name: name for name in self._columns})
        self._print_line(row)

    def _print_line(self, row: Row) -> None:
        values = [row.get(name) for name in self._columns]
        cells = [
            _pad(_cell(value), width, right=isinstance(value, int))
            for value, width in zip(values, self._columns.values(), strict=True)
        ]
        sys.stdout.write(_table_line(cells, _terminal_width()))


def _csv_line(values: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue()


def _csv_value(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple | bool) else value


def _print_table(rows: Sequence[Row], columns: Sequence[str] | None, *, truncate: bool) -> None:
    """Each column is as wide as its longest value; a column of numbers is aligned right."""
    if not rows:
        return
    names = list(columns if columns is not None else rows[0])
    lines = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    is_number = [all(_is_number(row.get(name)) for row in rows) for name in names]
    edge = _terminal_width() if truncate else None
    for line in lines:
        cells = [_pad(text, width, right=right) for text, width, right in zip(line, widths, is_number, strict=True)]
        sys.stdout.write(_table_line(cells, edge))
    sys.stdout.flush()


def _table_line(cells: Iterable[str], edge: int | None) -> str:
    return _truncate(_GAP.join(cells).rstrip(), edge) + "\n"


def _terminal_width() -> int | None:
    """None where nothing is truncated: in a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _cell(value: object) -> str:
    """On one line, with control characters escaped: otherwise a message body could control the terminal."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        value = " ".join(f"{name}={member}" for name, member in value.items())
    elif isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return printable(str(value))


def printable(text: str) -> str:
    """With control characters escaped: for text of a peer that is printed outside of a table."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def _width(text: str) -> int:
    """In terminal cells: Chinese characters take two, combining characters none."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _pad(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks


def _truncate(line: str, edge: int | None) -> str:
    if edge is None or _width(line) <= edge:
        return line
    used = 0
    for index, char in enumerate(line):
        used += _char_width(char)
        if used >= edge:  # the ellipsis takes the last cell
            return line[:index].rstrip() + _ELLIPSIS
    return line


# --- progress bars ---

_LATE_S = 2.0


def progress_bar() -> "Progress":
    """On stderr; it disappears when it stops."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(file=sys.stderr), transient=True)


@dataclass(slots=True)
class LateProgress:
    """Shows a progress bar once the work takes longer than two seconds."""

    label: str
    total: int | None
    """None: not known yet."""
    is_enabled: bool
    done: int = 0
    _began: float = field(default_factory=time.monotonic)
    _bar: "tuple[Progress, TaskID] | None" = None

    def step(self) -> None:
        self.done += 1
        if self._bar is not None:
            self._bar[0].update(self._bar[1], completed=self.done)
        elif self.is_enabled and time.monotonic() - self._began > _LATE_S:
            self._bar = self._show()

    def _show(self) -> "tuple[Progress, TaskID]":
        bar = progress_bar()
        bar.start()
        return bar, bar.add_task(self.label, total=self.total, completed=self.done)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()


@contextmanager
def late_progress(label: str, total: int | None, *, rows_scroll_by: bool) -> Iterator[LateProgress]:
    """Only at a terminal, and not where rows are printed on the same terminal: the two would garble each other."""
    is_enabled = sys.stderr.isatty() and not (rows_scroll_by and sys.stdout.isatty())
    progress = LateProgress(label, total, is_enabled)
    try:
        yield progress
    finally:
        progress.stop()
