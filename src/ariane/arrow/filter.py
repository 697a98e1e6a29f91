"""Selection of messages, applied to records before they are decoded and used to plan what need not be read."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ariane.arrow.gather import Bools, all_true
from ariane.arrow.property_columns import PropertyColumns
from ariane.arrow.rows import Rows
from ariane.wire.sys_flag import SysFlag

_NOT_QUEUED = int(SysFlag.TRANSACTION_PREPARED)
"""The bit of prepared and rolled-back messages: they are in no consume queue, so no consumer sees them."""
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
    """A message must match every field; a field that is None matches all."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    ranges: tuple[OffsetRange, ...] | None = None
    """Only these queues, and of each only these offsets; one range for a queue."""
    stored_from_ms: int | None = None
    stored_before_ms: int | None = None
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    """Words in KEYS, or the unique key."""
    queued_only: bool = False
    """Without prepared and rolled-back messages, as for consumers."""


def select(rows: Rows, selection: Selection) -> tuple[Rows, PropertyColumns]:
    """The selected rows, with the property columns that were made to select them."""
    rows = _by_header(rows, selection)
    if selection.topics is not None and len(rows):
        rows = _of_topics(rows, {topic.encode() for topic in selection.topics})
    if selection.ranges is not None and len(rows):
        rows = _kept(rows, _in_ranges(rows, selection.ranges))
    columns = PropertyColumns(rows)
    if (selection.tags is not None or selection.keys is not None) and len(rows):
        kept = _kept(rows, _by_properties(columns, selection))
        columns = columns if kept is rows else PropertyColumns(kept)
        rows = kept
    return rows, columns


def _of_topics(rows: Rows, topics: set[bytes]) -> Rows:
    if rows.one_topic is not None:
        return rows if rows.one_topic in topics else rows.first(0)
    return _kept(rows, np.asarray(pc.is_in(rows.topics, pa.array(sorted(topics), pa.binary()))))


def _kept(rows: Rows, which: Bools) -> Rows:
    return rows if all_true(which) else rows.take(which)


def _by_header(rows: Rows, selection: Selection) -> Rows:
    keep: Bools | None = None
    if selection.queued_only and rows.flags & _NOT_QUEUED:
        keep = _and(keep, rows.sys_flag & _NOT_QUEUED == 0)
    if selection.queue_ids is not None:
        keep = _and(keep, np.isin(rows.field("queueId", np.int32), list(selection.queue_ids)))
    if selection.stored_from_ms is not None:
        keep = _and(keep, rows.field("storeTimestamp", np.int64) >= selection.stored_from_ms)
    if selection.stored_before_ms is not None:
        keep = _and(keep, rows.field("storeTimestamp", np.int64) < selection.stored_before_ms)
    return rows if keep is None else _kept(rows, keep)


def _and(left: Bools | None, right: Bools) -> Bools:
    return right if left is None else left & right


def _in_ranges(rows: Rows, ranges: tuple[OffsetRange, ...]) -> Bools:
    """Looks up the queue of each row in a sorted table. A pull has one queue and needs no lookup."""
    if len(ranges) == 1 and rows.one_topic == ranges[0].topic.encode():
        return _in_range(rows, ranges[0])
    coded = rows.topics.dictionary_encode()
    codes = {topic: code for code, topic in enumerate(coded.dictionary.to_pylist())}
    table = sorted(
        (codes[topic] * _QUEUE_IDS + bounds.queue_id, bounds.first, bounds.end)
        for bounds in ranges
        if (topic := bounds.topic.encode()) in codes
    )
    if not table:
        return np.zeros(len(rows), np.bool_)
    queues, firsts, ends = np.array(table, np.int64).T
    row_queues = coded.indices.to_numpy().astype(np.int64) * _QUEUE_IDS + rows.field("queueId", np.int64)
    index = np.minimum(np.searchsorted(queues, row_queues), len(queues) - 1)
    offsets = rows.field("queueOffset", np.int64)
    inside: Bools = (queues[index] == row_queues) & (offsets >= firsts[index]) & (offsets < ends[index])
    return inside


def _in_range(rows: Rows, bounds: OffsetRange) -> Bools:
    offsets = rows.field("queueOffset", np.int64)
    inside: Bools = (offsets >= bounds.first) & (offsets < bounds.end)
    inside &= rows.field("queueId", np.int32) == bounds.queue_id
    return inside


def _by_properties(columns: PropertyColumns, selection: Selection) -> Bools:
    keep: Bools | None = None
    if selection.tags is not None:
        keep = _and(keep, np.asarray(pc.is_in(columns.tags, pa.array(sorted(selection.tags), pa.string()))))
    if selection.keys is not None:
        keep = _and(keep, _has_key(columns, pa.array(sorted(selection.keys), pa.string())))
    assert keep is not None
    return keep


def _has_key(columns: PropertyColumns, words: pa.Array) -> Bools:
    lists = columns.keys
    matches = np.flatnonzero(pc.is_in(lists.values, words))
    has_key = np.zeros(len(lists), np.bool_)
    has_key[np.searchsorted(lists.offsets.to_numpy(), matches, side="right") - 1] = True
    has_key |= np.asarray(pc.is_in(columns.unique_keys, words), np.bool_)
    return has_key
