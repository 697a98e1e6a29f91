"""Bodies that are JSON objects, as the columns of the user's schema.

A body that is no object, or has a value that does not fit its column, is a bad record. It becomes a row of nulls with
its text in the column for bad records if the schema has one; otherwise it stops the query. It is never left out.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from ariane.errors import RecordError, SettingsError
from ariane.spark.json_values import reader_for


class JsonBodies:
    def __init__(self, schema: StructType, bad_column: str, message_columns: list[str] | None = None) -> None:
        """Columns in `message_columns` are the message's own, such as queueOffset, and not fields of its body."""
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        self._bad_column = bad_column if bad_column in schema.names else None
        self._named_bad_column = bad_column
        self.message_columns = [name for name in message_columns or [] if name in schema.names]
        self._fields = [name for name in schema.names if name not in {self._bad_column, *self.message_columns}]
        if self._bad_column is not None and not isinstance(schema[bad_column].dataType, StringType):
            raise SettingsError(f"column {bad_column} holds the text of bad records: its type must be STRING")
        body = StructType([field for field in schema.fields if field.name in self._fields])
        self._read = reader_for(body, "body")
        self._decode = msgspec.json.Decoder().decode

    def parse(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        bad: list[str | None] = []
        rows = list(self._rows(batch, bad))
        arrays = [self._column(field, batch, rows, bad) for field in self._arrow]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    def _column(
        self, field: pa.Field, batch: pa.RecordBatch, rows: list[dict[str, Any]], bad: list[str | None]
    ) -> pa.Array:
        if field.name == self._bad_column:
            return pa.array(bad, field.type)
        if field.name in self.message_columns:
            return batch.column(field.name).cast(field.type)
        return pa.array([row.get(field.name) for row in rows], field.type)

    def _rows(self, batch: pa.RecordBatch, bad: list[str | None]) -> Iterator[dict[str, Any]]:
        offsets = batch.column("queueOffset")
        for number, body in enumerate(batch.column("body").to_pylist()):
            try:
                yield self._read(self._decode(body))
                bad.append(None)
            except (ValueError, TypeError, OverflowError) as error:  # msgspec.DecodeError is a ValueError
                if self._bad_column is None:
                    raise self._bad_record(body, offsets[number].as_py(), error) from None
                yield {}
                bad.append(body.decode("utf-8", "replace"))

    def _bad_record(self, body: bytes, offset: int, error: Exception) -> RecordError:
        return RecordError(
            f"the body of the message at queue offset {offset} does not fit the schema ({str(error) or 'wrong type'}): "
            f"{body[:80]!r}. Add a column {self._named_bad_column} STRING to the schema, and such bodies are put there"
        )
