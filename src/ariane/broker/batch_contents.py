"""What is in the bodies of batches that came together, read at once: as a table, or field by field.

A table (store/item_table.py) wants items that all have the same lengths, and the same names of properties. All others
are split item by item, and then read in columns as one batch would be (batch_properties.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ariane.broker.batch_drafts import BATCH_COUNT_MAX, items_of
from ariane.broker.batch_properties import BatchProperties
from ariane.broker.text_columns import TextReader
from ariane.store.draft_batch import BatchKeys
from ariane.store.item_table import Bytes2D, ItemShape, ItemTable
from ariane.store.key_hash import Int64s
from ariane.wire.batch import BatchColumns

TABLE_MIN = 64
"""Messages from which on a table is cheaper than lists: 280 us whatever its size, and then 0.3 to 0.8 each."""


class Contents(NamedTuple):
    counts: Sequence[int]
    """How many messages each batch has."""
    items: ItemTable | BatchColumns
    properties_end: bytes
    tags_codes: int | Int64s
    keys: list[Bytes2D] | BatchKeys


class ContentsReader:
    def __init__(self) -> None:
        self._texts = TextReader()

    def read(self, bodies: Sequence[memoryview], shape: ItemShape | None) -> Contents:
        """MessageRefused when one of them cannot be stored. `shape` is that of the first items, if all may have it."""
        table = None
        if shape is not None and sum(map(len, bodies)) >= TABLE_MIN * shape.size:
            table = self._read_table(bodies, shape)
        return _read_columns(bodies) if table is None else table

    def _read_table(self, bodies: Sequence[memoryview], shape: ItemShape) -> Contents | None:
        counts = [len(body) // shape.size for body in bodies]
        joined = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        table = ItemTable.of(joined, shape) if max(counts) <= BATCH_COUNT_MAX else None
        columns = None if table is None else self._texts.read(table.texts())
        if table is None or columns is None:
            return None
        return Contents(counts, table, columns.end, columns.tags_codes, columns.keys)


def _read_columns(bodies: Sequence[memoryview]) -> Contents:
    counts: list[int] = []
    items = BatchColumns([], [], [])
    for body in bodies:
        split = items_of(bytes(body))
        counts.append(len(split.bodies))
        items.bodies.extend(split.bodies)
        items.properties.extend(split.properties)
        items.flags.extend(split.flags)
    properties = BatchProperties(items.properties)
    codes = np.array(properties.tags_codes, np.int64)
    return Contents(counts, items._replace(properties=properties.texts), properties.texts_end, codes, properties.keys)
