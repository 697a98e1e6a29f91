"""Tolerant conversion of parsed JSON to typed values, as forgiving as fastjson.

msgspec requires every member in its declared type; RocketMQ's peers send numbers as text, enums by position, `{}` for
an empty list and nothing at all for an empty set. Each type gets one converter, built on first use.

A converter takes a value and its path, and returns the typed value or raises a FieldError that names the path, what was
expected and what was there. None is JSON's null: Java's primitives read it as zero.
"""

import math
import re
from collections.abc import Callable
from enum import Enum, IntFlag
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import fields

from ariane.errors import BodyError, FieldError
from ariane.wire.json.fastjson import INT64_MAX, INT64_MIN, parse

Converter: TypeAlias = Callable[[object, str], Any]

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}(?:\.0{0,20})?")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,64}(?:\.[0-9]{0,64})?(?:[eE][+-]?[0-9]{1,4})?")
_DESCRIBED_MAX: Final = 80


def wrong_value(expected: str, value: object, where: str) -> FieldError:
    return FieldError(f"{where}: expected {expected}, got {_describe(value)}")


def _describe(value: object) -> str:
    """A value for an error message, truncated."""
    if isinstance(value, dict | list | tuple | set | frozenset):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and not _in_64_bits(value):
        return "an integer beyond 64 bits"
    text = repr(value[:_DESCRIBED_MAX] if isinstance(value, str) else value)
    return text if len(text) <= _DESCRIBED_MAX else f"{text[:_DESCRIBED_MAX]}…"


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
    raise wrong_value("a 64-bit integer", value, where)


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
    raise wrong_value("a number", value, where)


def to_bool(value: object, where: str) -> bool:
    """Text as in Java's parseBoolean: "true" in any case is true, everything else is false, even "1"."""
    if isinstance(value, str):
        return value.lower() == "true"
    if value is None or (isinstance(value, int | float) and value in (0, 1)):
        return bool(value)
    raise wrong_value("true or false", value, where)


def to_str(value: object, where: str) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (isinstance(value, int) and _in_64_bits(value)):
        return str(value)
    raise wrong_value("text", value, where)


def to_none(value: object, where: str) -> None:
    if value is not None:
        raise wrong_value("null", value, where)


def to_nothing(kind: Any) -> Converter:
    """For a type that JSON cannot represent. A struct may have such a member as long as no peer sends it."""

    def convert(value: object, where: str) -> object:
        raise wrong_value(f"nothing: {kind} has no form in JSON", value, where)

    return convert


def unchanged(value: object, where: str) -> object:
    return value


SCALARS: Final[dict[Any, Converter]] = {
    int: to_int,
    float: to_float,
    bool: to_bool,
    str: to_str,
    type(None): to_none,
    None: to_none,
    object: unchanged,
    Any: unchanged,
}


def enum_converter(kind: type[Enum]) -> Converter:
    """By value, else by name in any case, else by position, as fastjson and the C++ client do.

    A numeric enum has no positions: its numbers are its values.
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
        raise wrong_value(f"one of {kind.__name__}", value, where)

    return convert


def _enum_keys(value: object) -> list[object]:
    """The possible interpretations of `value`, the most likely first."""
    if not isinstance(value, str):
        return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []
    text = value.strip().lower()
    return [value, text, int(text.partition(".")[0])] if _INTEGER.fullmatch(text) else [value, text]


# --- structs, unions and collections ---

T = TypeVar("T")


def coerce(kind: type[T], value: object, where: str = "$") -> T:
    """`value` as a `kind`: a builtin, an Enum, a Struct, or a union or collection of them.

    A value that cannot be converted is a FieldError with its path; `where` is the path of `value` itself.
    """
    convert: Callable[[object, str], T] = converter_of(kind)  # type: ignore[arg-type]  # every type is hashable
    return convert(value, where)


@cache
def converter_of(kind: Any) -> Converter:
    if kind in SCALARS:
        return SCALARS[kind]
    if hasattr(kind, "__supertype__"):  # a NewType
        return converter_of(kind.__supertype__)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return enum_converter(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct_converter(kind)
    return _BUILDERS.get(_origin(kind), to_nothing)(kind)


def _origin(kind: Any) -> Any:
    return get_origin(kind) or kind


class _Member(NamedTuple):
    name: str
    wire_name: str
    convert: Converter
    required: bool
    takes_null: bool
    is_collection: bool


def _struct_converter(kind: type[msgspec.Struct]) -> Converter:
    def convert(value: object, where: str) -> msgspec.Struct:
        if not isinstance(value, dict):
            raise wrong_value(f"an object ({kind.__name__})", value, where)
        try:
            return kind(**_arguments(kind, value, where))
        except (TypeError, ValueError) as error:  # from the type's own __post_init__
            raise FieldError(f"{where}: not a valid {kind.__name__}: {error}") from error

    return convert


def _arguments(kind: type[msgspec.Struct], value: dict[object, object], where: str) -> dict[str, object]:
    """The constructor's arguments. A member that is omitted here gets its default there."""
    arguments = {}
    for member in _members(kind):
        item = value.get(member.wire_name)
        path = f"{where}.{member.wire_name}"
        if item is not None or (member.takes_null and member.wire_name in value):
            arguments[member.name] = member.convert(item, path)
        elif member.required and (member.is_collection or member.wire_name in value):
            arguments[member.name] = member.convert(None, path)
        elif member.required:
            raise FieldError(f"{path}: missing, and {kind.__name__} has no default for it")
    return arguments


