"""Conversion between typed structs and header fields (`extFields`).

A request or a response is one msgspec Struct. Its attributes are header fields: snake_case in Python, camelCase on the
wire unless the declaration sets another name (`msgspec.field(name="clientID")`). On the wire every value is text.
Decoding is tried twice: first by msgspec in one C pass, which handles everything that well-behaved clients send, then
by `coerce`, which accepts what fastjson accepts ("007", numbers for strings, any word for false). So the tolerant
decoder costs time only for the clients that need it.
"""

from functools import cache
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec

from ariane.errors import BodyError, FieldError, HeaderError
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.wire.json import fastjson
from ariane.wire.json.coerce import coerce

S = TypeVar("S", bound=msgspec.Struct)
A_co = TypeVar("A_co", bound="Response", covariant=True)

# Java's int and long. Python's integers are unbounded, but these values are packed into 32 or 64 bits later.
_BITS_32 = msgspec.Meta(ge=-(2**31), le=2**31 - 1)
_BITS_64 = msgspec.Meta(ge=-(2**63), le=2**63 - 1)
Int32 = Annotated[int, _BITS_32]
Int64 = Annotated[int, _BITS_64]
QueueOffset64 = Annotated[QueueOffset, _BITS_64]
PhysicalOffset64 = Annotated[PhysicalOffset, _BITS_64]

# Attributes of a struct that are not header fields. They get wire names that no Java field can have. A peer that sends
# such a name achieves nothing, because `exchange` sets these attributes after decoding.
NOT_IN_HEADER = frozenset({"body", "code", "remark"})


def wire_name(attribute: str) -> str:
    """`queue_id` is `queueId` on the wire; an attribute that is not in the header gets an impossible name."""
    if attribute in NOT_IN_HEADER:
        return f"\x7f{attribute}"
    head, *tail = attribute.split("_")
    return head + "".join(word.capitalize() for word in tail)


class Response(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """Base of all responses: the response code, the remark, and the fields of the subclass."""

    accepts: ClassVar[frozenset[int]] = frozenset({0})
    """Response codes that are normal results; any other code raises RequestFailed at the caller."""

    code: int = 0
    remark: str | None = None


class Request(msgspec.Struct, Generic[A_co], frozen=True, rename=wire_name):
    """Base of all requests; `Request[OffsetResponse]` names the response. A body is a field `body` with a default."""


def to_ext(value: msgspec.Struct) -> dict[str, str]:
    """The header fields of `value`; None is omitted, as in RocketMQ."""
    ext = {}
    for name, attribute in _header_fields(type(value)):
        member = getattr(value, attribute)
        kind = type(member)
        if kind is str:
            ext[name] = member
        elif kind is int:
            ext[name] = str(member)
        elif member is not None:
            ext[name] = _text(member)
    return ext


def from_ext(kind: type[S], ext: dict[str, str]) -> S:
    """`kind` from header fields that are already text."""
    try:
        return msgspec.convert(ext, kind, strict=False)
    except (msgspec.ValidationError, TypeError):
        return _coerced(kind, ext)


def from_json(kind: type[S], raw: bytes | msgspec.Raw) -> S:
    """`kind` from the bytes of the JSON object `extFields`."""
    decoder = _decoder(kind)
    if decoder is not None:
        try:
            return decoder.decode(raw)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    return _coerced(kind, ext_from_json(raw))


_STRINGS: msgspec.json.Decoder[dict[str, str]] = msgspec.json.Decoder(dict[str, str])
_SCALARS: msgspec.json.Decoder[dict[str, str | int | bool | None]] = msgspec.json.Decoder(
    dict[str, str | int | bool | None]
)
"""Numbers and booleans come from Node, C++ and Lua; without this, their long headers would be read in Python."""


def ext_from_json(raw: bytes | msgspec.Raw) -> dict[str, str]:
    """All header fields as text: the input of signatures and of the tolerant decoder."""
    try:
        return _STRINGS.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        parsed: object = _SCALARS.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parsed = _parsed(raw)
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise HeaderError(f"extFields must be an object, got {type(parsed).__name__}")
    return {str(name): _text(value) for name, value in parsed.items() if value is not None}


def _parsed(raw: bytes | msgspec.Raw) -> object:
    try:
        return fastjson.parse(bytes(raw), values_max=fastjson.HEADER_VALUES_MAX)
    except BodyError as error:
        raise HeaderError(f"extFields is not readable: {error}") from error


def _coerced(kind: type[S], ext: dict[str, str]) -> S:
    value = coerce(kind, ext, where=kind.__name__)
    if not isinstance(value, kind):
        raise FieldError(f"{kind.__name__}: header fields expected, got {type(value).__name__}")
    return value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))  # an IntFlag prints its name otherwise
    if isinstance(value, (str, float)):
        return str(value)
    raise HeaderError(f"a header field holds text, a number or a boolean, not {type(value).__name__}")


@cache
def _header_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Wire name and attribute of each header field."""
    fields = msgspec.structs.fields(kind)
    return tuple((field.encode_name, field.name) for field in fields if field.name not in NOT_IN_HEADER)


@cache
def _decoder(kind: type[msgspec.Struct]) -> "msgspec.json.Decoder[Any] | None":
    try:
        return msgspec.json.Decoder(kind, strict=False)
    except TypeError:  # the body has keys that JSON does not support (fastjson's object keys): coerce reads the header
        return None
