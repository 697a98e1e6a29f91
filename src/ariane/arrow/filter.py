"""Which messages are wanted: applied to records before they are decoded, and used to find out what need not be read."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ariane.arrow.gather import Bools, is_all
from ariane.arrow.property_columns import PropertyColumns
from ariane.arrow.rows import Rows
from ariane.wire.sys_flag import SysFlag

_NOT_QUEUED = int(SysFlag.TRANSACTION_PREPARED)
"""The bit that prepared and rolled-back messages have: no queue shows them, so no consumer sees them."""
_QUEUE_IDS = 1 << 32


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Messages of one queue, from an offset on and before another."""

    topic: str
    queue_id: int
    first: int = 0
    end: int = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Selection:
    """What is None does not choose. Every part that does must agree."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    ranges: tuple[OffsetRange, ...] | None = None
    """Only these queues, and of each only these offsets; one range for a queue."""
    stored_from_ms: int | None = None
    stored_before_ms: int | None = None
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    """Words that stand in KEYS, or the unique key."""
    queued_only: bool = False
    """Without prepared and rolled-back messages, as consumers see it."""


def select(rows: Rows, wanted: Selection) -> tuple[Rows, PropertyColumns]:
    """The rows that are wanted; what was read of their properties on the way can be used again."""
    rows = _by_head(rows, wanted)
    if wanted.topics is not None and len(rows):
        rows = _of_topics(rows, {topic.encode() for topic in wanted.topics})
    if wanted.ranges is not None and len(rows):
        rows = _kept(rows, _in_ranges(rows, wanted.ranges))
    columns = PropertyColumns(rows)
    if (wanted.tags is not None or wanted.keys is not None) and len(rows):
        kept = _kept(rows, _by_properties(columns, wanted))
        columns = columns if kept is rows else PropertyColumns(kept)
        rows = kept
    return rows, columns


def _of_topics(rows: Rows, topics: set[bytes]) -> Rows:
    if rows.one_topic is not None:
        return rows if rows.one_topic in topics else rows.first(0)
    return _kept(rows, np.asarray(pc.is_in(rows.topics, pa.array(sorted(topics), pa.binary()))))


def _kept(rows: Rows, which: Bools) -> Rows:
    return rows if is_all(which) else rows.take(which)


def _by_head(rows: Rows, wanted: Selection) -> Rows:
    keep: Bools | None = None
    if wanted.queued_only and rows.flags & _NOT_QUEUED:
        keep = _both(keep, rows.sys_flag & _NOT_QUEUED == 0)
    if wanted.queue_ids is not None:
        keep = _both(keep, np.isin(rows.field("queueId", np.int32), list(wanted.queue_ids)))
    if wanted.stored_from_ms is not None:
        keep = _both(keep, rows.field("storeTimestamp", np.int64) >= wanted.stored_from_ms)
    if wanted.stored_before_ms is not None:
        keep = _both(keep, rows.field("storeTimestamp", np.int64) < wanted.stored_before_ms)
    return rows if keep is None else _kept(rows, keep)


def _both(one: Bools | None, other: Bools) -> Bools:
    return other if one is None else one & other


def _in_ranges(rows: Rows, ranges: tuple[OffsetRange, ...]) -> Bools:
    """Each row finds its queue in a sorted table, unless there is nothing to find: a pull asks for one queue."""
    if len(ranges) == 1 and rows.one_topic == ranges[0].topic.encode():
        return _in_range(rows, ranges[0])
    coded = rows.topics.dictionary_encode()
    codes = {topic: code for code, topic in enumerate(coded.dictionary.to_pylist())}
    table = sorted(
        (codes[topic] * _QUEUE_IDS + one.queue_id, one.first, one.end)
        for one in ranges
        if (topic := one.topic.encode()) in codes
    )
    if not table:
        return np.zeros(len(rows), np.bool_)
    queues, firsts, ends = np.array(table, np.int64).T
    row_queues = coded.indices.to_numpy().astype(np.int64) * _QUEUE_IDS + rows.field("queueId", np.int64)
    place = np.minimum(np.searchsorted(queues, row_queues), len(queues) - 1)
    offsets = rows.field("queueOffset", np.int64)
    inside: Bools = (queues[place] == row_queues) & (offsets >= firsts[place]) & (offsets < ends[place])
    return inside


def _in_range(rows: Rows, one: OffsetRange) -> Bools:
    offsets = rows.field("queueOffset", np.int64)
    inside: Bools = (offsets >= one.first) & (offsets < one.end) & (rows.field("queueId", np.int32) == one.queue_id)
    return inside


def _by_properties(columns: PropertyColumns, wanted: Selection) -> Bools:
    keep: Bools | None = None
    if wanted.tags is not None:
        keep = _both(keep, np.asarray(pc.is_in(columns.tags, pa.array(sorted(wanted.tags), pa.string()))))
    if wanted.keys is not None:
        keep = _both(keep, _has_key(columns, pa.array(sorted(wanted.keys), pa.string())))
    assert keep is not None
    return keep


def _has_key(columns: PropertyColumns, words: pa.Array) -> Bools:
    lists = columns.keys
    matches = np.flatnonzero(pc.is_in(lists.values, words))
    found = np.zeros(len(lists), np.bool_)
    found[np.searchsorted(lists.offsets.to_numpy(), matches, side="right") - 1] = True
    found |= np.asarray(pc.is_in(columns.unique_keys, words), np.bool_)
    return found