@cache
def _members(kind: type[msgspec.Struct]) -> list[_Member]:
    """Computed for the first value, not when the converter is built: a type may contain itself."""
    return [
        _Member(
            field.name,
            field.encode_name,
            converter_of(field.type),
            field.required,
            NoneType in get_args(field.type) or field.type in (Any, object),
            _origin(field.type) in _COLLECTIONS,
        )
        for field in fields(kind)
    ]


def _union_converter(kind: Any) -> Converter:
    """None where it is allowed; else the arm of the value's own type; else the first arm that can convert it."""
    arms = [arm for arm in get_args(kind) if arm not in (NoneType, msgspec.UnsetType)]

    def convert(value: object, where: str) -> object:
        if value is None and NoneType in get_args(kind):
            return None
        own: list[Any] = [arm for arm in arms if arm is type(value)]
        if own or len(arms) == 1:
            return converter_of((own or arms)[0])(value, where)
        for arm in arms:
            try:
                return converter_of(arm)(value, where)
            except FieldError:
                continue
        raise wrong_value(str(kind), value, where)

    return convert


def _annotated_converter(kind: Any) -> Converter:
    """Converts to the plain type first, then msgspec checks the annotation (bounds, lengths, patterns)."""
    convert_plain = converter_of(get_args(kind)[0])

    def convert(value: object, where: str) -> object:
        plain = convert_plain(value, where)
        try:
            msgspec.convert(plain, kind)
        except msgspec.ValidationError as error:
            raise FieldError(f"{where}: {error}") from None
        return plain

    return convert


def _array_converter(kind: Any) -> Converter:
    build: Any = _origin(kind)
    arguments: tuple[Any, ...] = get_args(kind) or (object,)
    if build is tuple and arguments[1:] not in ((), (...,)):
        return to_nothing(kind)  # a tuple of different types: no body of RocketMQ has one
    convert_item = converter_of(arguments[0])

    def convert(value: object, where: str) -> object:
        if value is None or (isinstance(value, dict) and not value):  # Lua writes an empty list as {}
            return build()
        if not isinstance(value, list | tuple | set | frozenset):
            raise wrong_value("an array", value, where)
        return build([convert_item(item, f"{where}[{index}]") for index, item in enumerate(value)])

    return convert


def _dict_converter(kind: Any) -> Converter:
    key_kind, item_kind = get_args(kind) or (object, object)
    convert_key, convert_item = _key_converter(key_kind), converter_of(item_kind)

    def convert(value: object, where: str) -> object:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise wrong_value("an object", value, where)
        items = ((key, item, f"{where}.{str(key)[:40]}") for key, item in value.items())
        return {convert_key(key, path): convert_item(item, path) for key, item, path in items}

    return convert


def _key_converter(kind: Any) -> Converter:
    """A Struct as key is an ObjectKey in fastjson's dialect, and the JSON text of an object in standard JSON."""
    convert = converter_of(kind)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return convert

    def convert_object(key: object, where: str) -> object:
        try:
            value = parse(key) if isinstance(key, str) else key
            return convert(dict(value) if isinstance(value, tuple) else value, where)
        except (BodyError, TypeError, ValueError) as error:
            raise wrong_value(f"an object as key ({kind.__name__})", key, where) from error

    return convert_object


_COLLECTIONS: Final = (list, set, frozenset, tuple, dict)
_BUILDERS: Final[dict[Any, Callable[[Any], Converter]]] = {
    **dict.fromkeys((Union, UnionType), _union_converter),
    **dict.fromkeys((list, set, frozenset, tuple), _array_converter),
    Annotated: _annotated_converter,
    dict: _dict_converter,
}
