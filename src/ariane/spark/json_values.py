"""JSON values as Spark types. Strict where a lax reading would change the meaning: "7" is no number, 1.5 no BIGINT."""

import math
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import msgspec
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

from ariane.errors import SettingsError

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
    return [item(one) for one in value]


def _map(value: Any, item: Reader) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise TypeError
    return [(name, item(one)) for name, one in value.items()]


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
