"""What duckdb says about a query that it cannot run, in one sentence with the place, and with our exit codes.

Its errors are asked for as JSON, because in its texts a long line is cut and the place is lost.
"""

import json
import re
from collections.abc import Mapping

from ariane.errors import ArianeError, ClientError, ExpressionError, SettingsError
from ariane.sql.missing_tables import MissingTable

_WRONG_QUERY = frozenset({"Parser", "Binder", "Catalog"})
_KIND = re.compile(r"^(\w+(?: \w+)?) Error: ")


def as_ours(error: Exception, sql: str) -> ArianeError:
    """ExpressionError for a query that no data can make right, ClientError when it fails on this data."""
    told = _told(str(error))
    reason, kind = _sentence(told["exception_message"]), told.get("exception_type", "")
    if kind == "Catalog" and told.get("type") == "Table":
        return MissingTable(told.get("name", "?"))
    if kind in _WRONG_QUERY and told.get("position", "").isdigit():
        position = int(told["position"])
        return ExpressionError(f"{reason}{_line(sql, position)}", position + 1)
    if kind in _WRONG_QUERY:
        return SettingsError(f"the query is wrong: {reason}")
    return ClientError(f"the query failed: {reason}")


def _told(text: str) -> Mapping[str, str]:
    """Also when it comes through Arrow, which puts words before it, or when it is no JSON."""
    start = text.find("{")
    try:
        told = json.JSONDecoder().raw_decode(text, start)[0] if start >= 0 else None
    except ValueError:
        told = None
    if isinstance(told, dict) and "exception_message" in told:
        return {name: str(value) for name, value in told.items()}
    kind = _KIND.match(text)
    return {"exception_message": text, "exception_type": kind[1] if kind else ""}


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".!")


def _line(sql: str, position: int) -> str:
    """Which line, in a query of several."""
    if "\n" not in sql.strip():
        return ""
    before = sql[:position]
    line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
    return f" (line {line}, column {column})"
