"""Several batches into the log: one write, the entries of a batch at once, keys of a table hashed as columns."""

from typing import NamedTuple

import numpy as np

from ariane.store.batch_records import BatchRecords
from ariane.store.commit_log import CommitLog
from ariane.store.consume_queue import ConsumeQueue
from ariane.store.consume_queues import ConsumeQueues
from ariane.store.dispatch import Arrivals, Dispatcher
from ariane.store.draft_batch import AppendedBatch, BatchKeys
from ariane.store.draft_batches import DraftBatches
from ariane.store.index_entries import KeyRows
from ariane.store.key_hash import Int64s, column_hashes
from ariane.store.queue_entry import ENTRY_BYTES

_ENTRY_TYPE = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert _ENTRY_TYPE.itemsize == ENTRY_BYTES


class _Place(NamedTuple):
    """Where a batch goes: its queue, its first offset there, and which of the messages it has."""

    queue: ConsumeQueue
    queue_offset: int
    first: int
    end: int


def append_batches(
    drafts: DraftBatches,
    log: CommitLog,
    queues: ConsumeQueues,
    dispatcher: Dispatcher,
    store_host: bytes,
    timestamp_ms: int,
    batch_bytes_max: int,
) -> list[AppendedBatch] | None:
    """What became of each batch; None, and nothing has changed, when they have to be appended one by one.

    That is when all together do not fit the active file, or are larger than one may be. RecordError when a field is out
    of its range, StoreError when the log cannot be written: nothing has changed then, either.
    """
    places = _places(drafts, queues)
    records = BatchRecords(drafts, places[0].queue.topic_part[1:], store_host, timestamp_ms)
    ends = records.sizes.cumsum()
    if ends[-1] > min(log.room(), batch_bytes_max):
        return None
    ends += log.max_offset
    physical = ends - records.sizes
    # Each message's own number, moved to where its batch begins in its queue.
    shifts = [place.queue_offset - place.first for place in places]
    queue_offsets = np.arange(len(ends)) + np.repeat(shifts, [place.end - place.first for place in places])
    log.append(records.pack(physical, queue_offsets))
    _queue(drafts.tags_codes, places, physical, records.sizes, dispatcher)
    offsets, sizes = physical.tolist(), records.sizes.tolist()
    if dispatcher.has_index:
        _note_keys(drafts, physical, offsets, timestamp_ms, dispatcher)
    return [
        AppendedBatch(offsets[first:end], sizes[first:end], queue_offset, timestamp_ms)
        for _, queue_offset, first, end in places
    ]


def _places(drafts: DraftBatches, queues: ConsumeQueues) -> list[_Place]:
    places: list[_Place] = []
    next_offsets: dict[ConsumeQueue, int] = {}
    first = 0
    for plan in drafts.plans:
        queue = queues.get_or_create(drafts.topic, plan.queue_id)
        queue_offset = next_offsets.get(queue, queue.max_offset)
        next_offsets[queue] = queue_offset + plan.messages
        places.append(_Place(queue, queue_offset, first, first + plan.messages))
        first += plan.messages
    return places


def _queue(codes: int | Int64s, places: list[_Place], physical: Int64s, sizes: Int64s, dispatcher: Dispatcher) -> None:
    entries = np.empty(len(physical), _ENTRY_TYPE)
    entries["physical"], entries["size"], entries["tags_code"] = physical, sizes, codes
    packed = entries.tobytes()
    arrivals: Arrivals = {}
    for queue, _, first, end in places:
        queue.append_packed(packed[first * ENTRY_BYTES : end * ENTRY_BYTES], end - first)
        for code in {codes} if isinstance(codes, int) else set(codes[first:end].tolist()):
            arrivals[queue, code] = queue.max_offset
    dispatcher.tell_all(arrivals)


def _note_keys(
    drafts: DraftBatches, physical: Int64s, offsets: list[int], timestamp_ms: int, dispatcher: Dispatcher
) -> None:
    keys = drafts.keys
    if isinstance(keys, BatchKeys):
        places = keys.of_each(offsets)
        dispatcher.keys.add(places, keys.texts, timestamp_ms, (drafts.topic,), (len(places),))
    elif keys:
        rows = KeyRows.empty(len(physical) * len(keys))
        for place, column in enumerate(keys):  # the keys of a message stand together
            rows.hashes[place :: len(keys)] = column_hashes(drafts.topic, column)
            rows.physical[place :: len(keys)] = physical
        rows.timestamps_ms[:] = timestamp_ms
        dispatcher.keys.add_rows(rows)
