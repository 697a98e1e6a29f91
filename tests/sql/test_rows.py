"""Values of every type as JSON values."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ariane.sql.rows import printable, rows_of, unique_names


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Decimal("4900"), 4900),
        (Decimal("1.50"), 1.5),
        (Decimal("0.1234567890123456789"), "0.1234567890123456789"),
        (Decimal("1E+3"), 1000),
        (float("nan"), "nan"),
        (b'{"n": 1}', '{"n": 1}'),
        (b"\xff\x00", "base64:/wA="),
        (datetime(2026, 3, 1, 9, 30, tzinfo=UTC), "2026-03-01T09:30:00Z"),
        (datetime(2026, 3, 1, 9, 30), "2026-03-01T09:30:00"),
        (date(2026, 3, 1), "2026-03-01"),
        (None, None),
        (True, True),
    ],
)
def test_a_value_is_a_number_or_a_text_and_loses_nothing(value: Any, shown: object) -> None:
    assert printable(value) == shown
    json.dumps(shown)


def test_nested_values_are_converted_too() -> None:
    kind = pa.struct([("keys", pa.list_(pa.binary())), ("properties", pa.map_(pa.string(), pa.decimal128(10, 2)))])
    value = {"keys": [b"a", None], "properties": [("price", Decimal("1.50"))]}
    batch = pa.RecordBatch.from_arrays([pa.array([value, None], kind)], names=["m"])
    assert list(rows_of(batch, ["m"])) == [{"m": {"keys": ["a", None], "properties": {"price": 1.5}}}, {"m": None}]


def test_an_empty_map_is_an_object() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([[]], pa.map_(pa.string(), pa.string()))], names=["m"])
    assert list(rows_of(batch, ["m"])) == [{"m": {}}]


def test_no_two_columns_have_one_name() -> None:
    assert unique_names(["a", "b", "a", "a"]) == ["a", "b", "a_1", "a_2"]
    assert len(set(unique_names(["a", "a", "a_1"]))) == 3
