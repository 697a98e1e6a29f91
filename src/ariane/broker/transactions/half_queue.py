"""The two queues of transactions as they stand in the store, and what still waits according to them."""

import logging
from collections.abc import Iterator

from ariane.broker.offsets import ConsumerOffsets
from ariane.broker.system_topics import TRANS_HALF, TRANS_OP
from ariane.broker.transactions.half_messages import HalfMessage
from ariane.broker.transactions.half_record import HALF_QUEUE
from ariane.broker.transactions.op_messages import OP_QUEUE, ended_offsets
from ariane.broker.transactions.open_halves import OpenHalves
from ariane.errors import RecordError
from ariane.store.cold_reads import Place
from ariane.store.message_store import MessageStore
from ariane.store.queue_entry import ENTRY
from ariane.store.steps import Steps
from ariane.wire.record_view import RecordView, verify

log = logging.getLogger(__name__)

PROGRESS_GROUP = "CID_RMQ_SYS_TRANS"
"""The consumer group whose offsets say how far both queues are done with; Apache's brokers go on from them."""


class StoredQueue:
    """One queue that is read message by message. Only the queue's own entries lead to records.

    A physical offset that a client names is never followed: a message's body may hold bytes that look like a record.
    """

    def __init__(self, store: MessageStore, topic: str, queue_id: int = 0) -> None:
        self._store = store
        self._topic = topic
        self._queue_id = queue_id

    @property
    def begin(self) -> int:
        queue = self._store.parts.queues.get(self._topic, self._queue_id)
        return 0 if queue is None else queue.min_offset

    @property
    def end(self) -> int:
        queue = self._store.parts.queues.get(self._topic, self._queue_id)
        return 0 if queue is None else queue.max_offset

    def at(self, offset: int) -> memoryview | None:
        """The record of this queue offset; None when it is not there, or no longer."""
        place = self._place(offset)
        return None if place is None else self._store.parts.commit_log.read(*place)

    def fresh_at(self, offset: int) -> memoryview | None:
        """The same for a message that was stored just now; None also for one that the disk may have to be asked for."""
        parts = self._store.parts
        queue = parts.queues.get(self._topic, self._queue_id)
        entry = None if queue is None else queue.cached_entries(offset, 1)
        if not entry:
            return None
        physical, size, _ = ENTRY.unpack(entry)
        return parts.commit_log.read(physical, size) if physical >= parts.commit_log.fresh_from else None

    def finding(self, offset: int) -> Steps[memoryview | None]:
        """As `at`."""
        queue = self._store.parts.queues.get(self._topic, self._queue_id)
        if queue is not None:
            yield from queue.warm(offset)
            place = self._place(offset)
            if place is not None:
                yield from self._store.parts.commit_log.warm([place])
        return self.at(offset)

    def _place(self, offset: int) -> Place | None:
        queue = self._store.parts.queues.get(self._topic, self._queue_id)
        entry = b"" if queue is None else queue.entries(offset, 1)
        return ENTRY.unpack(entry)[:2] if entry else None

    def walk(self, begin: int) -> Iterator[tuple[RecordView, memoryview]]:
        """Every whole record from `begin` on."""
        offset = max(begin, self.begin)
        while offset < self.end:
            found = self._store.reader.read(self._topic, self._queue_id, offset, 32)
            for record in found.slices:
                view = verify(record)
                if isinstance(view, RecordView):
                    yield view, record
            offset = max(found.next_offset, offset + 1)


def half_queue(store: MessageStore) -> StoredQueue:
    return StoredQueue(store, TRANS_HALF, HALF_QUEUE)


def op_queue(store: MessageStore) -> StoredQueue:
    return StoredQueue(store, TRANS_OP, OP_QUEUE)


def load_open_halves(store: MessageStore, offsets: ConsumerOffsets) -> OpenHalves:
    """What waits, from the saved progress on. Without any, from the beginning of both queues."""
    halves, ops = half_queue(store), op_queue(store)
    open_halves = OpenHalves(_progress(offsets, TRANS_HALF, halves), _progress(offsets, TRANS_OP, ops))
    for view, record in ops.walk(open_halves.first_op):
        ended = [offset for offset in _ended(view, record) if offset < halves.end]
        open_halves.op_written(view.queue_offset, ended)
    for view, record in halves.walk(open_halves.first_open):
        _note_copy(open_halves, view, record)
    return open_halves


def _progress(offsets: ConsumerOffsets, topic: str, queue: StoredQueue) -> int:
    """Between the queue's two ends: the files may have lost what the offsets remember, or have dropped it."""
    return max(queue.begin, min(queue.end, offsets.get(PROGRESS_GROUP, topic, 0)))


def _ended(view: RecordView, record: memoryview) -> list[int]:
    try:
        return ended_offsets(view, record)
    except RecordError as error:
        log.warning("op message without meaning", extra={"offset": view.queue_offset, "reason": str(error)})
        return []


def _note_copy(open_halves: OpenHalves, view: RecordView, record: memoryview) -> None:
    """A copy replaces what it was made of: the broker may have ended before it noted so."""
    try:
        first = HalfMessage.of(record).first_offset
    except RecordError:
        return  # the next round of checks tells, and passes it over
    if first != view.queue_offset:
        was_open = open_halves.is_open(view.queue_offset)
        open_halves.copied(first, view.queue_offset)
        if not was_open:
            open_halves.ended(first)
