"""Numbers, text, truth and enums out of whatever a peer wrote for them.

A converter takes a value and the path where it stood, and returns the typed value or raises a FieldError that names the
path, what was expected and what was there. None stands for JSON's null: Java's primitives read it as zero.
"""

import math
import re
from collections.abc import Callable
from enum import Enum, IntFlag
from typing import Any, Final, TypeAlias

from ariane.errors import FieldError
from ariane.wire.fastjson_literals import INT64_MAX, INT64_MIN

Converter: TypeAlias = Callable[[object, str], Any]

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}(?:\.0{0,20})?")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,64}(?:\.[0-9]{0,64})?(?:[eE][+-]?[0-9]{1,4})?")
_SHOWN_MAX: Final = 80


def refused(expected: str, value: object, where: str) -> FieldError:
    return FieldError(f"{where}: expected {expected}, got {_shown(value)}")


def _shown(value: object) -> str:
    """A value for an error message: short, whatever a peer sent."""
    if isinstance(value, dict | list | tuple | set | frozenset):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and not _in_64_bits(value):
        return "an integer beyond 64 bits"
    text = repr(value[:_SHOWN_MAX] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _in_64_bits(number: int) -> bool:
    return INT64_MIN <= number <= INT64_MAX


def to_int(value: object, where: str) -> int:
    number = value
    if value is None:
        return 0
    if isinstance(value, str) and _INTEGER.fullmatch(text := value.strip()):
        number = int(text.partition(".")[0])
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if isinstance(number, int) and _in_64_bits(number):
        return int(number)
    raise refused("a 64-bit integer", value, where)


def to_float(value: object, where: str) -> float:
    if value is None:
        return 0.0
    if isinstance(value, str) and _DECIMAL.fullmatch(text := value.strip()):
        number = float(text)
    elif isinstance(value, float) or (isinstance(value, int) and _in_64_bits(value)):
        number = float(value)
    else:
        number = math.nan
    if math.isfinite(number):
        return number
    raise refused("a number", value, where)


def to_bool(value: object, where: str) -> bool:
    """Text is read as Java's parseBoolean does: "true" in any case is true, all else is false, "1" too."""
    if isinstance(value, str):
        return value.lower() == "true"
    if value is None or (isinstance(value, int | float) and value in (0, 1)):
        return bool(value)
    raise refused("true or false", value, where)


def to_str(value: object, where: str) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (isinstance(value, int) and _in_64_bits(value)):
        return str(value)
    raise refused("text", value, where)


def to_none(value: object, where: str) -> None:
    if value is not None:
        raise refused("null", value, where)


def to_nothing(kind: Any) -> Converter:
    """For a type that JSON has no form for. A struct may have such a member as long as no peer sends it."""

    def convert(value: object, where: str) -> object:
        raise refused(f"nothing: {kind} has no form in JSON", value, where)

    return convert


def as_it_is(value: object, where: str) -> object:
    return value


SCALARS: Final[dict[Any, Converter]] = {
    int: to_int,
    float: to_float,
    bool: to_bool,
    str: to_str,
    type(None): to_none,
    None: to_none,
    object: as_it_is,
    Any: as_it_is,
}


def enum_converter(kind: type[Enum]) -> Converter:
    """By value, else by name in any case, else by position as fastjson and the C++ client count.

    An enum that is a number has no positions: its numbers are its values.
    """
    members: dict[object, Enum] = {} if issubclass(kind, int) else dict(enumerate(kind))
    members.update((name.lower(), member) for name, member in kind.__members__.items())
    members.update((member.value, member) for member in kind)

    def convert(value: object, where: str) -> Enum:
        if isinstance(value, kind):
            return value
        for key in _enum_keys(value):
            if key in members:
                return members[key]
            if isinstance(key, int) and issubclass(kind, IntFlag) and _in_64_bits(key):
                return kind(key)
        raise refused(f"one of {kind.__name__}", value, where)

    return convert


def _enum_keys(value: object) -> list[object]:
    """What `value` may mean, the likeliest first."""
    if not isinstance(value, str):
        return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []
    text = value.strip().lower()
    return [value, text, int(text.partition(".")[0])] if _INTEGER.fullmatch(text) else [value, text]
