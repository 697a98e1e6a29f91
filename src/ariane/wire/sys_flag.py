"""The sysFlag of a message: compression of its body, transaction state, address types of its hosts.

    bit   10 9 8    7      6       5      4      3 2         1      0
        ┌────────┬──────┬───────┬──────┬──────┬─────────┬───────┬───────────┐
        │ type   │inner │ needs │store │born  │transac- │multi  │compressed │
        │        │batch │unwrap │IPv6  │IPv6  │tion     │tags   │           │
        └────────┴──────┴───────┴──────┴──────┴─────────┴───────┴───────────┘

Bits 6 to 10 are used by 5.x and by late 4.9 producers; older clients ignore them.
"""

from enum import IntEnum, IntFlag

from ariane.errors import RecordError


class SysFlag(IntFlag):
    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC  # a number in two bits, not two flags: mask with TRANSACTION_TYPE before comparing
    TRANSACTION_TYPE = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEEDS_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_TYPE = 0x700


class Compression(IntEnum):
    """How a body is compressed, numbered as in bits 8 to 10."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


# Plain ints: the operators of an IntFlag cost more than the rest of the functions below.
_COMPRESSED = int(SysFlag.COMPRESSED)
_TRANSACTION_TYPE = int(SysFlag.TRANSACTION_TYPE)
_TYPE_MASK = int(SysFlag.COMPRESSION_TYPE)
_TYPE_SHIFT = 8

# Producers before 4.9.4 support only zlib and leave the type bits zero.
_BY_TYPE_BITS = {0: Compression.ZLIB, 1: Compression.LZ4, 2: Compression.ZSTD, 3: Compression.ZLIB}


def compression_of(sys_flag: int) -> Compression | None:
    """How the body is compressed, None when it is not."""
    if not sys_flag & _COMPRESSED:
        return None
    type_bits = (sys_flag & _TYPE_MASK) >> _TYPE_SHIFT
    kind = _BY_TYPE_BITS.get(type_bits)
    if kind is None:
        raise RecordError(f"sysFlag {sys_flag:#x} has compression type {type_bits}, but only 0 to 3 are supported")
    return kind


def with_compression(sys_flag: int, kind: Compression | None) -> int:
    """`sys_flag` for a body compressed as `kind`, or for a plain body."""
    bare = sys_flag & ~(_COMPRESSED | _TYPE_MASK)
    return bare if kind is None else bare | _COMPRESSED | kind << _TYPE_SHIFT


def transaction_type(sys_flag: int) -> int:
    """0 for a plain message, else SysFlag.TRANSACTION_PREPARED, TRANSACTION_COMMIT or TRANSACTION_ROLLBACK."""
    return sys_flag & _TRANSACTION_TYPE
