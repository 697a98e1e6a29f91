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
_QUEUES_USUAL = 64
"""So many are looked up, also those of which there is no row: once for a read, and not batch by batch."""
_least, _most = np.minimum.reduce, np.maximum.reduce


class Visible:
    """One store's queues, each looked up once."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._topics = frozenset(topic.encode() for topic in topics_with_queues(layout))
        self._first = lru_cache(maxsize=None)(self._look_up)
        self._last_first = lru_cache(maxsize=256)(self._look_up_last)

    def _look_up(self, topic: bytes, queue_id: int) -> int:
        """Where the first record of a queue is in the log."""
        if topic not in self._topics:
            return _NOWHERE
        queue = next(open_queues(self._layout, [topic.decode()], frozenset({queue_id})), None)
        first = None if queue is None else queue.first_physical()
        return _NOWHERE if first is None else first

    def _all_began(self, rows: Rows, low: int, high: int) -> bool:
        """Whether these queues began before the rows: so it is nearly always, and no row has to be looked at."""
        topic = rows.one_topic
        if topic is None or high - low >= _QUEUES_USUAL:
            return False
        return self._last_first(topic, low, high) <= rows.first_physical

    def _look_up_last(self, topic: bytes, low: int, high: int) -> int:
        """Where the last of these queues begins."""
        return max(self._first(topic, queue_id) for queue_id in range(low, high + 1))

    def only(self, rows: Rows) -> Rows:
        """The rows that are seen."""
        if not len(rows):
            return rows
        queue_ids = rows.field("queueId", np.int64)
        low, high = int(_least(queue_ids)), int(_most(queue_ids))
        if self._all_began(rows, low, high):
            return rows
        topics, codes = _topics(rows)
        wide = high - low + 1
        queues, of_row = _distinct(codes * wide + (queue_ids - low), len(topics) * wide)
        firsts = [self._first(topics[queue // wide], queue % wide + low) for queue in queues.tolist()]
        if max(firsts) <= rows.first_physical:  # rows ascend, and most queues began long ago
            return rows
        is_seen = rows.physical >= np.array(firsts, np.int64)[of_row]
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
