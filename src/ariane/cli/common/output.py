"""Rows as a table for people, or as JSON, JSON lines or CSV for programs: the same rows.

A table on a terminal is cut at its right edge. Into a file or a pipe nothing is ever cut, so `| less -S` shows all.
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
_CUT = "…"


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


def output_option(*forms: Form) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`-o`, for the forms that a command knows; all of them when none is named."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice([form.value for form in forms or Form]),
        callback=lambda context, parameter, value: Form(value),
        default=Form.TABLE.value,
        show_default=True,
        help="How to print the result.",
    )


def render(rows: Iterable[Row], form: Form, columns: Sequence[str] | None = None, *, is_whole: bool = False) -> None:
    """Prints the rows. A table shows `columns` only, or those of the first row; the other forms show everything.

    `is_whole`: a terminal breaks the long lines of a table and does not lose their ends.
    """
    if form is Form.JSON:
        print_json(list(rows))
    elif form is Form.JSONL:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
    elif form is Form.CSV:
        _print_csv(rows)
    else:
        _print_table(list(rows), columns, is_whole=is_whole)


def print_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def _print_csv(rows: Iterable[Row]) -> None:
    names: list[str] | None = None
    for row in rows:
        if names is None:
            names = list(row)
            click.echo(_csv_line(names), nl=False)
        click.echo(_csv_line([_csv_value(row.get(name)) for name in names]), nl=False)


def _csv_line(values: Sequence[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue()


def _csv_value(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple | bool) else value


def _print_table(rows: Sequence[Row], columns: Sequence[str] | None, *, is_whole: bool) -> None:
    if not rows:
        return
    names = list(columns if columns is not None else rows[0])
    lines = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    is_number = [all(_is_number(row.get(name)) for row in rows) for name in names]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() and not is_whole else None
    for line in lines:
        cells = [_pad(text, width, right) for text, width, right in zip(line, widths, is_number, strict=True)]
        click.echo(_cut(_GAP.join(cells).rstrip(), edge))


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _cell(value: object) -> str:
    """On one line, and without the control characters by which a message's text could take over a terminal."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        value = " ".join(f"{name}={member}" for name, member in value.items())
    elif isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return "".join(char if char.isprintable() else _escaped(char) for char in str(value))


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def _width(text: str) -> int:
    """In terminal cells: Chinese characters take two."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if _is_wide(char) else 1 for char in text)


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF"


def _pad(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks


def _cut(line: str, edge: int | None) -> str:
    if edge is None or _width(line) <= edge:
        return line
    while _width(line) >= edge:
        line = line[:-1]
    return line + _CUT


# --- tail_stream ---
#
# Rows that are printed as they come, while nobody knows yet how many there will be.
#
# The forms are those of render.py, which prints rows that are all there. A table cannot know how wide its columns will
# be: each has a usual width, and a longer value moves the rest of its line.
#
# Nothing is flushed here. Whoever adds rows flushes stdout before it waits: a system call for each row would cost more
# than the row.


class RowStream:
    """Rows of a table show `columns` only, each at least as wide as it says. Leave it, and JSON is printed whole."""

    def __init__(self, form: Form, columns: Mapping[str, int]) -> None:
        self._form = form
        self._columns = columns
        self._rows: list[Row] = []
        self._is_first = True

    def add(self, row: Row) -> None:
        if self._form is Form.JSON:
            self._rows.append(row)
        elif self._form is Form.JSONL:
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
        elif self._form is Form.CSV:
            self._add_csv(row)
        else:
            self._add_to_table(row)
        self._is_first = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Also after a failure: what came before it was true."""
        if self._form is Form.JSON:
            print_json(self._rows)
        sys.stdout.flush()

    def _add_csv(self, row: Row) -> None:
        if self._is_first:
            sys.stdout.write(_stream_csv_line(row))
        sys.stdout.write(_stream_csv_line(map(_csv_value, row.values())))

    def _add_to_table(self, row: Row) -> None:
        if self._is_first:
            self._print({name: name for name in self._columns})
        self._print(row)

    def _print(self, row: Row) -> None:
        line = _GAP.join(_padded_cell(row.get(name), width) for name, width in self._columns.items()).rstrip()
        sys.stdout.write((_cut_at_edge(line) if sys.stdout.isatty() else line) + "\n")


def _stream_csv_line(values: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue()


def _padded_cell(value: object, width: int) -> str:
    from rich.cells import cell_len  # Chinese characters take two cells

    text = _printable(value)
    blanks = " " * max(0, width - cell_len(text))
    return blanks + text if isinstance(value, int) else text + blanks


def _printable(value: object) -> str:
    """On one line, and without the control characters by which a message's text could take over a terminal."""
    text = "" if value is None else " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _cut_at_edge(line: str) -> str:
    from rich.cells import cell_len, set_cell_size

    edge = shutil.get_terminal_size().columns
    return line if cell_len(line) <= edge else set_cell_size(line, edge - 1).rstrip() + _CUT


# --- send_progress ---
#
# A line about work that takes longer than two seconds, for a person who waits at a terminal.

_LATE_S = 2.0


@dataclass(slots=True)
class LateProgress:
    label: str
    total: int | None
    """None: nobody knows how many there will be."""
    is_wanted: bool
    done: int = 0
    _began: float = field(default_factory=time.monotonic)
    _bar: "tuple[Progress, TaskID] | None" = None

    def step(self) -> None:
        self.done += 1
        if self._bar is not None:
            self._bar[0].update(self._bar[1], completed=self.done)
        elif self.is_wanted and time.monotonic() - self._began > _LATE_S:
            self._bar = self._show()

    def _show(self) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        bar = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        bar.start()
        return bar, bar.add_task(self.label, total=self.total, completed=self.done)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()


@contextmanager
def late_progress(label: str, total: int | None, *, rows_scroll_by: bool) -> Iterator[LateProgress]:
    """Not where rows are printed on the same terminal: the two would tear each other apart."""
    is_wanted = sys.stderr.isatty() and not (rows_scroll_by and sys.stdout.isatty())
    progress = LateProgress(label, total, is_wanted)
    try:
        yield progress
    finally:
        progress.stop()
