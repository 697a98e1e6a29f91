"""From JSON builtins to typed values, as forgiving as fastjson is.

msgspec wants every member in its declared type; RocketMQ's peers send numbers as text, enums by position, `{}` for an
empty list and nothing at all for an empty set. Each type gets one converter, put together when it is first asked for.
"""

from collections.abc import Callable
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import fields

from ariane.errors import BodyError, FieldError
from ariane.wire.coerce_scalars import SCALARS, Converter, enum_converter, refused, to_nothing
from ariane.wire.fastjson import parse

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
