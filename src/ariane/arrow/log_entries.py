"""The records that the wanted queues name within a split, in the order of the log.

A task that went from queue to queue would touch every page of the log once for each of them; merged, once.
"""

from dataclasses import dataclass

import numpy as np

from ariane.arrow.bad_records import BadRecord, reason_at
from ariane.arrow.log_queues import QueueEntries, open_queues, topics_with_queues
from ariane.arrow.log_split import LogSplit
from ariane.arrow.row_checks import Checked
from ariane.arrow.rows import Rows
from ariane.arrow.source import Bools, Int64s, is_all
from ariane.arrow.walk import Walk
from ariane.store.delay_levels import SCHEDULE_TOPIC
from ariane.store.layout import Layout
from ariane.store.scan_queue import Entries
from ariane.wire.java_hash import tags_code

_HASHES_MIN = -(2**31)


@dataclass(frozen=True, eq=False)
class QueuedRecords:
    """Places in the log; and, where a queue names them, what the records there must be."""

    offsets: Int64s
    sizes: Int64s | None = None
    queue_ids: Int64s | None = None
    numbers: Int64s | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, begin: int, end: int) -> "QueuedRecords":
        parts = (self.sizes, self.queue_ids, self.numbers)
        return QueuedRecords(self.offsets[begin:end], *(None if part is None else part[begin:end] for part in parts))

    def fitting(self, walk: Walk, checked: Checked) -> tuple[Rows, list[BadRecord]]:
        """The records that are what their entries say, and the others."""
        rows = checked.rows
        bad = [self._bad(walk, number) for number in self._not_in(checked.numbers)]
        is_wrong = self._mismatches(checked)
        is_wrong[rows.odd_topics()] = True
        for number in np.flatnonzero(is_wrong).tolist():
            reason = "a record that is not the one that the queue's entry names"
            bad.append(walk.bad(int(rows.position[number]), rows.size(number), reason))
        return rows if not bad else rows.take(~is_wrong), bad

    def _not_in(self, numbers: Int64s) -> list[int]:
        """The other places. Nearly always there are none, and to look for them costs more than to read a record."""
        if len(numbers) == len(self):
            return []
        others: list[int] = np.setdiff1d(np.arange(len(self)), numbers).tolist()
        return others

    def _bad(self, walk: Walk, number: int) -> BadRecord:
        at = int(self.offsets[number]) - (walk.base or 0)
        size = 0 if self.sizes is None else int(self.sizes[number])
        return walk.bad(at, size, reason_at(walk.source, at, walk.limit, walk.base))

    def _mismatches(self, checked: Checked) -> Bools:
        rows, which = checked.rows, checked.numbers
        is_wrong = np.zeros(len(rows), np.bool_)
        if self.sizes is None or self.queue_ids is None or self.numbers is None:
            return is_wrong
        is_wrong |= rows.field("size", np.int64) != self.sizes[which]
        is_wrong |= rows.field("queueId", np.int64) != self.queue_ids[which]
        is_wrong |= rows.field("queueOffset", np.int64) != self.numbers[which]
        return is_wrong


def queued_records(layout: Layout, split: LogSplit) -> QueuedRecords:
    wanted = split.selection
    topics = [topic for topic in topics_with_queues(layout) if wanted.topics is None or topic in wanted.topics]
    parts = [_in_split(queue, split) for queue in open_queues(layout, topics, wanted.queue_ids)]
    if not parts:
        return QueuedRecords(np.empty(0, np.int64))
    offsets, sizes, queue_ids, numbers = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(offsets, kind="stable")
    return QueuedRecords(offsets[order], sizes[order], queue_ids[order], numbers[order])


def _in_split(queue: QueueEntries, split: LogSplit) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Offsets, sizes, queue ids and numbers of the wanted entries."""
    first, end = queue.number_at(split.begin), queue.number_at(split.end)
    ranges = split.selection.ranges
    if ranges is not None:
        mine = [one for one in ranges if (one.topic, one.queue_id) == (queue.topic, queue.queue_id)]
        first = max(first, min((one.first for one in mine), default=end))
        end = min(end, max((one.end for one in mine), default=first))
    entries = queue.read(first, max(first, end))
    numbers = np.arange(first, first + len(entries))
    keep = _by_tags(queue.topic, entries, split.selection.tags)
    if not is_all(keep):
        entries, numbers = entries[keep], numbers[keep]
    offsets, sizes = entries["offset"].astype(np.int64), entries["size"].astype(np.int64)
    return offsets, sizes, np.full(len(entries), queue.queue_id, np.int64), numbers


def _by_tags(topic: str, entries: Entries, tags: frozenset[str] | None) -> Bools:
    """By hash; the record itself is compared later. Entries that hold something else than a hash are kept."""
    if tags is None or topic == SCHEDULE_TOPIC:
        return np.ones(len(entries), np.bool_)
    codes = entries["tags"].astype(np.int64)
    kept: Bools = np.isin(codes, [tags_code(tag) for tag in tags]) | (codes < _HASHES_MIN)
    return kept
