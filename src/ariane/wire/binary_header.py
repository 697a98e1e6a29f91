"""The binary header, which Java calls ROCKETMQ. All integers big-endian:

code i16 | language u8 | version i16 | opaque i32 | flag i32
| remark length i32 | remark | fields length i32 | key length i16 | key | value length i32 | value | key length ...
"""

import struct
from functools import lru_cache

from ariane.errors import HeaderError
from ariane.wire.codes import Serialization
from ariane.wire.command import EXT_FIELDS_MAX, Command, check_ext

_FIXED = struct.Struct(">hBhiii")  # up to the remark's length
_key_length = struct.Struct(">h").unpack_from
_value_length = struct.Struct(">i").unpack_from
_BINARY = Serialization.BINARY


def decode_binary_header(header: bytes) -> Command:
    size = len(header)
    if size < _FIXED.size:
        raise HeaderError(f"a binary header of {size} bytes ends too early: at least 21 expected")
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
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
    check_ext(ext)
    return Command(
        code=code, opaque=opaque, flag=flag, version=version, language=language, remark=remark or None, ext_texts=ext,
        serialization=_BINARY,
    )  # fmt: skip


def _fields(header: bytes, position: int, end: int) -> dict[str, str]:
    """Straight-line on purpose: a send has fourteen fields, and a call for each text would double the cost."""
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
