"""Columns that come from the property text: tags, keys, the unique key, and the map of all properties."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ariane.arrow.gather import Bools, ByteGatherer, Bytes, Int64s, data_of, is_all, offsets_of
from ariane.arrow.rows import Rows
from ariane.arrow.schema import KEYS, PROPERTIES
from ariane.model.message import Property
from ariane.wire.properties import decode_properties

# --- property_texts ---
#
# The property texts of many records, one behind the other, ready to be cut.
#
#     name 0x01 value 0x02 name 0x01 value 0x02 ...        the last 0x02 may be missing
#
# They are gathered with the byte before each of them, which becomes a 0x02, and without the 0x02 at the end. So every
# pair follows a 0x02, and ends before the next one or with the data:
#
#     2 name 1 value 2 name 1 value │ 2 name 1 value │ 2 name 1 value 2 name 1 value
#     record 0                        record 1         record 2

NAME_ENDS, VALUE_ENDS = 1, 2


@dataclass(frozen=True, eq=False)
class PropertyTexts:
    rows: int
    """Of the batch, with and without a text."""
    row: Int64s
    """Numbers of the rows that have a text."""
    starts: Int64s
    """Where the 0x02 before each text is in the data."""
    data: Bytes
    """UTF-8 throughout."""

    @cached_property
    def source(self) -> ByteGatherer:
        return ByteGatherer(self.data)

    @property
    def is_dense(self) -> bool:
        """Whether every row has a text."""
        return len(self.row) == self.rows

    def text(self, number: int) -> bytes:
        """One text alone."""
        end = int(self.starts[number + 1]) if number + 1 < len(self.starts) else len(self.data)
        return self.data[int(self.starts[number]) + 1 : end].tobytes()


def property_texts(rows: Rows) -> PropertyTexts:
    position, length = rows.text_position, rows.text_length
    ends = position + length
    length = length - (rows.source.bytes[ends - 1] == VALUE_ENDS)  # without a text, some other byte: see the next line
    has_text = (length > 0) & (rows.text_length > 0)
    number = np.flatnonzero(has_text)
    if len(number) < len(rows):
        position, length = position[number], length[number]
    gathered = rows.source.spans(position - 1, length + 1, pa.binary())
    starts = offsets_of(gathered)[:-1].astype(np.int64)
    data = data_of(gathered)
    data = data if data.flags.writeable else data.copy()
    data[starts] = VALUE_ENDS
    return _as_text(PropertyTexts(len(rows), number, starts, data))


def _as_text(texts: PropertyTexts) -> PropertyTexts:
    """What is not UTF-8 becomes U+FFFD, as in Java's consumers: an odd property must not cost the message."""
    if not len(texts.data) or texts.data.max() < 0x80:
        return texts
    try:
        str(texts.data.data, "utf-8")
    except UnicodeDecodeError:
        mended = [b"\x02" + texts.text(number).decode(errors="replace").encode() for number in range(len(texts.row))]
        lengths = np.fromiter(map(len, mended), np.int64, len(mended))
        data = np.frombuffer(b"".join(mended), np.uint8)
        return PropertyTexts(texts.rows, texts.row, np.cumsum(lengths) - lengths, data)
    return texts


# --- property_lookup ---
#
# The value of one property in many records, without cutting their texts into all pairs.
#
# A pair begins behind a 0x02, so a property is found where its name and a 0x01 follow one. The answer is always that of
# `ariane.wire.properties`: an empty value is none, and of two values the later one counts.


class PropertyLookup:
    def __init__(self, texts: PropertyTexts) -> None:
        self._texts = texts

    @cached_property
    def _separators(self) -> Int64s:
        """Every 0x02, and the end."""
        return np.append(np.flatnonzero(self._texts.data == VALUE_ENDS), len(self._texts.data))

    @cached_property
    def _first_bytes(self) -> Bytes:
        """What follows each separator: most other names are told apart by it. Nothing follows one at the very end."""
        begins = self._separators[:-1] + 1
        return self._texts.data[begins if not len(begins) or begins[-1] < len(self._texts.data) else begins[:-1]]

    def values(self, name: bytes) -> pa.Array:
        """One value for each row, null where there is none."""
        texts = self._texts
        separators, places = self._separators, self._places(name)
        start = separators[places] + len(name) + 2
        length = separators[places + 1] - start
        if len(places) == texts.rows and texts.is_dense and self._one_each(start):
            return texts.source.spans(start, length, pa.string())
        row = np.searchsorted(texts.starts, start, side="right") - 1
        is_last = np.append(row[1:] != row[:-1], True) if len(row) else np.empty(0, np.bool_)
        values = texts.source.spans(start[is_last], length[is_last], pa.string())
        numbers: Int64s = np.full(texts.rows, -1, np.int64)
        numbers[texts.row[row[is_last]]] = np.arange(len(values))
        return values.take(pa.array(numbers, mask=numbers < 0))

    def _places(self, name: bytes) -> Int64s:
        """Numbers of the separators that the name, a 0x01 and a value follow."""
        places = np.flatnonzero(self._first_bytes == name[0])
        begins = self._separators[places] + 1
        behind = self._separators[places + 1]
        has_value = behind > begins + len(name) + 1  # so all that is looked at now lies inside the data
        if not is_all(has_value):
            places, begins = places[has_value], begins[has_value]
        is_named = self._texts.data[begins + len(name)] == NAME_ENDS
        is_named &= self._texts.source.equal(begins, name)
        return places if is_all(is_named) else places[is_named]

    def _one_each(self, start: Int64s) -> bool:
        """Whether the first value lies in the first text, the second in the second, and so on."""
        starts = self._texts.starts
        return bool((start > starts).all() and (start[:-1] < starts[1:]).all())


# --- property_map ---
#
# All properties of many records as maps.
#
# In regular texts 0x02 and 0x01 alternate from the first to the last byte of the data, so everything between two of
# them is a name or a value. Where they do not alternate, or nothing is between two of them, or a name comes twice, the
# text is read by `ariane.wire.properties`, so that both readers agree about every odd text.

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
    return pa.MapArray.from_arrays(_map_offsets(counts), pairs.names, pairs.values, type=PROPERTIES)


def _map_offsets(counts: Int64s) -> pa.Array:
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


# ---

_BLANK = 0x20


class PropertyColumns:
    """Made once for each batch. Texts are gathered and cut when the first column is asked for, and not before."""

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
    """A list of words for each text, empty for none. Blanks separate words, and there may be many between two."""
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
