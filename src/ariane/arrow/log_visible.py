"""Which records of the log a consumer can see: those that their queue still begins before.

A topic that is deleted, or deleted and made anew, leaves its old records in the log. Its queue does not know them, no
consumer gets them, and a reader of the log should not show them either.
"""

from functools import lru_cache

import numpy as np

from ariane.arrow.log_queues import open_queues, topics_with_queues
from ariane.arrow.rows import Rows
from ariane.arrow.source import Int64s, is_all
from ariane.store.layout import Layout

_NOWHERE = 2**63 - 1
_COUNTED_MAX = 65536


class Visible:
    """One store's queues, each looked up once."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._topics = frozenset(topic.encode() for topic in topics_with_queues(layout))
        self._first = lru_cache(maxsize=None)(self._look_up)

    def _look_up(self, topic: bytes, queue_id: int) -> int:
        """Where the first record of a queue is in the log."""
        if topic not in self._topics:
            return _NOWHERE
        queue = next(open_queues(self._layout, [topic.decode()], frozenset({queue_id})), None)
        return queue.physical(queue.first) if queue is not None and len(queue) else _NOWHERE

    def only(self, rows: Rows) -> Rows:
        """The rows that are seen."""
        if not len(rows):
            return rows
        topics, codes = _topics(rows)
        queue_ids = rows.field("queueId", np.int64)
        low = int(queue_ids.min())
        wide = int(queue_ids.max()) - low + 1
        queues, of_row = _distinct(codes * wide + (queue_ids - low), len(topics) * wide)
        firsts = [self._first(topics[queue // wide], queue % wide + low) for queue in queues.tolist()]
        physical = rows.physical
        if max(firsts) <= int(physical[0]):  # rows ascend, and most queues began long ago
            return rows
        is_seen = physical >= np.array(firsts, np.int64)[of_row]
        return rows if is_all(is_seen) else rows.take(is_seen)


def _topics(rows: Rows) -> tuple[list[bytes], Int64s | int]:
    """The distinct topics, and the number of each row's."""
    if rows.one_topic is not None:
        return [rows.one_topic], 0
    coded = rows.topics.dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)


def _distinct(values: Int64s, end: int) -> tuple[Int64s, Int64s]:
    """The distinct values from 0 to `end`, and which of them each one is. Few are counted faster than sorted."""
    if end > _COUNTED_MAX:
        return np.unique(values, return_inverse=True)
    found = np.flatnonzero(np.bincount(values, minlength=end))
    places = np.zeros(end, np.int64)
    places[found] = np.arange(len(found))
    return found, places[values]
