"""The columns of a table of messages: those that `select *` gives, and those that a query has to name.

They are those of `spark.read` (docs/spark.md), and two that are made from the body.
"""

import re
from collections.abc import Iterable

from ariane.arrow.schema import COLUMNS, DEFAULT_COLUMNS

BODY_TEXT, BODY_JSON = "body_text", "body_json"

_WORD = re.compile(r"\w+")


def named_columns(sql: str) -> list[str]:
    """What a query's tables have: the usual columns, and others that the query names somewhere.

    With all of them `select *` would be unreadable, and slow: properties alone halve the speed.
    """
    words = {word.lower() for word in _WORD.findall(sql)}
    return [name for name in COLUMNS if name in DEFAULT_COLUMNS or name.lower() in words]


def named_body_columns(sql: str) -> list[str]:
    words = {word.lower() for word in _WORD.findall(sql)}
    return [name for name in (BODY_TEXT, BODY_JSON) if name in words]


def cheapest_first(names: Iterable[str]) -> list[str]:
    """Numbers before texts: an engine that only counts reads the first column."""
    return sorted(names, key=lambda name: name != "queueOffset")
