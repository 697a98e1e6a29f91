"""Types and ranges of setting values: parses text and TOML values, validates them, and formats them as text."""

import math
import re
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Union, get_args, get_origin

from ariane.errors import SettingsError

# int() and float() also accept "1_000", " 7 ", "nan" and digits of every script; a settings file should not.
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}(\.[0-9]{1,19})?")
_WHOLE_MAX = 2**63 - 1
_BOOLS = {"true": True, "false": False}

# CVE-2023-37582 used a line break inside a value to write a file of the attacker's choice. Lone surrogates (bytes of a
# variable that are not UTF-8, half of an escaped pair) cannot be written back as text.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Secret:
    """Text that no repr, log line, error or settings dump shows; only `reveal()` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "(secret)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path", Secret: "text"}


@dataclass(frozen=True, slots=True)
class ValueKind:
    """The type and range of one setting. An invalid value is a SettingsError that says what was expected."""

    type: type
    optional: bool = False
    minimum: float | None = None
    maximum: float | None = None

    @classmethod
    def of(cls, hint: object, minimum: float | None, maximum: float | None) -> "ValueKind":
        """The kind for a type hint such as `int`, `TlsMode` or `Path | None`."""
        choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        (plain,) = (choice for choice in choices if choice is not NoneType)
        assert isinstance(plain, type), hint
        assert plain in _PLAIN or issubclass(plain, Enum), hint
        return cls(plain, NoneType in choices, minimum, maximum)

    def scaled(self, factor: int) -> "ValueKind":
        """The same range, counted in units that are `factor` times smaller."""
        low, high = (None if bound is None else bound * factor for bound in (self.minimum, self.maximum))
        return replace(self, minimum=low, maximum=high)

    @property
    def expected(self) -> str:
        return f"expected {self._type_text}{self._range_text}"

    @property
    def _type_text(self) -> str:
        if issubclass(self.type, Enum):
            return "one of " + ", ".join(str(member.value) for member in self.type)
        return _PLAIN[self.type]

    @property
    def _range_text(self) -> str:
        low, high = (None if bound is None else to_text(bound) for bound in (self.minimum, self.maximum))
        if low is not None and high is not None:
            return f" from {low} to {high}"
        if low is not None:
            return f" of at least {low}"
        return "" if high is None else f" of at most {high}"

    def parse(self, text: str) -> object:
        """The value that `text` stands for in a properties file, a variable or a flag."""
        if self.type is bool:
            return self.check(_BOOLS.get(text.lower(), text))
        if self.type is int and _WHOLE.fullmatch(text):
            return self.check(int(text))
        if self.type is float and _NUMBER.fullmatch(text):
            return self.check(float(text))
        return self.check(text)

    def check(self, value: object) -> object:
        """Validates a value that TOML or a flag has already typed."""
        if value == "" and self.optional:
            return None
        if value == "":
            raise SettingsError(f"the value is empty, {self.expected}")
        if isinstance(value, str) and _FORBIDDEN.search(value):
            raise SettingsError("a value must not contain control characters or line breaks")
        typed = self._typed(value)
        if typed is None or not self._in_range(typed):
            raise SettingsError(self.expected)
        return typed

    def _typed(self, value: object) -> object:
        """`value` as this kind's type, or None when it is of another type."""
        if isinstance(value, bool) or self.type is bool:
            return value if isinstance(value, bool) and self.type is bool else None
        if isinstance(value, int) and self.type in (int, float):
            return self.type(value) if abs(value) <= _WHOLE_MAX else None
        if isinstance(value, str) and self.type not in (int, float):
            return self._from_text(value)
        return value if isinstance(value, self.type) else None

    def _from_text(self, text: str) -> object:
        if issubclass(self.type, Enum):
            return next((member for member in self.type if str(member.value).lower() == text.lower()), None)
        if self.type is Path:
            return _path(text)
        return Secret(text) if self.type is Secret else text

    def _in_range(self, value: object) -> bool:
        if not isinstance(value, (int, float)):
            return True
        low, high = (self.minimum, self.maximum)
        return math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise SettingsError(f"its home directory cannot be determined ({error})") from error


def to_text(value: object) -> str:
    """The text that `ValueKind.parse` reads back, as RocketMQ writes it: `true`, `120`, `permissive`."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
