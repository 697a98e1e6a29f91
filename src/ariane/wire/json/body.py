"""JSON bodies: typed values to text and back.

Reading goes two ways. msgspec is asked first, strictly: it takes proper JSON of the right types, in microseconds. What
it refuses, and the little it would misunderstand, is read by our own tolerant parser and converter, which know what
fastjson would have made of it. So every leniency lives in one place, coerce.py.
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

# Proper JSON too, but msgspec would take a reference for an object whose members were all left out.
_REFERENCE: Final = b'"$ref"'
# msgspec reads integers of any size; ours end at 64 bits, which is 19 digits and begins with a 9 at the earliest.
_WIDE_NUMBER = re.compile(rb"9[0-9]{18}|[0-9]{20}")
_DIGITS_AS_ZERO: Final = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))


class JsonBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body that is one JSON object: snake_case here, camelCase on the wire."""

    def to_bytes(self, *, standard: bool = False) -> bytes:
        return encode_json(self, standard=standard)

    @classmethod
    def from_bytes(cls: type[Body], data: bytes) -> Body:
        return decode_json(data, cls)


def encode_json(value: object, *, standard: bool = False) -> bytes:
    """The text of a Struct or of builtins, in fastjson's dialect or in standard JSON."""
    return emit(value, standard=standard)


def decode_json(data: bytes, kind: type[T], *, tolerant_bytes_max: int = SIZE_MAX) -> T:
    """A `kind` from its text. No bytes at all stand for an object without members.

    The tolerant way is slow (a second for a dense MiB), so a server reads only short texts of its clients with it.
    """
    if not data:
        return _empty(kind)
    check_depth(data, DEPTH_MAX)
    decoder = _decoder(kind)  # type: ignore[arg-type]  # every type is hashable
    if decoder is not None and _REFERENCE not in data and not _has_wide_number(data):
        try:
            value: T = decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            pass  # not proper JSON, or not of these types: the tolerant way decides
        else:
            return value
    if len(data) > tolerant_bytes_max:
        raise BodyError(
            f"a body of {len(data)} bytes is no proper JSON for {getattr(kind, '__name__', kind)}: quote all keys and "
            f"keep to the declared types, or send at most {tolerant_bytes_max} bytes"
        )
    return coerce(kind, parse(data))


def _has_wide_number(data: bytes) -> bool:
    """Whether an integer might pass 64 bits. The plain search settles nearly every body, twenty times faster."""
    return b"0" * 19 in data.translate(_DIGITS_AS_ZERO) and _WIDE_NUMBER.search(data) is not None


def _empty(kind: type[T]) -> T:
    try:
        return coerce(kind, {})
    except FieldError as error:
        raise BodyError(f"the body is empty, and that is no {getattr(kind, '__name__', kind)}: {error}") from None


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any] | None:
    try:
        return msgspec.json.Decoder(kind)
    except TypeError:  # JSON proper has no objects as keys
        return None
