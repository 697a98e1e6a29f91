"""Parses bodies that are JSON objects into the columns of a schema.

A body that is not an object, or has a value that does not fit its column, is bad. The options say how it is handled:

    PERMISSIVE      a row of nulls, and the text in the column for bad records: the default if the schema has it
    FAILFAST        the query stops: the default if the schema has no such column
    DROPMALFORMED   no row, and a warning that counts them
    badRecordsPath  no row, and a row in the file of bad records (output.py)

Values are checked strictly where a lax conversion would change the meaning: "7" is not a number, and 1.5 not a BIGINT.
"""

import math
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from ariane.errors import RecordError, SettingsError
from ariane.spark.options.read import BadBodies, ReadOptions

# --- JSON values as Spark types ---

Reader = Callable[[Any], Any]
_INTEGERS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}


def reader_for(kind: DataType, where: str) -> Reader:
    """From a JSON value to what Arrow takes for `kind`; TypeError or ValueError for a value that does not fit."""
    bits = _INTEGERS.get(type(kind))
    if bits is not None:
        return partial(_integer, limit=1 << (bits - 1))
    if isinstance(kind, ArrayType):
        return partial(_array, item=_or_null(reader_for(kind.elementType, where)))
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return partial(_map, item=_or_null(reader_for(kind.valueType, where)))
    if isinstance(kind, StructType):
        fields = {field.name: _or_null(reader_for(field.dataType, f"{where}.{field.name}")) for field in kind.fields}
        return partial(_struct, fields=fields)
    plain = _PLAIN.get(type(kind))
    if plain is None:
        raise SettingsError(f"column {where} is {kind.simpleString()}, which JSON bodies cannot be read as: use STRING")
    return plain


def _or_null(reader: Reader) -> Reader:
    return lambda value: None if value is None else reader(value)


def _integer(value: Any, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
        raise ValueError
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _text(value: Any) -> str:
    """Numbers and objects as their JSON text, as Spark's from_json has it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise ValueError from None


def _timestamp(value: Any) -> datetime:
    if not isinstance(value, str):
        raise TypeError
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _date(value: Any) -> date:
    if not isinstance(value, str):
        raise TypeError
    return date.fromisoformat(value)


def _binary(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    return b64decode(value, validate=True)


def _array(value: Any, item: Reader) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return [item(element) for element in value]


def _map(value: Any, item: Reader) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise TypeError
    return [(name, item(element)) for name, element in value.items()]


def _struct(value: Any, fields: dict[str, Reader]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return {name: read(value.get(name)) for name, read in fields.items()}


_PLAIN: dict[type[DataType], Reader] = {
    FloatType: _float,
    DoubleType: _float,
    BooleanType: _boolean,
    StringType: _text,
    DecimalType: _decimal,
    TimestampType: _timestamp,
    DateType: _date,
    BinaryType: _binary,
}


# --- bodies ---


@dataclass(frozen=True, slots=True)
class BadBody:
    number: int
    """The row in its batch."""
    reason: str


@dataclass(frozen=True, slots=True)
class Parsed:
    batch: pa.RecordBatch
    bad: list[BadBody]
    """The bodies that are not in the batch, with DROPMALFORMED and badRecordsPath."""


class JsonBodies:
    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        """Columns of the option `columns` are those of the message, such as queueOffset, not fields of its body."""
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
        keep = np.setdiff1d(np.arange(len(rows)), [body.number for body in bad])
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
                reason = str(error) or "a value of the wrong type for its column"
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
    """The column for the text of bad bodies, if there is one."""
    name = options.bad_record_column
    if name in schema.names and not isinstance(schema[name].dataType, StringType):
        raise SettingsError(f"column {name} holds the text of bad records: its type must be STRING")
    if options.bad_bodies is BadBodies.KEEP and name not in schema.names:
        raise SettingsError(
            f"mode=PERMISSIVE puts the text of bad records into a column: add {name} STRING to the schema"
        )
    return name if name in schema.names and options.bad_bodies in (None, BadBodies.KEEP) else None
