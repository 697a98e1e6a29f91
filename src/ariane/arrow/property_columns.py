"""Columns that come from the property text: tags, keys, the unique key, and the map of all properties."""

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ariane.arrow.property_lookup import PropertyLookup
from ariane.arrow.property_map import property_maps
from ariane.arrow.property_texts import PropertyTexts, property_texts
from ariane.arrow.rows import Rows
from ariane.arrow.schema import KEYS
from ariane.arrow.source import Bools, data_of
from ariane.model.message import Property

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
        return pa.ListArray.from_arrays(_ends(has_word), texts.drop_null(), type=KEYS)
    pieces = pc.split_pattern(texts.fill_null(""), " ")
    is_word = np.asarray(pc.binary_length(pieces.values)) > 0
    ends = _ends(is_word).to_numpy()[pieces.offsets.to_numpy()]
    return pa.ListArray.from_arrays(pa.array(ends), pieces.values.filter(pa.array(is_word)), type=KEYS)


def _ends(is_word: Bools) -> pa.Array:
    offsets = np.zeros(len(is_word) + 1, np.int32)
    np.cumsum(is_word, out=offsets[1:])
    return pa.array(offsets)
