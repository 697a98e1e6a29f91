"""Times as users type them."""

import pytest

from ariane.cli.common.parameters import parse_time

NOW_MS = 1_794_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW_MS),
        ("-15m", NOW_MS - 900_000),
        ("+10s", NOW_MS + 10_000),
        ("-250ms", NOW_MS - 250),
        ("+2h", NOW_MS + 7_200_000),
        ("-7d", NOW_MS - 604_800_000),
        ("1700000000123", 1_700_000_000_123),
        ("2026-03-01T09:30:00+00:00", 1_772_357_400_000),
        ("2026-03-01T17:30:00.125+08:00", 1_772_357_400_125),
    ],
)
def test_each_format_is_parsed(text: str, expected: int) -> None:
    assert parse_time(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "soon", "15m", "-15", "-15y", "17000", "2026-13-01", "+99999999999d", "-1.5h"])
def test_anything_else_is_refused_with_the_list_of_formats(text: str) -> None:
    with pytest.raises(ValueError, match="milliseconds since 1970"):
        parse_time(text, NOW_MS)
