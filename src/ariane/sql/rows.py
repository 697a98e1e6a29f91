"""What a query gave: rows as they come, and how they came about."""

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
    """Read once. What was scanned is known when they are at their end."""
    scanned: list[Progress] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def sentences(self) -> list[str]:
        return [*self.notes, *(sentence for progress in self.scanned for sentence in progress.sentences())]

    @property
    def is_whole(self) -> bool:
        return all(progress.is_whole for progress in self.scanned)


# --- values ---
#
# Values of Arrow as JSON has them: what cannot be a number, a word or a list there becomes text.

Convert = Callable[[Any], object]


def rows_of(batch: pa.RecordBatch, names: list[str]) -> Iterator[dict[str, object]]:
    """`names` are those of the columns, each one once."""
    converts = [converter(field.type) for field in batch.schema]
    columns = [
        [convert(value) for value in column.to_pylist()]
        for column, convert in zip(batch.columns, converts, strict=True)
    ]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def once_each(names: list[str]) -> list[str]:
    """`select a, a` has two columns of one name, and a row of JSON cannot."""
    result: list[str] = []
    for name in names:
        others = (f"{name}_{number}" for number in count(1))
        result.append(next(one for one in chain([name], others) if one not in result))
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
    """Of a scalar."""
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
    """As a number where that loses nothing. Sums of integers come as decimals."""
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def body_text(body: bytes) -> str:
    """Text where it is some; else base64, which says so."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(body).decode()}"
