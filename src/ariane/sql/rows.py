"""Query results: the rows, what was scanned for them, and the conversion of Arrow values to JSON values."""

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import chain, count
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from ariane.sql.tables import Progress


@dataclass(slots=True)
class QueryResult:
    columns: Sequence[str]
    rows: Iterator[dict[str, object]]
    """Can be read once. What was scanned is complete when they have been read."""
    scanned: list[Progress] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def sentences(self) -> list[str]:
        return [*self.notes, *(sentence for progress in self.scanned for sentence in progress.sentences())]

    @property
    def is_complete(self) -> bool:
        return all(progress.is_complete for progress in self.scanned)


# --- Arrow values as JSON values: what JSON has no type for becomes text ---

Convert = Callable[[Any], object]


def rows_of(batch: pa.RecordBatch, names: list[str]) -> Iterator[dict[str, object]]:
    """`names` are unique names of the columns."""
    converts = [converter(field.type) for field in batch.schema]
    columns = [
        [convert(value) for value in column.to_pylist()]
        for column, convert in zip(batch.columns, converts, strict=True)
    ]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def unique_names(names: list[str]) -> list[str]:
    """`select a, a` has two columns of one name, which a JSON object cannot have."""
    result: list[str] = []
    for name in names:
        others = (f"{name}_{number}" for number in count(1))
        result.append(next(candidate for candidate in chain([name], others) if candidate not in result))
    return result


def converter(kind: pa.DataType) -> Convert:
    if kinds.is_map(kind):
        of_value = converter(kind.item_type)
        return lambda value: None if value is None else {str(key): of_value(item) for key, item in value}
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        of_item = converter(kind.value_type)
        return lambda value: None if value is None else [of_item(item) for item in value]
    if kinds.is_struct(kind):
        members = {field.name: converter(field.type) for field in kind}
        return lambda value: None if value is None else {name: of(value[name]) for name, of in members.items()}
    return printable


def printable(value: Any) -> object:
    """A scalar as a JSON value."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, bytes):
        return body_text(value)
    if isinstance(value, datetime):
        return value.isoformat().removesuffix("+00:00") + ("Z" if value.tzinfo is not None else "")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _number(value: Decimal) -> object:
    """As a number if that loses no precision. Sums of integers come as decimals."""
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def body_text(body: bytes) -> str:
    """The body as text if it is UTF-8, else as base64 with the prefix `base64:`."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(body).decode()}"
