"""Values to JSON text as fastjson writes it: compact, members in alphabetical order, nothing for None.

Two forms, because clients disagree:

    value                       the dialect                             standard=True
    {0: "10.0.0.1:10911"}       {0:"10.0.0.1:10911"}                    {"0":"10.0.0.1:10911"}
    {MessageQueue(...): 12}     {{"brokerName":"b",...}:12}             {"{\\"brokerName\\":\\"b\\",...}":12}
    "é"                         UTF-8                                   \\u00e9
    order of a dict             as it is                                by key

Old Go clients split the dialect's text by hand, so it must not hold one blank. The dialect is what Java servers send;
the standard form is what a JSON library needs.
"""

import math
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache
from json.encoder import encode_basestring, encode_basestring_ascii

import msgspec

from ariane.errors import BodyError

_Quote = Callable[[str], str]


def emit(value: object, *, standard: bool = False) -> bytes:
    """The JSON text of `value`: builtins, enums and msgspec Structs, nested as you like.

    A plain Enum is written by name, a StrEnum as its text, an IntEnum or IntFlag as its number.
    """
    text = _text(value, encode_basestring_ascii if standard else encode_basestring)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BodyError(f"half of a surrogate pair cannot be written as UTF-8: {error.object[error.start]!r}") from None


def _text(value: object, quote: _Quote) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case int():
            return int.__repr__(value)
        case float():
            return _float_text(value)
        case Enum():
            return quote(value.name)
        case msgspec.Struct():
            return _struct_text(value, quote)
        case dict():
            return _dict_text(value, quote)
        case list() | tuple():
            return _array_text(value, quote)
        case set() | frozenset():
            return _array_text(_in_order(value), quote)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        raise BodyError(f"JSON has no number {value}")
    return float.__repr__(value)


def _array_text(values: Iterable[object], quote: _Quote) -> str:
    return f"[{','.join([_text(value, quote) for value in values])}]"


def _in_order(values: set[object] | frozenset[object]) -> list[object]:
    """A set has no order; the same set must still give the same text on every run."""
    try:
        return sorted(values)  # type: ignore[type-var]
    except TypeError:
        return sorted(values, key=lambda value: _text(value, encode_basestring))


def _struct_text(value: msgspec.Struct, quote: _Quote) -> str:
    members = [(name, getattr(value, attribute)) for name, attribute in _members(type(value))]
    return f"{{{','.join([f'{name}:{_text(member, quote)}' for name, member in members if _present(member)])}}}"


@cache
def _members(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Quoted wire names with their attributes, in wire order."""
    pairs = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return [(encode_basestring_ascii(name), attribute) for name, attribute in sorted(pairs)]


def _present(member: object) -> bool:
    return member is not None and member is not msgspec.UNSET


def _dict_text(value: dict[object, object], quote: _Quote) -> str:
    members = [(_key_text(key, quote), member) for key, member in value.items() if _present(member)]
    if quote is encode_basestring_ascii:
        members.sort(key=lambda pair: pair[0])
    return f"{{{','.join([f'{key}:{_text(member, quote)}' for key, member in members])}}}"


def _key_text(key: object, quote: _Quote) -> str:
    if isinstance(key, str):
        return quote(key)
    if isinstance(key, tuple):
        text = _dict_text(dict(sorted(key)), quote)
    elif isinstance(key, msgspec.Struct) or (isinstance(key, int) and not isinstance(key, bool)):
        text = _text(key, quote)
    elif isinstance(key, Enum):
        return quote(key.name)
    else:
        raise TypeError(f"no JSON key for {type(key).__name__}")
    return quote(text) if quote is encode_basestring_ascii else text
