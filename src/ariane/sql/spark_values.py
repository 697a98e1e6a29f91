"""Converts Spark values to the form that the embedded engine prints, so that both engines give the same output."""

from collections.abc import Callable
from datetime import UTC
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from ariane.sql.rows import printable

Convert = Callable[[Any], object]


def converter(kind: DataType) -> Convert:
    """Converter for the Python objects that pyspark makes of values of this type."""
    convert = _of_present(kind)
    return lambda value: None if value is None else convert(value)


def _of_present(kind: DataType) -> Convert:
    if isinstance(kind, MapType):
        of_value = converter(kind.valueType)
        return lambda value: {str(key): of_value(item) for key, item in value.items()}
    if isinstance(kind, ArrayType):
        of_item = converter(kind.elementType)
        return lambda value: [of_item(item) for item in value]
    if isinstance(kind, StructType):
        members = [(field.name, converter(field.dataType)) for field in kind.fields]
        return lambda value: {name: of(item) for (name, of), item in zip(members, value, strict=True)}
    if isinstance(kind, TimestampType):  # in the time zone of this machine, and without its name
        return lambda value: printable(value.astimezone(UTC))
    return lambda value: printable(bytes(value) if isinstance(value, bytearray) else value)
