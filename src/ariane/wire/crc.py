"""The checksum of message bodies: CRC-32 (the zlib polynomial, not CRC-32C), masked to 31 bits.

Java has no unsigned int, so RocketMQ clears the top bit to keep the stored number positive, on disk and on the wire.
"""

from collections.abc import Iterable, Iterator

try:
    # Several times faster than zlib on small bodies; its wheels cover x86 and ARM, other machines use zlib.
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    from zlib import crc32 as _crc32

POSITIVE_INT32 = 0x7FFFFFFF

whole_crc32 = _crc32
"""All 32 bits, for who masks them himself: a call of ours takes as long as the checksum of a short body."""


def crc32(data: bytes | bytearray | memoryview) -> int:
    """The masked checksum; 0 when there is no data."""
    return _crc32(data) & POSITIVE_INT32


def crc32_of_each(pieces: Iterable[bytes]) -> list[int]:
    """The masked checksum of each, without a call of ours for each."""
    return [checksum & POSITIVE_INT32 for checksum in map(_crc32, pieces)]


def whole_crc32_of_each(pieces: Iterable[bytes | memoryview]) -> Iterator[int]:
    """All 32 bits of each, for who masks them all at once."""
    return map(_crc32, pieces)


def crc32_onward(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """All 32 bits, for sums that no Java reads; `before` is that of the bytes in front of these, 0 for none."""
    return _crc32(data, before)
