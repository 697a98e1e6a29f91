"""The header as JSON: strict in what we write, tolerant of what fastjson would read."""

import msgspec

from ariane.errors import BodyError, FieldError, HeaderError
from ariane.wire import fastjson
from ariane.wire.codes import Serialization
from ariane.wire.coerce import coerce
from ariane.wire.command import EXT_FIELDS_MAX, PYTHON, Command, check_ext
from ariane.wire.fields import ext_from_json

DEPTH_MAX = 32
# A shorter header cannot hold more than EXT_FIELDS_MAX fields ('"a":1,' is the shortest) nor a value that is too long.
SURELY_WITHIN_LIMITS = EXT_FIELDS_MAX * 6

# Looked up once: reading a member from an Enum class costs as much as decoding a short string.
_JSON = Serialization.JSON
_decode = msgspec.json.Decoder(Command, strict=False).decode
_encode = msgspec.json.Encoder().encode


def decode_json_header(header: bytes) -> Command:
    if header.count(b"{") + header.count(b"[") > DEPTH_MAX:  # the cheap half of check_depth, without the call
        fastjson.check_depth(header, DEPTH_MAX, HeaderError)
    try:
        command = _decode(header)
        command.ext_texts = None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        command = _decode_tolerantly(header)
    command.serialization = _JSON
    if len(header) > SURELY_WITHIN_LIMITS:
        check_ext(command.ext)
    return command


class _Lenient(msgspec.Struct):
    """The header's members as `coerce` reads them."""

    code: int
    opaque: int = 0
    flag: int = 0
    version: int = 0
    language: str | None = None
    remark: str | None = None


def _decode_tolerantly(header: bytes) -> Command:
    """For headers that only fastjson would read: unquoted keys, single quotes, numbers as text."""
    try:
        parsed = fastjson.parse(header, depth_max=DEPTH_MAX)
        if not isinstance(parsed, dict):
            raise HeaderError(f"the header must be a JSON object, got {type(parsed).__name__}")
        ext = parsed.get("extFields")
        members = coerce(_Lenient, parsed, where="header")
    except (BodyError, FieldError) as error:
        raise HeaderError(f"the header is not readable: {error}") from error
    for number in (members.code, members.opaque, members.flag, members.version):
        if not -(2**31) <= number < 2**31:
            raise HeaderError(f"header numbers have 32 bits, got {number}")
    command = Command(**msgspec.structs.asdict(members))
    command.ext_texts = ext_from_json(fastjson.emit(ext)) if ext else {}
    return command


class _Written(msgspec.Struct, omit_defaults=True):
    """The header as we write it. Members that are None are left out."""

    code: int
    flag: int
    language: str
    opaque: int
    version: int
    extFields: dict[str, str] | None = None
    remark: str | None = None


def encode_json_header(command: Command) -> bytes:
    language = PYTHON if command.language is PYTHON else command.language_code.name
    return _encode(
        _Written(
            command.code, command.flag, language, command.opaque, command.version, command.ext_texts, command.remark
        )
    )
