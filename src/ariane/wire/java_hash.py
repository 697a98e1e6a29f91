"""Java's `String.hashCode`, on which tag filters, consume queues and the message index are built.

    h = 31 * h + unit, over UTF-16 code units, wrapping at 32 bits, read as a signed number

A character outside the basic plane counts as its two surrogates, so the hash must not walk over code points.
"""

import struct
from functools import lru_cache
from operator import mul

# A sum of products against the powers of 31 runs in C, about twice as fast as the loop that the formula suggests.
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
    """What a consume queue stores for a message's TAGS: the hash sign-extended to 64 bits, 0 when there are none.

    A Python int has no width, so the sign extension is only a matter of writing this number as a signed 64-bit field.
    """
    if not tags:
        return 0
    # Few tags are in use at a time, so a lookup is nearly always enough. Giant ones are not worth the memory: a peer
    # that invents them must not be able to fill the cache with megabytes.
    return _cached_hash(tags) if len(tags) <= _CACHED_TAG_LENGTH_MAX else java_hash(tags)


_cached_hash = lru_cache(maxsize=_CACHED_TAGS)(java_hash)


def _utf16_units(text: str) -> bytes | tuple[int, ...]:
    if text.isascii():
        return text.encode("ascii")
    # surrogatepass: Java strings may hold a lone surrogate, and hash it like any other unit
    encoded = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(encoded) // 2}H", encoded)
