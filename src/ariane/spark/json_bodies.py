"""Bodies that are JSON objects, as the columns of a schema.

A body that is no object, or has a value that does not fit its column, is a bad one. What becomes of it is chosen:

    PERMISSIVE      a row of nulls, and the text in the column for bad records: so it is if the schema has that column
    FAILFAST        the query stops: so it is if the schema has no such column
    DROPMALFORMED   no row, and a warning that counts them
    badRecordsPath  no row, and a line in a file of their own (bad_rows.py)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from ariane.errors import RecordError, SettingsError
from ariane.spark.json_values import reader_for
from ariane.spark.read_options import BadBodies, ReadOptions


@dataclass(frozen=True, slots=True)
class BadBody:
    number: int
    """Of the row in its batch."""
    reason: str


@dataclass(frozen=True, slots=True)
class Parsed:
    batch: pa.RecordBatch
    bad: list[BadBody]
    """Those that are not in the batch: with DROPMALFORMED and badRecordsPath."""


class JsonBodies:
    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        """Columns of the option `columns` are the message's own, such as queueOffset, and not fields of its body."""
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        self._named_bad_column = options.bad_record_column
        self._bad_column = _bad_column(schema, options)
        self._drops = options.bad_records_path is not None or options.bad_bodies is BadBodies.DROP
        self.message_columns = [name for name in options.column_list or [] if name in schema.names]
        self._fields = [name for name in schema.names if name not in {self._bad_column, *self.message_columns}]
        body = StructType([field for field in schema.fields if field.name in self._fields])
        self._read = reader_for(body, "body")
        self._decode = msgspec.json.Decoder().decode

    def parse(self, batch: pa.RecordBatch) -> Parsed:
        texts: list[str | None] = []
        bad: list[BadBody] = []
        rows = list(self._rows(batch, texts, bad))
        whole = pa.RecordBatch.from_arrays(
            [self._column(field, batch, rows, texts) for field in self._arrow], schema=self._arrow
        )
        if not bad or not self._drops:
            return Parsed(whole, [])
        keep = np.setdiff1d(np.arange(len(rows)), [one.number for one in bad])
        return Parsed(whole.take(pa.array(keep)), bad)

    def _column(
        self, field: pa.Field, batch: pa.RecordBatch, rows: list[dict[str, Any]], texts: list[str | None]
    ) -> pa.Array:
        if field.name == self._bad_column:
            return pa.array(texts, field.type)
        if field.name in self.message_columns:
            return batch.column(field.name).cast(field.type)
        return pa.array([row.get(field.name) for row in rows], field.type)

    def _rows(self, batch: pa.RecordBatch, texts: list[str | None], bad: list[BadBody]) -> Iterator[dict[str, Any]]:
        offsets = batch.column("queueOffset")
        for number, body in enumerate(batch.column("body").to_pylist()):
            try:
                yield self._read(self._decode(body))
                texts.append(None)
            except (ValueError, TypeError, OverflowError) as error:  # msgspec.DecodeError is a ValueError
                reason = str(error) or "a value of another type than its column"
                if self._bad_column is None and not self._drops:
                    raise self._bad_record(body, offsets[number].as_py(), reason) from None
                bad.append(BadBody(number, reason))
                yield {}
                texts.append(body.decode("utf-8", "replace"))

    def _bad_record(self, body: bytes, offset: int, reason: str) -> RecordError:
        return RecordError(
            f"the body of the message at queue offset {offset} does not fit the schema ({reason}): {body[:80]!r}. Add "
            f"a column {self._named_bad_column} STRING to the schema, and such bodies are put there, or give "
            "badRecordsPath"
        )


def _bad_column(schema: StructType, options: ReadOptions) -> str | None:
    """Where the text of bad bodies goes; None when it goes nowhere, or somewhere else."""
    name = options.bad_record_column
    if name in schema.names and not isinstance(schema[name].dataType, StringType):
        raise SettingsError(f"column {name} holds the text of bad records: its type must be STRING")
    if options.bad_bodies is BadBodies.KEEP and name not in schema.names:
        raise SettingsError(
            f"mode=PERMISSIVE puts the text of bad records into a column: add {name} STRING to the schema"
        )
    return name if name in schema.names and options.bad_bodies in (None, BadBodies.KEEP) else None
