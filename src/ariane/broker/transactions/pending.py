"""The two queues of transactions as they stand in the store, and what still waits according to them."""

import logging
from collections import deque
from collections.abc import Iterator

from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.transactions.half_messages import HALF_QUEUE, OP_QUEUE, HalfMessage, ended_offsets
from ariane.errors import RecordError
from ariane.model.system_topics import TRANS_HALF, TRANS_OP
from ariane.store.blocking_io import IoSteps, RecordLocation
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.message_store import MessageStore
from ariane.wire.record.read import RecordView, verify

# --- open_halves ---
#
# Which half messages still wait for their outcome: the sum of the half queue and the op queue, in a few numbers.
#
#     half queue   ... 40 41 42 43 44 45 46 47          op queue   ... 17 18 19
#                         │  over     over │                           │
#                      first_open          end                      first_op
#
# Everything below `first_open` is over, and so is what is in a set. Both queues are on disk; this is only how far a
# walk over them would come, kept up to date by whoever writes to them. It is made again from the two queues at start
# (half_queue.py), from the two numbers `first_open` and `first_op` on, which are saved as consumer offsets.
#
# A half message that is asked about is copied to the end of its queue. Copies of one message are one transaction, known
# by the offset of the first: its outcome may come for any of them, and is taken once.
#
# Pure, and without an idea of time.


class PendingHalfMessages:
    def __init__(self, first_open: int = 0, first_op: int = 0) -> None:
        self.first_open = first_open
        """Half messages before this one are all over."""
        self._over: set[int] = set()  # not below first_open
        self._newest_copy: dict[int, int] = {}  # first offset of a transaction to the offset of its newest copy
        self._ops: deque[tuple[int, int]] = deque()  # op queue offset, and the last half message that it ends
        self._op_end = first_op

    def __len__(self) -> int:
        """How many numbers are kept: what a half message at the front, that nobody ends, costs."""
        return len(self._over) + len(self._ops) + len(self._newest_copy)

    # --- asking -------------------------------------------------------------------------------------------------------

    def is_open(self, offset: int) -> bool:
        return offset >= self.first_open and offset not in self._over

    def count(self, end: int) -> int:
        """How many wait in a half queue that ends at `end`."""
        return max(0, end - self.first_open - len(self._over))

    def newest(self, first: int) -> int | None:
        """Where the transaction that began at `first` waits now; None when it is over."""
        offset = self._newest_copy.get(first, first)
        return offset if self.is_open(offset) else None

    def next_open(self, offset: int, end: int) -> int | None:
        """The first that is open, from `offset` to before `end`."""
        offset = max(offset, self.first_open)
        while offset < end:
            if offset not in self._over:
                return offset
            offset += 1
        return None

    @property
    def first_op(self) -> int:
        """Op messages before this one say nothing that `first_open` does not say."""
        while self._ops and self._ops[0][1] < self.first_open:
            self._ops.popleft()
        return self._ops[0][0] if self._ops else self._op_end

    # --- telling ------------------------------------------------------------------------------------------------------

    def op_written(self, op_offset: int, offsets: list[int]) -> None:
        """An op message stands in its queue: these half messages are over."""
        self._op_end = op_offset + 1
        if offsets:
            self._ops.append((op_offset, max(offsets)))
        for offset in offsets:
            self.over(offset)

    def over(self, offset: int) -> None:
        """Nothing more will come of this half message: ended, given up, or replaced by a copy."""
        if offset >= self.first_open:
            self._over.add(offset)
            self._advance()

    def copied(self, first: int, copy: int) -> None:
        """The transaction that began at `first` waits at `copy` from now on."""
        old = self._newest_copy.get(first, first)
        if copy > old:
            self._newest_copy[first] = copy
            self.over(old)

    def ended(self, first: int) -> None:
        """The whole transaction is over, and so is each of its messages."""
        self.over(self._newest_copy.pop(first, first))

    def skip_to(self, offset: int) -> None:
        """The half queue begins here now: what was before has been deleted with its file."""
        if offset <= self.first_open:
            return
        self.first_open = offset
        self._over = {one for one in self._over if one >= offset}
        self._newest_copy = {first: copy for first, copy in self._newest_copy.items() if copy >= offset}
        self._advance()

    def _advance(self) -> None:
        while self.first_open in self._over:
            self._over.remove(self.first_open)
            self.first_open += 1


# ---

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
        queue = self._store.components.queues.get(self._topic, self._queue_id)
        return 0 if queue is None else queue.min_offset

    @property
    def end(self) -> int:
        queue = self._store.components.queues.get(self._topic, self._queue_id)
        return 0 if queue is None else queue.max_offset

    def at(self, offset: int) -> memoryview | None:
        """The record of this queue offset; None when it is not there, or no longer."""
        place = self._place(offset)
        return None if place is None else self._store.components.commit_log.read(*place)

    def fresh_at(self, offset: int) -> memoryview | None:
        """The same for a message that was stored just now; None also for one that the disk may have to be asked for."""
        parts = self._store.components
        queue = parts.queues.get(self._topic, self._queue_id)
        entry = None if queue is None else queue.cached_entries(offset, 1)
        if not entry:
            return None
        physical, size, _ = ENTRY.unpack(entry)
        return parts.commit_log.read(physical, size) if physical >= parts.commit_log.assume_cached_from else None

    def finding(self, offset: int) -> IoSteps[memoryview | None]:
        """As `at`."""
        queue = self._store.components.queues.get(self._topic, self._queue_id)
        if queue is not None:
            yield from queue.warm(offset)
            place = self._place(offset)
            if place is not None:
                yield from self._store.components.commit_log.warm([place])
        return self.at(offset)

    def _place(self, offset: int) -> RecordLocation | None:
        queue = self._store.components.queues.get(self._topic, self._queue_id)
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


def load_pending(store: MessageStore, offsets: ConsumerOffsets) -> PendingHalfMessages:
    """What waits, from the saved progress on. Without any, from the beginning of both queues."""
    halves, ops = half_queue(store), op_queue(store)
    open_halves = PendingHalfMessages(_progress(offsets, TRANS_HALF, halves), _progress(offsets, TRANS_OP, ops))
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


def _note_copy(open_halves: PendingHalfMessages, view: RecordView, record: memoryview) -> None:
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
