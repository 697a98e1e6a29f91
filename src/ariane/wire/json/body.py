"""JSON bodies: encoding and decoding of typed values.

Decoding has a fast path and a tolerant path. msgspec decodes first, strictly: standard JSON of the right types, in
microseconds. What it rejects, and the few texts that it would misread, go to the tolerant parser (fastjson.py) and
converter (coerce.py), which give the result that fastjson would give. So all leniency is in those two modules.
"""

import re
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from ariane.errors import BodyError, FieldError
from ariane.wire.json.coerce import coerce
from ariane.wire.json.fastjson import DEPTH_MAX, SIZE_MAX, check_depth, emit, parse

T = TypeVar("T")
Body = TypeVar("Body", bound="JsonBody")

# Valid JSON, but msgspec would decode a reference as an object without members.
_REFERENCE: Final = b'"$ref"'
# msgspec accepts integers of any size; here the limit is 64 bits: 19 digits that begin with 9 may exceed it.
_WIDE_NUMBER = re.compile(rb"9[0-9]{18}|[0-9]{20}")
_DIGITS_AS_ZERO: Final = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))


class JsonBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body that is one JSON object: snake_case in Python, camelCase on the wire."""

    def to_bytes(self, *, standard: bool = False) -> bytes:
        return encode_json(self, standard=standard)

    @classmethod
    def from_bytes(cls: type[Body], data: bytes) -> Body:
        return decode_json(data, cls)


def encode_json(value: object, *, standard: bool = False) -> bytes:
    """The JSON of a Struct or of builtins, in fastjson's dialect or in standard JSON."""
    return emit(value, standard=standard)


def decode_json(data: bytes, kind: type[T], *, tolerant_bytes_max: int = SIZE_MAX) -> T:
    """A `kind` from its JSON. An empty body counts as an object without members.

    The tolerant path is slow (a second for a dense MiB), so a server uses it only for short bodies.
    """
    if not data:
        return _empty(kind)
    check_depth(data, DEPTH_MAX)
    decoder = _decoder(kind)  # type: ignore[arg-type]  # every type is hashable
    if decoder is not None and _REFERENCE not in data and not _has_wide_number(data):
        try:
            value: T = decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            pass  # not standard JSON, or not of these types: the tolerant path decides
        else:
            return value
    if len(data) > tolerant_bytes_max:
        raise BodyError(
            f"a body of {len(data)} bytes is not standard JSON for {getattr(kind, '__name__', kind)}: quote all keys "
            f"and use the declared types, or send at most {tolerant_bytes_max} bytes"
        )
    return coerce(kind, parse(data))


def _has_wide_number(data: bytes) -> bool:
    """Whether an integer might exceed 64 bits. The plain search decides nearly every body, twenty times faster."""
    return b"0" * 19 in data.translate(_DIGITS_AS_ZERO) and _WIDE_NUMBER.search(data) is not None


def _empty(kind: type[T]) -> T:
    try:
        return coerce(kind, {})
    except FieldError as error:
        raise BodyError(f"the body is empty, but {getattr(kind, '__name__', kind)} needs one: {error}") from None


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any] | None:
    try:
        return msgspec.json.Decoder(kind)
    except TypeError:  # standard JSON has no objects as keys
        return None
