"""Columns made from the properties: tags, keys, the unique key, and the map of all properties.

The properties of a record are one text:

    name 0x01 value 0x02 name 0x01 value 0x02 ...        the last 0x02 may be missing

The texts of all rows are gathered one after the other, each with the byte before it, which becomes a 0x02, and without
the 0x02 at its end. So every pair follows a 0x02, and ends before the next one or with the data:

    2 name 1 value 2 name 1 value │ 2 name 1 value │ 2 name 1 value 2 name 1 value
    record 0                        record 1         record 2
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ariane.arrow.gather import Bools, ByteGatherer, Bytes, Int64s, all_true, data_of, offsets_of
from ariane.arrow.rows import Rows
from ariane.arrow.schema import KEYS, PROPERTIES
from ariane.model.message import Property
from ariane.wire.properties import PAIR_END_BYTES, decode_properties

# --- property texts of many records, one after the other ---

NAME_ENDS, VALUE_ENDS = 1, 2


@dataclass(frozen=True, eq=False)
class PropertyTexts:
    rows: int
    """Number of rows of the batch, with and without a text."""
    row: Int64s
    """Indexes of the rows that have a text."""
    starts: Int64s
    """Position of the 0x02 before each text in the data."""
    data: Bytes
    """Valid UTF-8."""

    @cached_property
    def source(self) -> ByteGatherer:
        return ByteGatherer(self.data)

    @property
    def is_dense(self) -> bool:
        """Whether every row has a text."""
        return len(self.row) == self.rows

    def text(self, index: int) -> bytes:
        """One text."""
        end = int(self.starts[index + 1]) if index + 1 < len(self.starts) else len(self.data)
        return self.data[int(self.starts[index]) + 1 : end].tobytes()


def property_texts(rows: Rows) -> PropertyTexts:
    position, length = rows.properties_position, rows.properties_length
    ends = position + length
    length = length - (rows.source.bytes[ends - 1] == VALUE_ENDS)  # without a text, some other byte: see the next line
    has_text = (length > 0) & (rows.properties_length > 0)
    number = np.flatnonzero(has_text)
    if len(number) < len(rows):
        position, length = position[number], length[number]
    gathered = rows.source.gather(position - 1, length + 1, pa.binary())
    starts = offsets_of(gathered)[:-1].astype(np.int64)
    data = data_of(gathered)
    data = data if data.flags.writeable else data.copy()
    data[starts] = VALUE_ENDS
    return _as_text(PropertyTexts(len(rows), number, starts, data))


def _as_text(texts: PropertyTexts) -> PropertyTexts:
    """Bytes that are not UTF-8 become U+FFFD, as in Java's consumers: a bad property must not make a message bad."""
    if not len(texts.data) or texts.data.max() < 0x80:
        return texts
    try:
        str(texts.data.data, "utf-8")
    except UnicodeDecodeError:
        replaced = [
            PAIR_END_BYTES + texts.text(index).decode(errors="replace").encode() for index in range(len(texts.row))
        ]
        lengths = np.fromiter(map(len, replaced), np.int64, len(replaced))
        data = np.frombuffer(b"".join(replaced), np.uint8)
        return PropertyTexts(texts.rows, texts.row, np.cumsum(lengths) - lengths, data)
    return texts


# --- one property ---


