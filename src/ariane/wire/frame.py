"""Frames and commands: the framing of RocketMQ's remoting protocol, with both header formats (JSON and binary).

    0        4            5                8                 8 + header length
    | length | header kind | header length | header          | body ... |
      i32      u8            u24             JSON or binary     to the end

`length` counts everything after itself, and is checked from the first eight bytes, before anything is buffered.

A header may be as long as its frame, as at Apache's peers. But only up to `header_bytes_max` it is read in full. Of a
request with a longer one, or with too many or too long fields, only code, opaque and flag are read, and
`Command.excess` says what is wrong: the request is answered with an error, and the connection goes on.

A `Command` is one request or response, whatever format its header had. The JSON header is decoded by msgspec directly
into the `Command`, so a header costs one object. The `extFields` stay raw bytes until their type is known:
`command.fields(SendMessageV2)` then decodes them directly into the struct.

JSON headers are written strictly and read tolerantly: everything that fastjson accepts is accepted here.

The binary header, which Java calls ROCKETMQ, with big-endian integers:

    code i16 | language u8 | version i16 | opaque i32 | flag i32
    | remark length i32 | remark | fields length i32 | key length i16 | key | value length i32 | value | key length ...
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import msgspec

from ariane.errors import BodyError, FieldError, FrameError, HeaderError
from ariane.wire.codes import HeaderFlag, Language, Serialization, Version
from ariane.wire.fields import Int32, ext_from_json, from_ext, from_json
from ariane.wire.json import fastjson
from ariane.wire.json.coerce import coerce

S = TypeVar("S", bound=msgspec.Struct)

HEADER_BYTES_MAX = 256 * 1024
"""Of a request whose fields are read: 32,767 bytes of properties take up to 196,602 in JSON, all escaped."""
EXT_FIELDS_MAX = 256
EXT_VALUE_MAX = 32 * 1024
# The properties of a send have a limit of their own, which the broker knows, and a batch has as many ids as messages.
_LONG_FIELDS = frozenset({"properties", "i", "msgId"})

PYTHON = Language.PYTHON.name
_OUR_VERSION = int(Version.V4_7_1)
_LANGUAGES = dict(Language.__members__)
_LANGUAGE_NUMBERS: dict[int | None, Language] = {language.value: language for language in Language}
_NO_EXT = msgspec.Raw(b"")


class Command(msgspec.Struct, kw_only=True):
    """A decoded header with its body. `flag` distinguishes requests, responses and one-way requests."""

    code: Int32
    opaque: Int32 = 0
    flag: Int32 = 0
    version: Int32 = _OUR_VERSION
    language: str | int | None = PYTHON
    remark: str | None = None
    raw_ext: msgspec.Raw = msgspec.field(name="extFields", default=_NO_EXT)
    # Not part of the JSON header: overwritten after decoding, in case a peer sends these names.
    ext_texts: dict[str, str] | None = msgspec.field(name="\x7fext", default=None)
    body: bytes = msgspec.field(name="\x7fbody", default=b"")
    serialization: Serialization = msgspec.field(name="\x7fserialization", default=Serialization.JSON)
    excess: str | None = msgspec.field(name="\x7fexcess", default=None)
    """Which limit the header of this request exceeds. Its fields were not read then, and it must be refused."""

    @property
    def is_response(self) -> bool:
        return bool(self.flag & HeaderFlag.RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & HeaderFlag.ONEWAY)

    @property
    def ext(self) -> dict[str, str]:
        """The header fields as text."""
        if self.ext_texts is None:
            self.ext_texts = ext_from_json(self.raw_ext) if bytes(self.raw_ext) else {}
        return self.ext_texts

    def fields(self, kind: type[S]) -> S:
        """The header fields as `kind`."""
        if self.ext_texts is None and bytes(self.raw_ext):
            return from_json(kind, self.raw_ext)
        return from_ext(kind, self.ext)

    def drop_content(self) -> None:
        """Keeps only what a response needs. For a request that waits, whose fields are read."""
        self.raw_ext, self.ext_texts, self.body = _NO_EXT, {}, b""
        self.remark = self.language = None

    @property
    def language_code(self) -> Language:
        """Clients send a name in any case (`JAVA`, `other`), a number, or nothing."""
        if isinstance(self.language, str):
            return _LANGUAGES.get(self.language.upper(), Language.OTHER)
        return _LANGUAGE_NUMBERS.get(self.language, Language.OTHER)


def _excess_of(ext: dict[str, str]) -> str | None:
    """Which limit on header fields they exceed, for headers long enough to exceed one."""
    if len(ext) > EXT_FIELDS_MAX:
        return f"the header has {len(ext)} fields or more, at most {EXT_FIELDS_MAX} are allowed"
    for name, value in ext.items():
        if len(value) > EXT_VALUE_MAX and name not in _LONG_FIELDS:
            return f"header field {name[:80]!r} has {len(value)} characters, more than {EXT_VALUE_MAX}"
    return None


def _checked(command: Command) -> Command:
    """Without its fields, if they exceed a limit. HeaderError for a response, which cannot be refused."""
    excess = _excess_of(command.ext)
    return command if excess is None else _without_fields(command, excess)


def _without_fields(command: Command, excess: str) -> Command:
    if command.flag & HeaderFlag.RESPONSE:
        raise HeaderError(excess)
    command.raw_ext, command.ext_texts, command.remark, command.excess = _NO_EXT, {}, None, excess
    return command


# --- JSON header ---

DEPTH_MAX = 32
# A shorter header cannot have more than EXT_FIELDS_MAX fields ('"a":1,' is the shortest) nor a value that is too long.
SURELY_WITHIN_LIMITS = EXT_FIELDS_MAX * 6

# Looked up once: reading a member from an Enum class costs as much as decoding a short string.
_JSON = Serialization.JSON
_decode = msgspec.json.Decoder(Command, strict=False).decode
_encode = msgspec.json.Encoder().encode


def decode_json_header(header: bytes) -> Command:
    if header.count(b"{") + header.count(b"[") > DEPTH_MAX:  # the cheap part of check_depth, without the call
        fastjson.check_depth(header, DEPTH_MAX, HeaderError)
    try:
        command = _decode(header)
        command.ext_texts = None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        command = _decode_tolerantly(header)
    command.serialization = _JSON
    command.excess = None
    return _checked(command) if len(header) > SURELY_WITHIN_LIMITS else command


class _Identity(msgspec.Struct):
    """What a refusal needs of a header; everything else is skipped, 16 MiB in 5 to 40 ms."""

    code: Int32
    opaque: Int32 = 0
    flag: Int32 = 0


_decode_identity = msgspec.json.Decoder(_Identity, strict=False).decode


def _decode_long_json(header: bytes, header_bytes_max: int) -> Command:
    """A response in full, since a batch has many ids; of a request what a refusal needs. All of it runs in C."""
    try:
        identity = _decode_identity(header)
        if identity.flag & HeaderFlag.RESPONSE:
            command = _decode(header)
            command.ext_texts, command.excess, command.serialization = None, None, _JSON
            return _checked(command)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HeaderError(f"a header of {len(header)} bytes is not readable: {error}") from None
    command = Command(code=identity.code, opaque=identity.opaque, flag=identity.flag)
    return _without_fields(command, _too_long(header, header_bytes_max))


def _too_long(header: bytes, header_bytes_max: int) -> str:
    return f"a header of {len(header)} bytes: at most {header_bytes_max} are read, so send shorter fields or properties"


class _TolerantHeader(msgspec.Struct):
    """The members of the header for `coerce`."""

    code: int
    opaque: int = 0
    flag: int = 0
    version: int = 0
    language: str | None = None
    remark: str | None = None


def _decode_tolerantly(header: bytes) -> Command:
    """For headers that only fastjson accepts: unquoted keys, single quotes, numbers as text."""
    try:
        parsed = fastjson.parse(header, depth_max=DEPTH_MAX, values_max=fastjson.HEADER_VALUES_MAX)
        if not isinstance(parsed, dict):
            raise HeaderError(f"the header must be a JSON object, got {type(parsed).__name__}")
        ext = parsed.get("extFields")
        members = coerce(_TolerantHeader, parsed, where="header")
    except (BodyError, FieldError) as error:
        raise HeaderError(f"the header is not readable: {error}") from error
    for number in (members.code, members.opaque, members.flag, members.version):
        if not -(2**31) <= number < 2**31:
            raise HeaderError(f"header numbers have 32 bits, got {number}")
    command = Command(**msgspec.structs.asdict(members))
    command.ext_texts = ext_from_json(fastjson.emit(ext)) if ext else {}
    return command


class _EncodedHeader(msgspec.Struct, omit_defaults=True):
    """The JSON header for encoding. Members that are None are omitted."""

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
        _EncodedHeader(
            command.code, command.flag, language, command.opaque, command.version, command.ext_texts, command.remark
        )
    )


# --- binary header ---

_FIXED = struct.Struct(">hBhiii")  # up to the remark's length
_key_length = struct.Struct(">h").unpack_from
_value_length = struct.Struct(">i").unpack_from
_BINARY = Serialization.BINARY


def decode_binary_header(header: bytes, header_bytes_max: int = HEADER_BYTES_MAX) -> Command:
    size = len(header)
    if size < _FIXED.size:
        raise HeaderError(f"a binary header of {size} bytes ends too early: at least 21 expected")
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
    if size > header_bytes_max and not flag & HeaderFlag.RESPONSE:
        command = Command(code=code, opaque=opaque, flag=flag, version=version, serialization=_BINARY)
        return _without_fields(command, _too_long(header, header_bytes_max))
    fields_at = _FIXED.size + remark_length
    if remark_length < 0 or fields_at + 4 > size:
        raise HeaderError(f"a remark of {remark_length} bytes does not fit a binary header of {size}")
    fields_length = int.from_bytes(header[fields_at : fields_at + 4], "big", signed=True)
    if fields_at + 4 + fields_length != size:
        raise HeaderError(f"{fields_length} bytes of fields announced, {size - fields_at - 4} are there")
    try:
        remark = str(header[_FIXED.size : fields_at], "utf-8")
        ext = _fields(header, fields_at + 4, size)
    except UnicodeDecodeError as error:
        raise HeaderError(f"the binary header holds a text that is not UTF-8: {error.reason}") from error
    return _checked(
        Command(
            code=code, opaque=opaque, flag=flag, version=version, language=language, remark=remark or None,
            ext_texts=ext, serialization=_BINARY,
        )
    )  # fmt: skip


def _fields(header: bytes, position: int, end: int) -> dict[str, str]:
    """One loop without helper functions, on purpose: a send has fourteen fields, and calls would double the cost."""
    ext: dict[str, str] = {}
    while position < end and len(ext) <= EXT_FIELDS_MAX:
        try:
            (key_length,) = _key_length(header, position)
            key_end = position + 2 + key_length
            (value_length,) = _value_length(header, key_end)
        except struct.error as error:
            raise HeaderError(f"the binary header ends inside the field at {position}") from error
        value_end = key_end + 4 + value_length
        if key_length < 0 or value_length < 0 or value_end > end:
            raise HeaderError(f"a key of {key_length} and a value of {value_length} bytes at {position} do not fit")
        ext[header[position + 2 : key_end].decode()] = header[key_end + 4 : value_end].decode()
        position = value_end
    return ext


def encode_binary_header(command: Command) -> bytes:
    if not -(2**15) <= command.code < 2**15:
        raise HeaderError(f"code {command.code} does not fit the binary header's 16 bits: use JSON")
    remark = (command.remark or "").encode()
    parts: list[bytes] = []
    for name, value in command.ext.items():
        text = value.encode()
        parts += (_key(name), len(text).to_bytes(4, "big"), text)
    fields = b"".join(parts)
    fixed = _FIXED.pack(command.code, command.language_code, command.version, command.opaque, command.flag, len(remark))
    return b"".join((fixed, remark, len(fields).to_bytes(4, "big"), fields))


@lru_cache(maxsize=1024)
def _key(name: str) -> bytes:
    key = name.encode()
    if len(key) >= 2**15:
        raise HeaderError(f"a field name of {len(key)} bytes does not fit the binary header")
    return len(key).to_bytes(2, "big") + key


# --- frame ---

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Of a whole frame with its length field: the limit of every RocketMQ client and server."""
_PREFIX = struct.Struct(">iI")
_LENGTH = struct.Struct(">i")
_LENGTH_MIN = 4  # the header's kind and length
_TLS_HELLO = 0x16


