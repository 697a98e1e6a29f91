"""Parameters: declared in the file with a type and a default, given with --set, used as ${NAME} in any value."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from ariane.spark.pipeline.mistakes import nearest

TYPES = ("string", "int", "float", "bool", "duration", "timestamp")
NAMESRV = "namesrv"
"""Always there: the nameservers that the command was given."""
_USE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_EXAMPLES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "duration": "a time such as 500ms, 30s, 5m or 1h",
    "timestamp": "milliseconds since 1970 or a time such as 2026-01-31T08:00:00Z",
}


class UseError(Exception):
    """A text uses a parameter that it cannot; `position` is where."""

    def __init__(self, what: str, position: int = 0) -> None:
        super().__init__(what)
        self.position = position


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    line: int
    type: str = "string"
    default: str | None = None
    is_required: bool = False
    choices: tuple[str, ...] = ()
    about: str = ""

    def fault(self, text: str) -> str | None:
        """What is wrong with this value, or None."""
        if self.choices and text not in self.choices:
            return f"{text[:60]!r} is none of {', '.join(self.choices)}"
        if not _fits(self.type, text):
            return f"{text[:60]!r} is no {self.type}: {_EXAMPLES[self.type]} expected"
        return None


def _fits(kind: str, text: str) -> bool:
    if kind == "bool":
        return text in ("true", "false")
    if kind == "duration":
        return duration_s(text) is not None
    readers: dict[str, Callable[[str], object]] = {"int": int, "float": float, "timestamp": _timestamp}
    try:
        readers.get(kind, str)(text)
    except ValueError:
        return False
    return True


def _timestamp(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() else datetime.fromisoformat(text)


def duration_s(text: str) -> float | None:
    """None when it is no duration."""
    found = _DURATION.fullmatch(text.strip().lower())
    return None if found is None else float(found[1]) * _UNITS_S[found[2]]


@dataclass(frozen=True, slots=True)
class Values:
    """The value of each parameter; None for one that is not set."""

    by_name: Mapping[str, str | None]

    def fill(self, text: str) -> str:
        """`text` with every ${NAME} replaced; UseError for a name that is unknown, or not set."""
        return _USE.sub(self._value, text)

    def is_unset(self, text: str) -> bool:
        """Whether the whole text is one parameter that is not set."""
        found = _USE.fullmatch(text.strip())
        return found is not None and found[1] in self.by_name and self.by_name[found[1]] is None

    def _value(self, found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "${"
        if name not in self.by_name:
            raise UseError(f"there is no parameter {name[:60]}: {nearest(name, self.by_name)}", found.start())
        value = self.by_name[name]
        if value is None:
            raise UseError(f"parameter {name} is not set: give it with --set {name}=VALUE", found.start())
        return value
