"""Message lookup by physical offset, by key and by time. What a gate holds back is not found (consume_queue/gate.py).

Methods that end in `_steps` are for the event loop, which must not block (store/blocking_io.py); the others may block.
"""

from collections.abc import Sequence

from ariane.store.blocking_io import IoSteps, RecordLocation, run_sync
from ariane.store.commit_log.log import CommitLog
from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES
from ariane.store.consume_queue.gate import Gate
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.index.index import Index
from ariane.wire.record.layout import RECORD_BYTES_MAX
from ariane.wire.record.read import RecordView, verify

QUERY_MAX = 64


class Lookup:
    def __init__(
        self, commit_log: CommitLog, queues: ConsumeQueues, index: Index | None, gate: Gate | None = None
    ) -> None:
        self._gate = gate
        self._log = commit_log
        self._queues = queues
        self._index = index

    @property
    def visible_to(self) -> int:
        """Records that end after this position of the log are not found."""
        return self._log.max_offset if self._gate is None else self._gate.confirmed_to

    def record_at_steps(self, physical: int) -> IoSteps[memoryview | None]:
        """As `record_at`."""
        yield from self._log.warm_records([physical])
        return self._record_at(physical)

    def record_at(self, physical: int) -> memoryview | None:
        """The valid record that begins at `physical`; None when there is none, or when it may be damaged."""
        return run_sync(self.record_at_steps(physical))

    def _record_at(self, physical: int) -> memoryview | None:
        head = self._log.read(physical, 4)
        if head is None:
            return None
        record = self._log.read(physical, max(4, int.from_bytes(head, "big", signed=True)))
        if record is None or physical + len(record) > self.visible_to:
            return None
        view = verify(record, 0)
        return record if isinstance(view, RecordView) and view.physical_offset == physical else None

    def by_key(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[memoryview]:
        """Messages of `topic` with this key, newest first. Compares the records' keys, since hashes collide."""
        if self._index is None:
            return []
        # As many as a query may return, because some may be of another key with the same hash.
        return self.with_key(self._index.query(topic, key, QUERY_MAX, begin_ms, end_ms).offsets, topic, key, count_max)

    def with_key(self, offsets: Sequence[int], topic: str, key: str, count_max: int) -> list[memoryview]:
        """The records at `offsets` that have this topic and key."""
        records = (self.record_at(physical) for physical in offsets)
        matches = [record for record in records if record is not None and _has_key(record, topic, key)]
        return matches[:count_max]

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first offset whose message is not older; the queue's end when all are, 0 when there is no queue.

        Apache 4.x picks the nearer neighbour, which may be an older message. A consumer that starts at a time does not
        want that one; like Apache 5.x this returns the first message that is not earlier.
        """
        return run_sync(self.offset_by_time_steps(topic, queue_id, timestamp_ms))

    def offset_by_time_steps(self, topic: str, queue_id: int, timestamp_ms: int) -> IoSteps[int]:
        """As `offset_by_time`, which reads about twenty records that may have been cold for days."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.visible_end
        while low < high:
            middle = (low + high) // 2
            stored_ms = yield from self.store_time_steps(queue, middle)
            if stored_ms is None or stored_ms < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def store_time(self, queue: ConsumeQueue, offset: int) -> int | None:
        """When the message at `offset` was stored; None when it is gone."""
        return run_sync(self.store_time_steps(queue, offset))

    def store_time_steps(self, queue: ConsumeQueue, offset: int) -> IoSteps[int | None]:
        """As `store_time`."""
        yield from queue.warm(offset)
        location = _location(queue, offset)
        if location is None:
            return None
        yield from self._log.warm([location])
        record = self._log.read(*location)
        view = None if record is None else verify(record, 0, check_body_crc=False)
        return view.store_timestamp_ms if isinstance(view, RecordView) else None

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """When the queue's first message was stored, -1 when it has none."""
        return run_sync(self.earliest_store_time_steps(topic, queue_id))

    def earliest_store_time_steps(self, topic: str, queue_id: int) -> IoSteps[int]:
        """As `earliest_store_time`."""
        queue = self._queues.get(topic, queue_id)
        stored_ms = None if queue is None else (yield from self.store_time_steps(queue, queue.min_offset))
        return -1 if stored_ms is None else stored_ms


def _location(queue: ConsumeQueue, offset: int) -> RecordLocation | None:
    entry = queue.entries(offset, 1)
    if len(entry) < ENTRY_BYTES:
        return None
    physical, size, _ = ENTRY.unpack(entry)
    return (physical, size) if 0 < size <= RECORD_BYTES_MAX else None


def _has_key(record: memoryview, topic: str, key: str) -> bool:
    view = verify(record, 0, check_body_crc=False)
    if not isinstance(view, RecordView) or view.topic != topic:
        return False
    facts = view.dispatch_facts()
    return key == facts.unique_key or key in facts.keys
