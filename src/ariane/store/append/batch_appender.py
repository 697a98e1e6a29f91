"""Appends several batches at once: one write, one block of queue entries each, keys hashed as columns."""

from typing import NamedTuple

import numpy as np

from ariane.store.append.batch import AppendedBatch, BatchKeys, DraftBatchGroup
from ariane.store.commit_log.log import CommitLog
from ariane.store.consume_queue.entry import ENTRY_BYTES
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.dispatch import Dispatcher
from ariane.store.index.entries import KeyRows, column_hashes, topic_hash
from ariane.wire.record.uniform_batch import BatchRecords, Int64s

_ENTRY_TYPE = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert _ENTRY_TYPE.itemsize == ENTRY_BYTES


class _Target(NamedTuple):
    """Where a batch goes: its queue, its first offset there, and which of the messages it has."""

    queue: ConsumeQueue
    queue_offset: int
    first: int
    end: int


def append_batches(
    drafts: DraftBatchGroup,
    log: CommitLog,
    queues: ConsumeQueues,
    dispatcher: Dispatcher,
    store_host: bytes,
    timestamp_ms: int,
) -> list[AppendedBatch] | None:
    """The result of each batch; None, and nothing has changed, when they have to be appended one by one.

    That is when all together do not fit the active file. RecordError when a field is out of its range, StoreError when
    the log cannot be written: nothing has changed then, either.
    """
    targets = _targets(drafts, queues)
    records = BatchRecords(
        drafts.items, drafts.plans, drafts.properties_end, targets[0].queue.topic_part[1:], store_host, timestamp_ms
    )
    ends = records.sizes.cumsum()
    if ends[-1] > log.room():
        return None
    ends += log.max_offset
    physical = ends - records.sizes
    # Each message's own number, moved to where its batch begins in its queue.
    shifts = [target.queue_offset - target.first for target in targets]
    queue_offsets = np.arange(len(ends)) + np.repeat(shifts, [target.end - target.first for target in targets])
    log.append(records.pack(physical, queue_offsets))
    _queue(drafts.tags_codes, targets, physical, records.sizes, dispatcher)
    offsets, sizes = physical.tolist(), records.sizes.tolist()
    if dispatcher.has_index:
        _index_keys(drafts, physical, offsets, timestamp_ms, dispatcher)
    return [
        AppendedBatch(offsets[first:end], sizes[first:end], queue_offset, timestamp_ms)
        for _, queue_offset, first, end in targets
    ]


def _targets(drafts: DraftBatchGroup, queues: ConsumeQueues) -> list[_Target]:
    targets: list[_Target] = []
    next_offsets: dict[ConsumeQueue, int] = {}
    first = 0
    for plan in drafts.plans:
        queue = queues.get_or_create(drafts.topic, plan.queue_id)
        queue_offset = next_offsets.get(queue, queue.max_offset)
        next_offsets[queue] = queue_offset + plan.messages
        targets.append(_Target(queue, queue_offset, first, first + plan.messages))
        first += plan.messages
    return targets


def _queue(
    codes: int | Int64s, targets: list[_Target], physical: Int64s, sizes: Int64s, dispatcher: Dispatcher
) -> None:
    entries = np.empty(len(physical), _ENTRY_TYPE)
    entries["physical"], entries["size"], entries["tags_code"] = physical, sizes, codes
    packed = entries.tobytes()
    arrived, arrived_codes = list[ConsumeQueue](), list[int]()
    for queue, _, first, end in targets:
        queue.append_packed(packed[first * ENTRY_BYTES : end * ENTRY_BYTES], end - first)
        if dispatcher.gate is None:
            own_codes = {codes} if isinstance(codes, int) else set(codes[first:end].tolist())
            arrived += [queue] * len(own_codes)
            arrived_codes += own_codes
        else:
            arrived += [queue] * (end - first)
    if dispatcher.gate is None:
        dispatcher.notify(arrived, arrived_codes)
    else:
        dispatcher.gate.hold(arrived, entries["tags_code"].tolist(), (physical + sizes).tolist())


def _index_keys(
    drafts: DraftBatchGroup, physical: Int64s, offsets: list[int], timestamp_ms: int, dispatcher: Dispatcher
) -> None:
    keys = drafts.keys
    if isinstance(keys, BatchKeys):
        counts = keys.of_each(len(offsets))
        dispatcher.keys.add(offsets, keys.texts, timestamp_ms, [topic_hash(drafts.topic)] * len(offsets), counts)
    elif keys:
        rows = KeyRows.empty(len(physical) * len(keys))
        for position, column in enumerate(keys):  # the keys of a message stand together
            rows.hashes[position :: len(keys)] = column_hashes(drafts.topic, column)
            rows.physical[position :: len(keys)] = physical
        rows.timestamps_ms[:] = timestamp_ms
        dispatcher.keys.add_rows(rows)