@dataclass(frozen=True, slots=True)
class FrameLimits:
    frame_bytes_max: int = FRAME_BYTES_MAX
    header_bytes_max: int = HEADER_BYTES_MAX


class FrameDecoder:
    """Splits a byte stream into Commands: feed it bytes in any split. After an error, close the connection."""

    def __init__(self, limits: FrameLimits = FrameLimits()) -> None:
        self._limits = limits
        # The bytes not yet decoded start at `position`. A fast path (transport/connection.py) decodes frames itself and
        # advances `position`.
        self.data = b""
        self.position = 0
        # A frame larger than a read is collected as a list of pieces: one join is linear, `data + more` is quadratic.
        self._pieces: list[bytes] = []
        self._missing = 0

    @property
    def buffered(self) -> int:
        """Bytes that wait for the rest of their frame, or for their turn."""
        return sum(map(len, self._pieces)) if self._pieces else len(self.data) - self.position

    @property
    def mid_frame(self) -> bool:
        """Whether a frame is incomplete."""
        return bool(self._pieces) or self.position < len(self.data)

    def feed(self, data: bytes) -> None:
        if self._pieces:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        elif self.position < len(self.data):
            data = self.data[self.position :] + data
        self.data, self.position = data, 0

    def __iter__(self) -> Iterator[Command]:
        return self

    def __next__(self) -> Command:
        """The next command; StopIteration when more bytes are needed; FrameError or HeaderError if it is invalid."""
        data, start = self.data, self.position
        available = len(data) - start
        if available < 8:
            if available >= 4:
                self._check_length(_LENGTH.unpack_from(data, start)[0])
            raise StopIteration
        length, word = _PREFIX.unpack_from(data, start)
        header_length = word & 0xFFFFFF
        self._check_length(length)
        if header_length > length - 4:
            raise FrameError(f"a header of {header_length} bytes in a frame of {length}: the header cannot be longer")
        end = start + 4 + length
        if end > len(data):
            self._wait_for(end - len(data))
            raise StopIteration
        header_end = start + 8 + header_length
        self.position = end
        header, body = data[start + 8 : header_end], data[header_end:end]
        return decode_header(word >> 24, header, body, self._limits.header_bytes_max)

    def _check_length(self, length: int) -> None:
        if length < _LENGTH_MIN:
            raise FrameError(f"frame length {length}: at least {_LENGTH_MIN} expected; this is not a RocketMQ client")
        if length + 4 > self._limits.frame_bytes_max:
            hint = "; it looks like TLS, which is off here" if length >> 24 == _TLS_HELLO else ""
            raise FrameError(f"a frame of {length + 4} bytes, at most {self._limits.frame_bytes_max} are allowed{hint}")

    def _wait_for(self, missing: int) -> None:
        if not self._pieces:
            self._pieces = [self.data[self.position :]]
            self._missing = missing
            self.data, self.position = b"", 0


def decode_header(serialization: int, header: bytes, body: bytes, header_bytes_max: int = HEADER_BYTES_MAX) -> Command:
    """The command of one frame; HeaderError when the header is malformed. See `Command.excess` for limits."""
    if serialization == _JSON:
        is_long = len(header) > header_bytes_max
        command = _decode_long_json(header, header_bytes_max) if is_long else decode_json_header(header)
    elif serialization == _BINARY:
        command = decode_binary_header(header, header_bytes_max)
    else:
        raise HeaderError(f"unknown header serialisation {serialization}: 0 (JSON) or 1 (ROCKETMQ) expected")
    command.body = body
    return command


def encode_frame(command: Command) -> bytes:
    """The frame of `command` in its own serialisation; raises if it exceeds a limit that every peer enforces."""
    header = encode_json_header(command) if command.serialization is _JSON else encode_binary_header(command)
    length = 4 + len(header) + len(command.body)
    if length + 4 > FRAME_BYTES_MAX:
        raise FrameError(f"the frame to send has {length + 4} bytes, at most {FRAME_BYTES_MAX} are allowed")
    return b"".join((_PREFIX.pack(length, command.serialization << 24 | len(header)), header, command.body))