class PropertyLookup:
    """The value of one property in many records, without splitting their texts into all pairs.

    A pair begins after a 0x02, so a property is found where its name and a 0x01 follow one. The result is always that
    of `ariane.wire.properties`: an empty value counts as missing, and of two values the later one wins.
    """

    def __init__(self, texts: PropertyTexts) -> None:
        self._texts = texts

    @cached_property
    def _separators(self) -> Int64s:
        """Every 0x02, and the end."""
        return np.append(np.flatnonzero(self._texts.data == VALUE_ENDS), len(self._texts.data))

    @cached_property
    def _first_bytes(self) -> Bytes:
        """The byte after each separator, which rules out most other names. Nothing follows one at the very end."""
        begins = self._separators[:-1] + 1
        return self._texts.data[begins if not len(begins) or begins[-1] < len(self._texts.data) else begins[:-1]]

    def values(self, name: bytes) -> pa.Array:
        """One value for each row, null where there is none."""
        texts = self._texts
        separators, indexes = self._separators, self._separators_before(name)
        start = separators[indexes] + len(name) + 2
        length = separators[indexes + 1] - start
        if len(indexes) == texts.rows and texts.is_dense and self._one_each(start):
            return texts.source.gather(start, length, pa.string())
        row = np.searchsorted(texts.starts, start, side="right") - 1
        is_last = np.append(row[1:] != row[:-1], True) if len(row) else np.empty(0, np.bool_)
        values = texts.source.gather(start[is_last], length[is_last], pa.string())
        numbers: Int64s = np.full(texts.rows, -1, np.int64)
        numbers[texts.row[row[is_last]]] = np.arange(len(values))
        return values.take(pa.array(numbers, mask=numbers < 0))

    def _separators_before(self, name: bytes) -> Int64s:
        """Indexes of the separators that the name, a 0x01 and a value follow."""
        indexes = np.flatnonzero(self._first_bytes == name[0])
        begins = self._separators[indexes] + 1
        ends = self._separators[indexes + 1]
        has_value = ends > begins + len(name) + 1  # so all bytes read below are inside the data
        if not all_true(has_value):
            indexes, begins = indexes[has_value], begins[has_value]
        is_named = self._texts.data[begins + len(name)] == NAME_ENDS
        is_named &= self._texts.source.equal(begins, name)
        return indexes if all_true(is_named) else indexes[is_named]

    def _one_each(self, start: Int64s) -> bool:
        """Whether the first value lies in the first text, the second in the second, and so on."""
        starts = self._texts.starts
        return bool((start > starts).all() and (start[:-1] < starts[1:]).all())


# --- all properties as maps ---
#
# In regular texts 0x02 and 0x01 alternate, so everything between two of them is a name or a value. Where they do not
# alternate, or nothing is between two of them, or a name comes twice, the text is irregular and is decoded by
# `ariane.wire.properties`, so that both decoders agree on it.

_BITS = 62  # of a signed number, with one to spare for a sum


class _Pairs(NamedTuple):
    counts: Int64s
    """Number of pairs of each text."""
    names: pa.Array
    values: pa.Array


def property_maps(texts: PropertyTexts) -> pa.Array:
    """A map for each row, empty without properties."""
    pairs, is_irregular = _regular_pairs(texts)
    is_irregular[_with_repeated_names(pairs)] = True
    if is_irregular.any():
        pairs = _with_irregular(texts, pairs, is_irregular)
    counts = pairs.counts
    if not texts.is_dense:
        counts = np.zeros(texts.rows, np.int64)
        counts[texts.row] = pairs.counts
    return pa.MapArray.from_arrays(_map_offsets(counts), pairs.names, pairs.values, type=PROPERTIES)


def _map_offsets(counts: Int64s) -> pa.Array:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.array(offsets)


