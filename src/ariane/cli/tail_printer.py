"""Puts messages on stdout in the form that was asked for."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ariane.cli.render import Form
from ariane.cli.tail_rows import COLUMNS, line_format, row_of, table_row
from ariane.cli.tail_stream import RowStream
from ariane.client.received import Received

Show = Callable[[Received], None]


@contextmanager
def printing(form: Form, template: str | None) -> Iterator[Show]:
    if template is not None:
        line_of = line_format(template)
        yield lambda message: _write(_safe(line_of(row_of(message))))
        return
    with RowStream(form, COLUMNS) as stream:
        if form is Form.TABLE:
            yield lambda message: stream.add(table_row(row_of(message)))
        else:
            yield lambda message: stream.add(row_of(message))


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")


def _safe(line: str) -> str:
    """On a terminal without the control characters by which a message could take it over; elsewhere as it is."""
    if not sys.stdout.isatty() or line.isprintable():
        return line
    return "".join(char if char.isprintable() or char in "\t\n" else ascii(char)[1:-1] for char in line)
