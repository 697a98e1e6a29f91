"""What is in the bodies of batches that came together, read at once: as a table, or field by field.

A table (store/item_table.py) wants items that all have the same lengths, and the same names of properties. All others
are split item by item, and then read in columns as one batch would be (batch_properties.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ariane.broker.batch_drafts import BATCH_COUNT_MAX
from ariane.broker.batch_properties import BatchProperties
from ariane.broker.text_columns import TextReader
from ariane.errors import MessageRefused, RecordError
from ariane.store.draft_batch import BatchKeys
from ariane.store.item_table import Bytes2D, ItemShape, ItemTable
from ariane.store.key_hash import Int64s
from ariane.wire.batch import BatchColumns, split_batch


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

    def read(self, bodies: Sequence[bytes], shape: ItemShape | None) -> Contents | None:
        """None when one of them cannot be stored as it came. `shape` is that of the first items, if all may have it."""
        table = None if shape is None else self._read_table(bodies, shape)
        return _read_columns(bodies) if table is None else table

    def _read_table(self, bodies: Sequence[bytes], shape: ItemShape) -> Contents | None:
        counts = [len(body) // shape.size for body in bodies]
        table = ItemTable.of(b"".join(bodies), shape) if max(counts) <= BATCH_COUNT_MAX else None
        columns = None if table is None else self._texts.read(table.texts())
        if table is None or columns is None:
            return None
        return Contents(counts, table, columns.end, columns.tags_codes, columns.keys)


def _read_columns(bodies: Sequence[bytes]) -> Contents | None:
    counts: list[int] = []
    items = BatchColumns([], [], [])
    try:
        for body in bodies:
            split = split_batch(body, count_max=BATCH_COUNT_MAX)
            counts.append(len(split.bodies))
            items.bodies.extend(split.bodies)
            items.properties.extend(split.properties)
            items.flags.extend(split.flags)
        if not all(counts) or not all(items.bodies):
            return None
        properties = BatchProperties(items.properties)
    except (RecordError, MessageRefused):
        return None
    codes = np.array(properties.tags_codes, np.int64)
    return Contents(counts, items._replace(properties=properties.texts), properties.texts_end, codes, properties.keys)
