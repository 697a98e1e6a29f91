"""The third field of queue entries: hashes of tags, and for delayed messages the time of delivery."""

import numpy as np

from ariane.arrow.property_columns import PropertyColumns
from ariane.arrow.property_lookup import PropertyLookup
from ariane.arrow.property_texts import property_texts
from ariane.arrow.rows import Rows
from ariane.arrow.source import Int64s
from ariane.model.message import Property
from ariane.store.delay_levels import SCHEDULE_TOPIC, delivery_time_ms
from ariane.wire.java_hash import tags_code


def tags_codes(
    rows: Rows, properties: PropertyColumns, topics: list[str], codes: Int64s, levels_ms: tuple[int, ...]
) -> Int64s:
    """`codes` says which of `topics` each row has. A tag is hashed once for all of the rows that have it."""
    coded = properties.tags.dictionary_encode()
    hashes = np.array([tags_code(tag) for tag in coded.dictionary.to_pylist()] + [0], np.int64)
    result: Int64s = hashes[coded.indices.fill_null(len(hashes) - 1).to_numpy()]
    if SCHEDULE_TOPIC in topics:
        delayed = np.flatnonzero(codes == topics.index(SCHEDULE_TOPIC))
        _put_times(result, rows.take(delayed), delayed, levels_ms)
    return result


def _put_times(result: Int64s, rows: Rows, numbers: Int64s, levels_ms: tuple[int, ...]) -> None:
    levels = PropertyLookup(property_texts(rows)).values(Property.DELAY.encode()).to_pylist()
    stored_ms = rows.field("storeTimestamp", np.int64).tolist()
    for number, level, time_ms in zip(numbers.tolist(), levels, stored_ms, strict=True):
        if level is not None and level.isdigit() and int(level):
            result[number] = delivery_time_ms(levels_ms, min(int(level), len(levels_ms)), time_ms)
