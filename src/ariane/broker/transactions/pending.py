"""Pending half messages: which still wait for their outcome, computed from the half queue and the op queue.

    half queue   ... 40 41 42 43 44 45 46 47          op queue   ... 17 18 19
                        │  ended    ended│                           │
                     first_open          end                      first_op

Everything below `first_open` has ended, and so has what is in a set. Both queues are on disk; this is how far a scan of
them would come, updated with each write. It is computed again from the two queues at start, from the two numbers
`first_open` and `first_op` on, which are saved as consumer offsets.

A half message with a check request is copied to the end of its queue. Copies of one message are one transaction,
identified by the offset of the first: its outcome may come for any of them, and is accepted once.
"""

import logging
from collections import deque
from collections.abc import Iterator

from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.transactions.half_messages import HALF_QUEUE, OP_QUEUE, HalfMessage, ended_offsets
from ariane.errors import RecordError
from ariane.model.system_topics import TRANS_HALF, TRANS_OP
from ariane.store.blocking_io import IoSteps, RecordLocation, run_sync
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.message_store import MessageStore
from ariane.wire.record.read import RecordView, verify


class PendingHalfMessages:
    """Does no I/O, and has no notion of time."""

    def __init__(self, first_open: int = 0, first_op: int = 0) -> None:
        self.first_open = first_open
        """Half messages before this one are all over."""
        self._over: set[int] = set()  # not below first_open
        self._newest_copy: dict[int, int] = {}  # first offset of a transaction to the offset of its newest copy
        self._ops: deque[tuple[int, int]] = deque()  # op queue offset, and the last half message that it ends
        self._op_end = first_op

    def __len__(self) -> int:
        """How many numbers are kept: the cost of a half message at the front that does not end."""
        return len(self._over) + len(self._ops) + len(self._newest_copy)

    # --- queries ------------------------------------------------------------------------------------------------------

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
        """Op messages before this one are covered by `first_open`."""
        while self._ops and self._ops[0][1] < self.first_open:
            self._ops.popleft()
        return self._ops[0][0] if self._ops else self._op_end

    # --- updates ------------------------------------------------------------------------------------------------------

    def op_written(self, op_offset: int, offsets: list[int]) -> None:
        """An op message is in its queue: these half messages have ended."""
        self._op_end = op_offset + 1
        if offsets:
            self._ops.append((op_offset, max(offsets)))
        for offset in offsets:
            self.over(offset)

    def over(self, offset: int) -> None:
        """This half message is done with: ended, given up, or replaced by a copy."""
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
        self._over = {over for over in self._over if over >= offset}
        self._newest_copy = {first: copy for first, copy in self._newest_copy.items() if copy >= offset}
        self._advance()

    def _advance(self) -> None:
        while self.first_open in self._over:
            self._over.remove(self.first_open)
            self.first_open += 1


# --- the two queues ---------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

_WALKED_ENTRIES = 32

PROGRESS_GROUP = "CID_RMQ_SYS_TRANS"
"""The consumer group whose offsets are the progress in both queues; Apache's brokers go on from them."""


class StoredQueue:
    """One queue that is read message by message. Records are found only by the queue's own entries.

    An outcome and the messages that it ends or delivers stand behind its half message in the log, so they are confirmed
    after it: what is not confirmed may be used here, and must be, or a start would take ended transactions for open.

    A physical offset that a client names is never used: a message's body may hold bytes that look like a record.
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

    @property
    def visible_end(self) -> int:
        """Up to where producers may be asked about messages."""
        queue = self._store.components.queues.get(self._topic, self._queue_id)
        return 0 if queue is None else queue.visible_end

    def at(self, offset: int) -> memoryview | None:
        """The record at this queue offset; None when there is none, or no longer."""
        place = self._place(offset)
        return None if place is None else self._store.components.commit_log.read(*place)

    def fresh_at(self, offset: int) -> memoryview | None:
        """The same for a message that was stored just now; None also when it may not be in the page cache."""
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
        entry = b"" if queue is None else queue.stored_entries(offset, 1)
        return ENTRY.unpack(entry)[:2] if entry else None

    def walk(self, begin: int) -> Iterator[tuple[RecordView, memoryview]]:
        """Every whole record from `begin` on. Blocks."""
        parts, offset = self._store.components, max(begin, self.begin)
        queue = parts.queues.get(self._topic, self._queue_id)
        while queue is not None and (entries := queue.stored_entries(offset, _WALKED_ENTRIES)):
            locations = [(physical, size) for physical, size, _ in ENTRY.iter_unpack(entries)]
            run_sync(parts.commit_log.warm(locations))
            for location in locations:
                record = parts.commit_log.read(*location)
                view = None if record is None else verify(record)
                if record is not None and isinstance(view, RecordView):
                    yield view, record
            offset += len(locations)


def half_queue(store: MessageStore) -> StoredQueue:
    return StoredQueue(store, TRANS_HALF, HALF_QUEUE)


def op_queue(store: MessageStore) -> StoredQueue:
    return StoredQueue(store, TRANS_OP, OP_QUEUE)


def load_pending(store: MessageStore, offsets: ConsumerOffsets) -> PendingHalfMessages:
    """What waits, from the saved progress on; without any, from the beginning of both queues."""
    half_messages, ops = half_queue(store), op_queue(store)
    pending = PendingHalfMessages(_progress(offsets, TRANS_HALF, half_messages), _progress(offsets, TRANS_OP, ops))
    for view, record in ops.walk(pending.first_op):
        ended = [offset for offset in _ended(view, record) if offset < half_messages.end]
        pending.op_written(view.queue_offset, ended)
    for view, record in half_messages.walk(pending.first_open):
        _note_copy(pending, view, record)
    return pending


def _progress(offsets: ConsumerOffsets, topic: str, queue: StoredQueue) -> int:
    """Between the queue's two ends: the files may have lost what the offsets remember, or have dropped it."""
    return max(queue.begin, min(queue.end, offsets.get(PROGRESS_GROUP, topic, 0)))


def _ended(view: RecordView, record: memoryview) -> list[int]:
    try:
        return ended_offsets(view, record)
    except RecordError as error:
        log.warning("op message without meaning", extra={"offset": view.queue_offset, "reason": str(error)})
        return []


def _note_copy(pending: PendingHalfMessages, view: RecordView, record: memoryview) -> None:
    """A copy replaces its original: the broker may have stopped before it noted so."""
    try:
        first = HalfMessage.of(record).first_offset
    except RecordError:
        return  # the next pass of checks reports and skips it
    if first != view.queue_offset:
        was_open = pending.is_open(view.queue_offset)
        pending.copied(first, view.queue_offset)
        if not was_open:
            pending.ended(first)
