"""The value of one property in many records, without cutting their texts into all pairs.

A pair begins behind a 0x02, so a property is found where its name and a 0x01 follow one. The answer is always that of
`ariane.wire.properties`: an empty value is none, and of two values the later one counts.
"""

from functools import cached_property

import numpy as np
import pyarrow as pa

from ariane.arrow.property_texts import NAME_ENDS, VALUE_ENDS, PropertyTexts
from ariane.arrow.source import Bytes, Int64s, is_all


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
