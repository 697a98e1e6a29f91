"""The hash under which the index files a key, for one key or for many at once.

    keyHash = |String.hashCode of `topic#key`|, and 0 where Java's Math.abs overflows

For many keys, the texts `#key` stand joined in one array s of UTF-16 units. Multiplied by the powers of the inverse of
31 (it is odd, so modulo 2^32 it has one), any stretch of it sums up to a hash, but for a factor:

    hash of s[start:end] = sum of s[i] * 31^(end - 1 - i) = 31^(end - 1) * sum of s[i] * 31^-i

and the topic goes in front as hash(topic) * 31^(end - start), so that it is hashed once and not with every key.
"""

from collections.abc import Sequence
from functools import lru_cache
from sys import intern
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ariane.wire.java_hash import java_hash

Uint32s: TypeAlias = NDArray[np.uint32]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
_Units: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16]

_MODULUS = 1 << 32
_UNITS_MAX = 1 << 17  # of one pass: 3,000 keys of 40 characters
_CACHED_TOPICS = 1 << 16  # more than brokers have: a name hashed anew for each message would cost as much as its append
_CACHED_LENGTHS = 256
_HASH_SIGN = ord("#")


def _powers(base: int) -> Uint32s:
    factors = np.full(_UNITS_MAX + 1, base, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


_POWERS = _powers(31)
_INVERSE_POWERS = _powers(pow(31, -1, _MODULUS))


class _TopicHashes(dict[str, int]):
    """Java's hash of each topic alone, unsigned. A dict and no lru_cache, which costs twice as much to ask: it moves
    the topic to the front of a list, and with thousands of topics each step of that is a miss of the CPU's cache."""

    def __missing__(self, topic: str) -> int:
        if len(self) >= _CACHED_TOPICS:
            self.clear()
        return self.setdefault(intern(topic), java_hash(topic) % _MODULUS)


topic_hashes = _TopicHashes()
topic_hash = topic_hashes.__getitem__
"""Of one topic."""


def key_hash(topic: str, key: str) -> int:
    """The hash of one `topic#key`."""
    size = abs(java_hash(f"{topic}#{key}"))
    return size if size < 1 << 31 else 0


def column_hashes(topic: str, keys: NDArray[np.uint8]) -> Int32s:
    """The hashes of keys of one length, a row for each, in ASCII: no text is made of them."""
    length = keys.shape[1]
    before = topic_hash(topic) * 31 + _HASH_SIGN  # of `topic#`, and so the same for all
    hashes = row_hashes(keys) + np.uint32(before * pow(31, length, _MODULUS) % _MODULUS)
    return np.maximum(np.abs(hashes.view(np.int32)), 0)


def row_hashes(rows: NDArray[np.uint8]) -> Uint32s:
    """Java's hash of each row of ASCII, unsigned; at most _UNITS_MAX columns."""
    powers = _falling_powers(rows.shape[1])
    hashes: Uint32s = np.einsum("ij,j->i", rows, powers, dtype=np.uint32)  # no copy of the rows, unlike `@`
    return hashes


@lru_cache(maxsize=_CACHED_LENGTHS)
def _falling_powers(count: int) -> Uint32s:
    """From 31^(count - 1) down to 1, in the order of memory: read backwards, they would take twice the time."""
    return _POWERS[:count][::-1].copy()


def key_hashes(topics: Uint32s, keys: Sequence[str]) -> Int32s:
    """The hashes of many keys; `topics` holds the topic_hash that belongs to each."""
    signed = _joined_hashes(topics, keys).view(np.int32)
    return np.maximum(np.abs(signed), 0)


def _joined_hashes(topics: Uint32s, keys: Sequence[str]) -> Uint32s:
    joined = "#" + "#".join(keys)  # no stretch is empty, which reduceat could not sum
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    lengths += 1
    if joined.isascii():
        units: _Units = np.frombuffer(joined.encode("ascii"), np.uint8)
    else:
        units, lengths = _wide_units(joined, lengths)
    if len(units) > _UNITS_MAX:
        return _hashes_in_parts(topics, keys)
    ends = lengths.cumsum()
    sums = np.add.reduceat(units * _INVERSE_POWERS[: len(units)], ends - lengths, dtype=np.uint32)
    hashes: Uint32s = sums * _POWERS[ends - 1] + topics * _POWERS[lengths]
    return hashes


def _wide_units(joined: str, lengths: Int64s) -> tuple[_Units, Int64s]:
    """The UTF-16 units of the text, and the lengths in these rather than in characters."""
    # surrogatepass: Java strings may hold a lone surrogate, and hash it like any other unit
    characters = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
    pairs = np.add.reduceat(characters > 0xFFFF, lengths.cumsum() - lengths, dtype=np.int64)
    return np.frombuffer(joined.encode("utf-16-le", "surrogatepass"), "<u2"), lengths + pairs


def _hashes_in_parts(topics: Uint32s, keys: Sequence[str]) -> Uint32s:
    """For more text than there are powers: half of the keys at a time, down to a single giant one."""
    half = len(keys) // 2
    if half:
        return np.concatenate(
            (_joined_hashes(topics[:half], keys[:half]), _joined_hashes(topics[half:], keys[half:])), dtype=np.uint32
        )
    units = 1 + len(keys[0].encode("utf-16-le", "surrogatepass")) // 2
    total = int(topics[0]) * pow(31, units, _MODULUS) + java_hash("#" + keys[0])
    return np.array([total % _MODULUS], np.uint32)
