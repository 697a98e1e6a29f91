"""Rows that are printed as they come, while nobody knows yet how many there will be.

The forms are those of render.py, which prints rows that are all there. A table cannot know how wide its columns will
be: each has a usual width, and a longer value moves the rest of its line.

Nothing is flushed here. Whoever adds rows flushes stdout before it waits: a system call for each row would cost more
than the row.
"""

import csv
import io
import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from ariane.cli.render import Form, Row, print_json

_GAP = "  "
_CUT = "…"


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
            sys.stdout.write(_csv_line(row))
        sys.stdout.write(_csv_line(map(_csv_value, row.values())))

    def _add_to_table(self, row: Row) -> None:
        if self._is_first:
            self._print({name: name for name in self._columns})
        self._print(row)

    def _print(self, row: Row) -> None:
        line = _GAP.join(_cell(row.get(name), width) for name, width in self._columns.items()).rstrip()
        sys.stdout.write((_cut_at_edge(line) if sys.stdout.isatty() else line) + "\n")


def _csv_line(values: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue()


def _csv_value(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple | bool) else value


def _cell(value: object, width: int) -> str:
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
