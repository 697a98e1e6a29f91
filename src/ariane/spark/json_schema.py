"""The schema that a sample of JSON bodies has. Pure.

Whole numbers are BIGINT, or DECIMAL(38, 0) when one needs more; numbers with a point are DOUBLE; times stay STRING,
because texts that look like times may be none. Where two bodies differ in kind, the column is STRING, and the value its
JSON text. Fields are sorted by name, so that the order of the sample means nothing.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from ariane.errors import SettingsError

_LONG = 1 << 63
_WIDE = 10**38
_NOTHING: DataType = NullType()


def infer_schema(bodies: Iterable[bytes]) -> StructType | None:
    """The schema of all bodies that are objects; None when there is none among them."""
    decode = msgspec.json.Decoder().decode
    kinds = []
    for body in bodies:
        try:
            value = decode(body)
        except ValueError:
            continue
        if isinstance(value, dict):
            kinds.append(_kind(value))
    if not kinds:
        return None
    whole = _settled(reduce(_merged, kinds))
    if not isinstance(whole, StructType):  # every object was empty
        return None
    _check_names(whole)
    return whole


def _kind(value: Any) -> DataType:
    match value:
        case None:
            return NullType()
        case bool():
            return BooleanType()
        case int():
            return _number(value)
        case float():
            return DoubleType()
        case dict():
            return _struct({name: _kind(one) for name, one in value.items()})
        case list():
            return ArrayType(reduce(_merged, map(_kind, value), _NOTHING))
    return StringType()


def _number(value: int) -> DataType:
    if -_LONG <= value < _LONG:
        return LongType()
    return DecimalType(38, 0) if abs(value) < _WIDE else DoubleType()


def _struct(kinds: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kinds[name]) for name in sorted(kinds)])


def _merged(one: DataType, other: DataType) -> DataType:
    if one == other or isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    if isinstance(one, StructType) and isinstance(other, StructType):
        kinds = {field.name: field.dataType for field in one.fields}
        for field in other.fields:
            kinds[field.name] = _merged(kinds.get(field.name, NullType()), field.dataType)
        return _struct(kinds)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merged(one.elementType, other.elementType))
    return _both_numbers(one, other) or StringType()


def _both_numbers(one: DataType, other: DataType) -> DataType | None:
    kinds = {type(one), type(other)}
    if not kinds <= {LongType, DecimalType, DoubleType}:
        return None
    return DoubleType() if DoubleType in kinds else DecimalType(38, 0)


def _settled(kind: DataType) -> DataType:
    """What was never but null, and objects without fields, are texts: something may come there."""
    if isinstance(kind, StructType) and kind.fields:
        return StructType([StructField(field.name, _settled(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_settled(kind.elementType))
    return StringType() if isinstance(kind, (NullType, StructType)) else kind


def _check_names(schema: StructType) -> None:
    """Spark does not tell `id` from `Id`; which of the two is meant, only the user can say."""
    seen: dict[str, str] = {}
    for field in schema.fields:
        other = seen.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise SettingsError(
                f"bodies have both {other!r} and {field.name!r}, which Spark does not tell apart: give the schema "
                "with .schema(...)"
            )
        if isinstance(field.dataType, StructType):
            _check_names(field.dataType)
