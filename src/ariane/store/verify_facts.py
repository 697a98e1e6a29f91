"""What a check keeps of the records of one commit log file: columns of numbers, to be compared with whole columns.

A file of 1 GiB may hold ten million records. As columns they take 40 bytes each, and a queue's entries are compared
with one call of numpy; as objects they would not fit the memory. After each file the columns start anew.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ariane.model.message import Property
from ariane.store.delay_levels import SCHEDULE_TOPIC
from ariane.store.dispatch import is_queued
from ariane.store.key_hash import key_hashes, topic_hash
from ariane.wire.record_view import DispatchFacts, RecordView
from ariane.wire.sys_flag import SysFlag, transaction_type

Longs = npt.NDArray[np.int64]
Queue = tuple[str, int]

_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
_HASHED_AT_ONCE = 4096
_NUMBERS_A_RECORD = 7
NOT_QUEUED = -1


@dataclass(frozen=True, slots=True)
class FactColumns:
    """One row per record, in the order of the log; one key row per index key, with the number of its record."""

    offsets: Longs
    sizes: Longs
    queues: Longs
    """The number of the record's queue in `queue_names`; NOT_QUEUED for a prepared or rolled back message."""
    queue_offsets: Longs
    tags_codes: Longs
    is_delayed: npt.NDArray[np.bool_]
    """The entry holds a delivery time in place of the tags code."""
    store_times_ms: Longs
    key_records: Longs
    key_hashes: Longs
    queue_names: Sequence[Queue]


class LogFacts:
    def __init__(self) -> None:
        self._queue_numbers: dict[Queue, int] = {}
        self._clear()

    def _clear(self) -> None:
        self._rows = array("q")
        """Seven numbers for each record: one call that adds them all costs less than seven."""
        self._records = 0
        self._key_records = array("q")
        self._key_hashes: list[npt.NDArray[np.int32]] = []
        self._topics = array("I")
        self._keys: list[str] = []

    def add(self, view: RecordView, offset: int) -> None:
        """A RecordError when the properties are not text."""
        facts = view.dispatch_facts()
        is_delayed = view.topic == SCHEDULE_TOPIC and Property.DELAY in view.properties()
        self._rows.extend(
            (
                offset,
                view.size,
                self._queue_number(view),
                view.queue_offset,
                facts.tags_code,
                is_delayed,
                view.store_timestamp_ms,
            )
        )
        if transaction_type(view.sys_flag) != _ROLLBACK:
            self._add_keys(view.topic, facts)
        self._records += 1

    def _queue_number(self, view: RecordView) -> int:
        if not is_queued(view.sys_flag):
            return NOT_QUEUED
        return self._queue_numbers.setdefault((view.topic, view.queue_id), len(self._queue_numbers))

    def _add_keys(self, topic: str, facts: DispatchFacts) -> None:
        keys = [facts.unique_key, *facts.keys] if facts.unique_key else facts.keys
        self._keys.extend(keys)
        self._key_records.extend([self._records] * len(keys))
        self._topics.extend([topic_hash(topic)] * len(keys))
        if len(self._keys) >= _HASHED_AT_ONCE:
            self._hash()

    def _hash(self) -> None:
        if self._keys:
            self._key_hashes.append(key_hashes(np.frombuffer(self._topics, np.uint32), self._keys))
            self._topics, self._keys = array("I"), []

    def take(self) -> FactColumns:
        """The columns so far; then they are empty again. Queues keep their numbers."""
        self._hash()
        columns = _longs(self._rows).reshape(-1, _NUMBERS_A_RECORD).T
        facts = FactColumns(
            offsets=columns[0],
            sizes=columns[1],
            queues=columns[2],
            queue_offsets=columns[3],
            tags_codes=columns[4],
            is_delayed=columns[5] != 0,
            store_times_ms=columns[6],
            key_records=_longs(self._key_records),
            key_hashes=np.concatenate([*self._key_hashes, np.zeros(0, np.int32)]).astype(np.int64),
            queue_names=list(self._queue_numbers),
        )
        self._clear()
        return facts


def _longs(column: "array[int]") -> Longs:
    return np.frombuffer(column, np.int64) if column else np.zeros(0, np.int64)
