"""A table of messages as duckdb sees it: a dataset of Arrow, which it asks for columns and for rows that fit.

It asks once for each place where a query names the table, in whatever thread is free; every time a new scan begins.
"""

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from ariane.arrow.schema import message_schema
from ariane.sql.tables import MessageTable

_WORD = re.compile(r"\w+")


class MessageDataset(ds.Dataset):  # type: ignore[misc]
    """Derived from Arrow's own class because duckdb looks for it; nothing of it is used."""

    def __init__(self, table: MessageTable, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = list(columns)
        self.failure: BaseException | None = None
        """What ended a scan: duckdb only keeps its text."""

    @property
    def schema(self) -> pa.Schema:
        return message_schema(self._columns)

    def scanner(self, columns: Sequence[str] | None = None, filter: ds.Expression = None, **_: object) -> "Scanner":
        given = self._columns if columns is None else list(columns)
        return Scanner(message_schema(given), self._batches(given, filter))

    def _batches(self, columns: list[str], condition: ds.Expression) -> Iterator[pa.RecordBatch]:
        """A column may be needed for the condition alone."""
        words = set(_WORD.findall(str(condition))) if condition is not None else set()
        read = [name for name in self._columns if name in columns or name in words]
        try:
            for batch in self._table.batches(read, self._table.progress.begin()):
                yield (batch if condition is None else batch.filter(condition)).select(columns)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = error
            raise


class Scanner:
    """The one method of Arrow's scanner that is called. Arrow's own would read far ahead of a query with a limit."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches)