def _regular_pairs(texts: PropertyTexts) -> tuple[_Pairs, Bools]:
    """The pairs of the regular texts, none for the others; and which texts are irregular."""
    data = texts.data
    separators = np.flatnonzero((data == NAME_ENDS) | (data == VALUE_ENDS))
    kinds = data[separators]
    gaps = np.diff(separators, append=len(data))
    counts = np.diff(np.searchsorted(separators, texts.starts), append=len(separators))
    is_irregular = np.zeros(len(texts.row), np.bool_)
    alternate = len(separators) % 2 == 0 and (kinds[::2] == VALUE_ENDS).all() and (kinds[1::2] == NAME_ENDS).all()
    if not alternate or (gaps < 2).any():
        is_irregular = _irregular(counts, kinds, gaps)
        keep = ~np.repeat(is_irregular, counts)
        separators, gaps, counts = separators[keep], gaps[keep], np.where(is_irregular, 0, counts)
    names = texts.source.gather(separators[::2] + 1, gaps[::2] - 1, pa.string())
    values = texts.source.gather(separators[1::2] + 1, gaps[1::2] - 1, pa.string())
    return _Pairs(counts // 2, names, values), is_irregular


def _irregular(counts: Int64s, kinds: "np.ndarray[tuple[int], np.dtype[np.uint8]]", gaps: Int64s) -> Bools:
    """Which texts are irregular. Every text has a separator: the one before it."""
    firsts = np.cumsum(counts) - counts
    number = np.arange(len(kinds)) - np.repeat(firsts, counts)
    is_misplaced = (kinds != np.where(number % 2, NAME_ENDS, VALUE_ENDS)) | (gaps < 2)
    misplaced: Int64s = np.add.reduceat(is_misplaced, firsts, dtype=np.int64)
    return (misplaced > 0) | (counts % 2 > 0)


def _with_repeated_names(pairs: _Pairs) -> Int64s:
    """Indexes of the texts in which a name comes twice.

    With one bit for each distinct name, the sum of a text's bits is larger than their union if a name comes twice.
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
    """True for most topics, and much cheaper to check than which names there are."""
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


def _with_irregular(texts: PropertyTexts, pairs: _Pairs, is_irregular: Bools) -> _Pairs:
    """The pairs of the irregular texts, decoded one by one, merged with the others in order."""
    irregular = np.flatnonzero(is_irregular)
    read = [decode_properties(texts.text(number)) for number in irregular.tolist()]
    lengths = np.fromiter(map(len, read), np.int64, len(read))
    owners = np.repeat(np.arange(len(pairs.counts)), pairs.counts)
    regular = np.flatnonzero(~is_irregular[owners])
    order = np.argsort(np.concatenate((owners[regular], np.repeat(irregular, lengths))), kind="stable")
    names = [name for properties in read for name in properties]
    values = [value for properties in read for value in properties.values()]
    counts = pairs.counts.copy()
    counts[irregular] = lengths
    return _Pairs(
        counts,
        _merged(pairs.names, regular, names, order),
        _merged(pairs.values, regular, values, order),
    )


def _merged(texts: pa.Array, which: Int64s, more: list[str], order: Int64s) -> pa.Array:
    return pa.concat_arrays([texts.take(pa.array(which)), pa.array(more, pa.string())]).take(pa.array(order))


# --- columns ---

_BLANK = 0x20


class PropertyColumns:
    """Made once for each batch. Texts are gathered and split when the first column is used, and not before."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @cached_property
    def _texts(self) -> PropertyTexts:
        return property_texts(self._rows)

    @cached_property
    def _lookup(self) -> PropertyLookup:
        return PropertyLookup(self._texts)

    @cached_property
    def tags(self) -> pa.Array:
        return self._lookup.values(Property.TAGS.encode())

    @cached_property
    def unique_keys(self) -> pa.Array:
        return self._lookup.values(Property.UNIQUE_KEY.encode())

    @cached_property
    def keys(self) -> pa.Array:
        return _words(self._lookup.values(Property.KEYS.encode()))

    @cached_property
    def map(self) -> pa.Array:
        return property_maps(self._texts)


def _words(texts: pa.Array) -> pa.Array:
    """A list of words for each text, empty for none. One or more blanks separate words."""
    if not (data_of(texts) == _BLANK).any():
        has_word = np.asarray(texts.is_valid())
        return pa.ListArray.from_arrays(_list_offsets(has_word), texts.drop_null(), type=KEYS)
    pieces = pc.split_pattern(texts.fill_null(""), " ")
    is_word = np.asarray(pc.binary_length(pieces.values)) > 0
    ends = _list_offsets(is_word).to_numpy()[pieces.offsets.to_numpy()]
    return pa.ListArray.from_arrays(pa.array(ends), pieces.values.filter(pa.array(is_word)), type=KEYS)


def _list_offsets(is_word: Bools) -> pa.Array:
    offsets = np.zeros(len(is_word) + 1, np.int32)
    np.cumsum(is_word, out=offsets[1:])
    return pa.array(offsets)
