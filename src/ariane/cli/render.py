"""Rows as a table for people, or as JSON, JSON lines or CSV for programs: the same rows.

A table on a terminal is cut at its right edge. Into a file or a pipe nothing is ever cut, so `| less -S` shows all.
"""

import csv
import io
import json
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

import click

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
