"""All properties of many records as maps.

In regular texts 0x02 and 0x01 alternate from the first to the last byte of the data, so everything between two of them
is a name or a value. Where they do not alternate, or nothing is between two of them, or a name comes twice, the text is
read by `ariane.wire.properties`, so that both readers agree about every odd text.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ariane.arrow.property_texts import NAME_ENDS, VALUE_ENDS, PropertyTexts
from ariane.arrow.schema import PROPERTIES
from ariane.arrow.source import Bools, Int64s, data_of, offsets_of
from ariane.wire.properties import decode_properties

_BITS = 62  # of a signed number, with one to spare for a sum


class _Pairs(NamedTuple):
    counts: Int64s
    """How many each text has."""
    names: pa.Array
    values: pa.Array


def property_maps(texts: PropertyTexts) -> pa.Array:
    """A map for each row, empty where there is no property."""
    pairs, is_odd = _regular_pairs(texts)
    is_odd[_with_repeated_names(pairs)] = True
    if is_odd.any():
        pairs = _with_odd(texts, pairs, is_odd)
    counts = pairs.counts
    if not texts.is_dense:
        counts = np.zeros(texts.rows, np.int64)
        counts[texts.row] = pairs.counts
    return pa.MapArray.from_arrays(_ends(counts), pairs.names, pairs.values, type=PROPERTIES)


def _ends(counts: Int64s) -> pa.Array:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.array(offsets)


def _regular_pairs(texts: PropertyTexts) -> tuple[_Pairs, Bools]:
    """The pairs of the regular texts, none for the others; and which these are."""
    data = texts.data
    separators = np.flatnonzero((data == NAME_ENDS) | (data == VALUE_ENDS))
    kinds = data[separators]
    gaps = np.diff(separators, append=len(data))
    counts = np.diff(np.searchsorted(separators, texts.starts), append=len(separators))
    is_odd = np.zeros(len(texts.row), np.bool_)
    alternate = len(separators) % 2 == 0 and (kinds[::2] == VALUE_ENDS).all() and (kinds[1::2] == NAME_ENDS).all()
    if not alternate or (gaps < 2).any():
        is_odd = _odd(counts, kinds, gaps)
        keep = ~np.repeat(is_odd, counts)
        separators, gaps, counts = separators[keep], gaps[keep], np.where(is_odd, 0, counts)
    names = texts.source.spans(separators[::2] + 1, gaps[::2] - 1, pa.string())
    values = texts.source.spans(separators[1::2] + 1, gaps[1::2] - 1, pa.string())
    return _Pairs(counts // 2, names, values), is_odd


def _odd(counts: Int64s, kinds: "np.ndarray[tuple[int], np.dtype[np.uint8]]", gaps: Int64s) -> Bools:
    """Which texts are not regular. Every text has a separator: the one before it."""
    firsts = np.cumsum(counts) - counts
    number = np.arange(len(kinds)) - np.repeat(firsts, counts)
    is_wrong = (kinds != np.where(number % 2, NAME_ENDS, VALUE_ENDS)) | (gaps < 2)
    wrong: Int64s = np.add.reduceat(is_wrong, firsts, dtype=np.int64)
    return (wrong > 0) | (counts % 2 > 0)


def _with_repeated_names(pairs: _Pairs) -> Int64s:
    """Numbers of the texts in which a name comes twice.

    With one bit for each distinct name, the sum of a text's bits is larger than their union if one comes twice.
    """
    if not len(pairs.names) or _all_texts_have_the_same_distinct_names(pairs):
        return np.empty(0, np.int64)
    coded = pairs.names.dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64)
    with_pairs = np.flatnonzero(pairs.counts)
    firsts = (np.cumsum(pairs.counts) - pairs.counts)[with_pairs]
    if len(coded.dictionary) > _BITS:
        both = np.sort(np.repeat(with_pairs, pairs.counts[with_pairs]) * len(coded.dictionary) + codes)
        return np.unique(both[1:][both[1:] == both[:-1]] // len(coded.dictionary))
    bits = np.left_shift(np.int64(1), codes)
    is_larger: Bools = np.add.reduceat(bits, firsts) != np.bitwise_or.reduceat(bits, firsts)
    return with_pairs[is_larger]


def _all_texts_have_the_same_distinct_names(pairs: _Pairs) -> bool:
    """So it is for most topics, and much cheaper to see than which names there are."""
    count = int(pairs.counts[0])
    if not count or not (pairs.counts == count).all():
        return False
    first = pairs.names.slice(0, count).to_pylist()
    offsets = offsets_of(pairs.names)
    lengths = np.diff(offsets).reshape(-1, count)
    if len(set(first)) < count or not (lengths == lengths[0]).all():
        return False
    data = data_of(pairs.names).reshape(len(lengths), -1)
    return bool((data == data[0]).all())


def _with_odd(texts: PropertyTexts, pairs: _Pairs, is_odd: Bools) -> _Pairs:
    """The pairs of the odd texts, read one by one, in their places among the others."""
    odd = np.flatnonzero(is_odd)
    read = [decode_properties(texts.text(number)) for number in odd.tolist()]
    lengths = np.fromiter(map(len, read), np.int64, len(read))
    owners = np.repeat(np.arange(len(pairs.counts)), pairs.counts)
    regular = np.flatnonzero(~is_odd[owners])
    order = np.argsort(np.concatenate((owners[regular], np.repeat(odd, lengths))), kind="stable")
    names = [name for properties in read for name in properties]
    values = [value for properties in read for value in properties.values()]
    counts = pairs.counts.copy()
    counts[odd] = lengths
    return _Pairs(
        counts,
        _merged(pairs.names, regular, names, order),
        _merged(pairs.values, regular, values, order),
    )


def _merged(texts: pa.Array, which: Int64s, more: list[str], order: Int64s) -> pa.Array:
    return pa.concat_arrays([texts.take(pa.array(which)), pa.array(more, pa.string())]).take(pa.array(order))
