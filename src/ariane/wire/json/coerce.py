"""From JSON builtins to typed values, as forgiving as fastjson is.

msgspec wants every member in its declared type; RocketMQ's peers send numbers as text, enums by position, `{}` for an
empty list and nothing at all for an empty set. Each type gets one converter, put together when it is first asked for.
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

# --- coerce_scalars ---
#
# Numbers, text, truth and enums out of whatever a peer wrote for them.
#
# A converter takes a value and the path where it stood, and returns the typed value or raises a FieldError that names
# the path, what was expected and what was there. None stands for JSON's null: Java's primitives read it as zero.

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


# ---

T = TypeVar("T")


def coerce(kind: type[T], value: object, where: str = "$") -> T:
    """`value` as a `kind`: a builtin, an Enum, a Struct, or a union or collection of them.

    What cannot be understood is a FieldError with its path; `where` is the path of `value` itself.
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
            raise refused(f"an object ({kind.__name__})", value, where)
        try:
            return kind(**_arguments(kind, value, where))
        except (TypeError, ValueError) as error:  # from the type's own __post_init__
            raise FieldError(f"{where}: no {kind.__name__}: {error}") from error

    return convert


def _arguments(kind: type[msgspec.Struct], value: dict[object, object], where: str) -> dict[str, object]:
    """What the constructor gets. A member left out here takes its default there."""
    arguments = {}
    for member in _members(kind):
        given = value.get(member.wire_name)
        path = f"{where}.{member.wire_name}"
        if given is not None or (member.takes_null and member.wire_name in value):
            arguments[member.name] = member.convert(given, path)
        elif member.required and (member.is_collection or member.wire_name in value):
            arguments[member.name] = member.convert(None, path)
        elif member.required:
            raise FieldError(f"{path}: missing, and {kind.__name__} has no default for it")
    return arguments


@cache
def _members(kind: type[msgspec.Struct]) -> list[_Member]:
    """Asked for when the first value comes, not when the converter is built: a type may contain itself."""
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
    """None where it is allowed; else the arm of the value's own type; else the first arm that understands it."""
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
        raise refused(str(kind), value, where)

    return convert


def _annotated_converter(kind: Any) -> Converter:
    """The plain type first, then msgspec judges the result by the annotation (bounds, lengths, patterns)."""
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
        return to_nothing(kind)  # places of different types: no body of RocketMQ has them
    convert_item = converter_of(arguments[0])

    def convert(value: object, where: str) -> object:
        if value is None or (isinstance(value, dict) and not value):  # Lua writes an empty list as {}
            return build()
        if not isinstance(value, list | tuple | set | frozenset):
            raise refused("an array", value, where)
        return build([convert_item(item, f"{where}[{index}]") for index, item in enumerate(value)])

    return convert


def _dict_converter(kind: Any) -> Converter:
    key_kind, item_kind = get_args(kind) or (object, object)
    convert_key, convert_item = _key_converter(key_kind), converter_of(item_kind)

    def convert(value: object, where: str) -> object:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise refused("an object", value, where)
        items = ((key, item, f"{where}.{str(key)[:40]}") for key, item in value.items())
        return {convert_key(key, path): convert_item(item, path) for key, item, path in items}

    return convert


def _key_converter(kind: Any) -> Converter:
    """A Struct as key arrives as an ObjectKey in fastjson's form, and as the text of an object in the standard form."""
    convert = converter_of(kind)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return convert

    def convert_object(key: object, where: str) -> object:
        try:
            value = parse(key) if isinstance(key, str) else key
            return convert(dict(value) if isinstance(value, tuple) else value, where)
        except (BodyError, TypeError, ValueError) as error:
            raise refused(f"an object as key ({kind.__name__})", key, where) from error

    return convert_object


_COLLECTIONS: Final = (list, set, frozenset, tuple, dict)
_BUILDERS: Final[dict[Any, Callable[[Any], Converter]]] = {
    **dict.fromkeys((Union, UnionType), _union_converter),
    **dict.fromkeys((list, set, frozenset, tuple), _array_converter),
    Annotated: _annotated_converter,
    dict: _dict_converter,
}
