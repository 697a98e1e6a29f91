"""Buffer of keys that are not in the index yet, stored column by column.

A broker indexes two keys per message. As one tuple per message they would cost more than their hashing: the garbage
collector visits each tuple, and they have to be unpacked again. So they are stored in columns, as the index needs them.

    physical    100  100  372  372  641  641        of the message, for each key
    texts       U1   a    U2   b    U3   c
    runs        orders, 5000 ms: 4 keys   invoices, 5000 ms: 2 keys

Keys of uniform batches come as columns of bytes and are hashed at once (`add_rows`), without making a str of them: each
takes 20 bytes here, where a str takes 80.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat

import numpy as np

from ariane.store.index.entries import NO_ROWS, Int64s, KeyedMessage, KeyRows, key_hashes, topic_hash


class PendingKeys:
    __slots__ = ("_hashed", "_hashed_keys", "_physical", "_run_keys", "_run_times_ms", "_run_topics", "_texts")

    def __init__(self) -> None:
        self._hashed: list[KeyRows] = []
        self._hashed_keys = 0
        self._clear_texts()

    def _clear_texts(self) -> None:
        self._physical = array("q")
        self._texts: list[str] = []
        self._run_topics: list[str] = []
        self._run_times_ms: list[int] = []
        self._run_keys: list[int] = []

    @classmethod
    def of(cls, messages: Iterable[KeyedMessage]) -> "PendingKeys":
        columns = cls()
        for physical, timestamp_ms, topic, keys in messages:
            columns.add([physical] * len(keys), keys, timestamp_ms, (topic,), (len(keys),))
        return columns

    def __len__(self) -> int:
        return self._hashed_keys + len(self._texts)

    def add(
        self,
        physical: list[int],
        texts: Sequence[str],
        timestamp_ms: int,
        run_topics: Sequence[str],
        run_keys: Sequence[int],
    ) -> None:
        """Keys in the order of the log, each with its message's offset; `run_keys` many per topic of `run_topics`."""
        self.add_runs(physical, texts, repeat(timestamp_ms, len(run_topics)), run_topics, run_keys)

    def add_runs(
        self,
        physical: list[int],
        texts: Sequence[str],
        run_times_ms: Iterable[int],
        run_topics: Sequence[str],
        run_keys: Sequence[int],
    ) -> None:
        """The same for messages of different times."""
        self._physical.fromlist(physical)
        self._texts += texts
        self._run_topics += run_topics
        self._run_keys += run_keys
        self._run_times_ms += run_times_ms

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
        counts = np.array(self._run_keys, np.int64)
        topics = np.fromiter(map(topic_hash, self._run_topics), np.uint32, len(counts))
        return KeyRows(
            key_hashes(np.repeat(topics, counts), self._texts),
            np.array(self._physical, np.int64),
            np.repeat(np.array(self._run_times_ms, np.int64), counts),
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
