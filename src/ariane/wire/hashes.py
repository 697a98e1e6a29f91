"""CRC-32 of message bodies, and Java's `String.hashCode`.

CRC-32 uses the zlib polynomial, not CRC-32C, and is masked to 31 bits: Java has no unsigned int, so RocketMQ clears the
top bit to keep the stored number positive, on disk and on the wire.

Java's hash is what tag filters, consume queues and the message index are built on:

    h = 31 * h + unit, over UTF-16 code units, wrapping at 32 bits, read as a signed number

A character outside the basic plane counts as its two surrogates, so the hash must not iterate over code points.
"""

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import mul

try:
    # Several times faster than zlib on small bodies; its wheels cover x86 and ARM, other machines use zlib.
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    from zlib import crc32 as _crc32

POSITIVE_INT32 = 0x7FFFFFFF

unmasked_crc32 = _crc32
"""All 32 bits, for callers that mask them inline: a Python call takes as long as the checksum of a short body."""


def crc32(data: bytes | bytearray | memoryview) -> int:
    """The masked checksum; 0 when there is no data."""
    return _crc32(data) & POSITIVE_INT32


def crc32_of_each(pieces: Iterable[bytes]) -> list[int]:
    """The masked checksum of each, without a Python call for each."""
    return [checksum & POSITIVE_INT32 for checksum in map(_crc32, pieces)]


def unmasked_crc32_of_each(pieces: Iterable[bytes | memoryview]) -> Iterator[int]:
    """All 32 bits of each, for callers that mask them with numpy."""
    return map(_crc32, pieces)


def running_crc32(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """All 32 bits, for checksums that Java never reads; `before` is the checksum of the preceding bytes, 0 for none."""
    return _crc32(data, before)


# --- Java's String.hashCode ---

# A sum of products with the powers of 31 runs in C, about twice as fast as the loop that the formula suggests.
_BLOCK = 256
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(_BLOCK + 1))

_CACHED_TAGS = 4096
_CACHED_TAG_LENGTH_MAX = 128


def java_hash(text: str) -> int:
    """The hash as a signed 32-bit number."""
    units = _utf16_units(text)
    total = 0
    for start in range(0, len(units), _BLOCK):
        block = units[start : start + _BLOCK]
        total = (total * _POWERS[len(block)] + sum(map(mul, reversed(block), _POWERS))) & 0xFFFFFFFF
    return (total ^ 0x80000000) - 0x80000000


def tags_code(tags: str | None) -> int:
    """The tags code that a consume queue stores: the hash of TAGS, sign-extended to 64 bits; 0 without tags.

    A Python int has no width, so writing it as a signed 64-bit field is the sign extension.
    """
    if not tags:
        return 0
    # Few tags are in use at a time, so the cache nearly always hits. Long tags are not cached: a peer that generates
    # them must not be able to fill the cache with megabytes.
    return _cached_hash(tags) if len(tags) <= _CACHED_TAG_LENGTH_MAX else java_hash(tags)


_cached_hash = lru_cache(maxsize=_CACHED_TAGS)(java_hash)


def _utf16_units(text: str) -> bytes | tuple[int, ...]:
    if text.isascii():
        return text.encode("ascii")
    # surrogatepass: Java strings may contain a lone surrogate, and hash it like any other unit
    encoded = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(encoded) // 2}H", encoded)
