"""The index rows of many records at once: one for each key, hashed as `ariane.store.key_hash` does.

    hash of `topic#key` = hash(topic) * 31^(n + 1) + '#' * 31^n + hash(key)        n = length of the key, modulo 2^32

The hashes of all keys come from one pass over their joined bytes; see `ariane.store.key_hash` for the trick.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ariane.arrow.property_columns import PropertyColumns
from ariane.arrow.rows import Rows
from ariane.arrow.source import Int64s, data_of, offsets_of
from ariane.store.key_hash import topic_hash
from ariane.wire.java_hash import java_hash

Uint32s = npt.NDArray[np.uint32]

ROW_TYPE = np.dtype([("hash", np.int32), ("physical", np.int64), ("stored_ms", np.int64)])
"""On its way from one task to another, on one kind of machine."""
IndexRows = npt.NDArray[np.void]

_MODULUS = 1 << 32
_UNITS_MAX = 1 << 18
_HASH_SIGN = ord("#")


def _powers(base: int) -> Uint32s:
    factors = np.full(_UNITS_MAX + 1, base, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


_POWERS = _powers(31)
_INVERSE_POWERS = _powers(pow(31, -1, _MODULUS))


class Hashed(NamedTuple):
    hashes: Uint32s
    lengths: Int64s
    """In UTF-16 units."""


def java_hashes(texts: pa.Array) -> Hashed:
    """Java's hash of each text; no text may be empty or null."""
    data, offsets = data_of(texts), offsets_of(texts).astype(np.int64)
    if not len(texts):
        return Hashed(np.empty(0, np.uint32), np.empty(0, np.int64))
    if data.max() >= 0x80:
        return _one_by_one(texts.to_pylist())
    offsets -= offsets[0]
    hashes = np.empty(len(texts), np.uint32)
    begin = 0
    while begin < len(texts):
        end = max(begin + 1, int(np.searchsorted(offsets, offsets[begin] + _UNITS_MAX, side="right")) - 1)
        starts, ends = offsets[begin:end] - offsets[begin], offsets[begin + 1 : end + 1] - offsets[begin]
        units = data[offsets[begin] : offsets[end]]
        sums = np.add.reduceat(units * _INVERSE_POWERS[: len(units)], starts, dtype=np.uint32)
        hashes[begin:end] = sums * _POWERS[ends - 1]
        begin = end
    return Hashed(hashes, np.diff(offsets))


def _one_by_one(texts: list[str]) -> Hashed:
    hashes = np.fromiter((java_hash(text) % _MODULUS for text in texts), np.uint32, len(texts))
    lengths = (len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in texts)
    return Hashed(hashes, np.fromiter(lengths, np.int64, len(texts)))


def index_rows(rows: Rows, properties: PropertyColumns, topics: list[str], codes: Int64s) -> IndexRows:
    """For each row its unique key, then its other keys. `codes` says which of `topics` each row has."""
    unique, words = properties.unique_keys, properties.keys
    has_unique = np.asarray(unique.is_valid(), np.int64)
    ends = words.offsets.to_numpy().astype(np.int64)
    counts = has_unique + np.diff(ends)
    starts = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(len(rows)), counts)
    texts = Hashed(np.empty(len(owner), np.uint32), np.empty(len(owner), np.int64))
    of_unique = np.flatnonzero(has_unique)
    _put(texts, starts[of_unique], java_hashes(unique.drop_null()))
    if ends[-1] > ends[0]:
        mine = words.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        word_owner = np.repeat(np.arange(len(rows)), np.diff(ends))
        within = np.arange(len(mine)) - (ends[:-1] - ends[0])[word_owner]
        _put(texts, (starts + has_unique)[word_owner] + within, java_hashes(mine))
    return _packed(rows, owner, texts, np.array([topic_hash(topic) for topic in topics], np.uint32)[codes[owner]])


def _put(texts: Hashed, places: Int64s, some: Hashed) -> None:
    texts.hashes[places] = some.hashes
    texts.lengths[places] = some.lengths


def _packed(rows: Rows, owner: Int64s, keys: Hashed, topic_hashes: Uint32s) -> IndexRows:
    powers = _POWERS[keys.lengths]
    signed = (topic_hashes * (powers * np.uint32(31)) + powers * np.uint32(_HASH_SIGN) + keys.hashes).view(np.int32)
    packed = np.empty(len(owner), ROW_TYPE)
    packed["hash"] = np.maximum(np.abs(signed), 0)  # Math.abs of the smallest number stays negative
    packed["physical"] = rows.physical[owner]
    packed["stored_ms"] = rows.field("storeTimestamp", np.int64)[owner]
    return packed
