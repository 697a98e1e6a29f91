"""Buffer of keys that are not in the index yet, stored column by column.

A broker indexes two keys per message. As one tuple per message they would cost more than their hashing: the garbage
collector visits each tuple, and they have to be unpacked again. So they are stored in columns, as the index needs them.

    physical    100     372     641        of each message with keys
    counts      2       2       1          of its keys
    topics      7a3c    7a3c    19e0       the hash of its topic
    texts       U1 a    U2 b    U3
    times       5000 ms: 3 messages        they were appended together

Keys of uniform batches come as columns of bytes and are hashed at once (`add_rows`), without making a str of them: each
takes 20 bytes here, where a str takes 80.
"""

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from ariane.store.index.entries import NO_ROWS, Int64s, KeyedMessage, KeyRows, key_hashes, topic_hash


class PendingKeys:
    __slots__ = ("_counts", "_hashed", "_hashed_keys", "_physical", "_texts", "_timed", "_times_ms", "_topics")

    def __init__(self) -> None:
        self._hashed: list[KeyRows] = []
        self._hashed_keys = 0
        self._clear_texts()

    def _clear_texts(self) -> None:
        self._physical = array("q")
        self._counts = array("q")
        self._topics = array("I")
        self._texts: list[str] = []
        self._times_ms: list[int] = []
        self._timed: list[int] = []  # how many messages have each of these times

    @classmethod
    def of(cls, messages: Iterable[KeyedMessage]) -> "PendingKeys":
        columns = cls()
        for physical, timestamp_ms, topic, keys in messages:
            columns.add([physical], keys, timestamp_ms, [topic_hash(topic)], [len(keys)])
        return columns

    def __len__(self) -> int:
        return self._hashed_keys + len(self._texts)

    def add(
        self, physical: list[int], texts: Sequence[str], timestamp_ms: int, topics: list[int], counts: list[int]
    ) -> None:
        """Of messages that were appended together, in the order of the log: offset, hash of the topic and number of
        keys of each, and all their keys."""
        if texts:
            self._times_ms.append(timestamp_ms)
            self._timed.append(len(physical))
            self._physical.fromlist(physical)
            self._counts.fromlist(counts)
            self._topics.fromlist(topics)
            self._texts += texts

    def add_each(
        self, physical: list[int], texts: Sequence[str], times_ms: list[int], topics: list[int], counts: list[int]
    ) -> None:
        """The same for messages of different times."""
        if texts:
            self.add(physical, texts, 0, topics, counts)
            self._times_ms[-1:] = times_ms
            self._timed[-1:] = [1] * len(times_ms)

    def add_rows(self, rows: KeyRows) -> None:
        """Keys that are hashed already, after the pending ones."""
        self._hash_texts()
        self._hashed.append(rows)
        self._hashed_keys += len(rows.hashes)

    def _hash_texts(self) -> None:
        if self._texts:
            rows = self._rows_of_texts()
            self._clear_texts()
            self._hashed.append(rows)
            self._hashed_keys += len(rows.hashes)

    def _rows_of_texts(self) -> KeyRows:
        counts = np.array(self._counts)
        times_ms = np.repeat(np.array(self._times_ms, np.int64), self._timed)
        return KeyRows(
            key_hashes(np.repeat(np.array(self._topics), counts), self._texts),
            np.repeat(np.array(self._physical), counts),
            np.repeat(times_ms, counts),
        )

    def rows(self, end_physical: int) -> KeyRows:
        """One row per key of each message after `end_physical`; the others are in the index already.

        Apache indexes the message at `end_physical` itself again. Here a message is indexed completely or not at all,
        so that one is in the index, too.
        """
        self._hash_texts()
        if not self._hashed:
            return NO_ROWS
        if len(self._hashed) > 1:
            self._hashed = [KeyRows(*map(np.concatenate, zip(*self._hashed, strict=True)))]
        rows = self._hashed[0]
        physical = rows.physical
        if physical[0] > end_physical and (physical[1:] >= physical[:-1]).all():
            return rows
        unknown = _unknown(physical, end_physical)
        return KeyRows(rows.hashes[unknown], physical[unknown], rows.timestamps_ms[unknown])


def _unknown(physical: Int64s, end_physical: int) -> list[int]:
    """Numbers of the rows whose message is after all earlier messages; rows of one message are adjacent."""
    numbers, last, is_new = [], -1, False
    for number, offset in enumerate(physical.tolist()):
        if offset != last:
            is_new, last = offset > end_physical, offset
            end_physical = max(end_physical, offset)
        if is_new:
            numbers.append(number)
    return numbers
