"""The gate of a store whose messages are confirmed later than they are stored: readers see them only then.

    log      ─── records ─────────────────────►
                    ^ confirmed_to     ^ max_offset     RocketMQ 5's confirm offset, Kafka's high watermark

    a queue  | 0 | 1 | 2 | 3 | 4 | 5 |                  entries before visible_end belong to records that end at
                     ^ visible_end   ^ max_offset       confirmed_to or before

In a replication group a message is confirmed when every member in sync has it. What is not may be cut off when another
member takes over, so nobody may have seen it. A broker alone, and a master or slave as RocketMQ 4.x has them, has no
gate: its queues are plain `ConsumeQueue`s, where `visible_end` is `max_offset` (queue.py).

A confirmation counts in the epoch in which it was given. `confirmed_to` never goes back, in any epoch: what was
confirmed is not cut off. The store is opened with nothing confirmed, and the one who knows better says so.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf

from ariane.errors import OutcomeUnknown
from ariane.store.commit_log.waiters import Done, OffsetWaiters
from ariane.store.consume_queue.files import QueueFiles
from ariane.store.consume_queue.new_entries import NewEntries
from ariane.store.consume_queue.queue import ConsumeQueue

ANY_TAG = None
"""In place of a tags code: many messages have become visible, with any tags."""

Notify = Callable[[Sequence[ConsumeQueue], Iterable[int | None]], None]
"""Called with the queue and the tags code of each message that has become visible."""


class GatedQueue(ConsumeQueue):
    """A queue whose `visible_end` has a slot of its own."""

    __slots__ = ("_gate", "visible_end")

    def __init__(
        self, topic: str, queue_id: int, files: QueueFiles, new: NewEntries[ConsumeQueue], part: bytes, gate: "Gate"
    ) -> None:
        self._gate = gate
        self.visible_end = self.max_offset = 0
        super().__init__(topic, queue_id, files, new, part)

    def _begin(self, offset: int) -> None:
        """The queue begins anew, and what was held back is of the one before."""
        if self.visible_end < self.max_offset:
            self._gate.forget(self)
        super()._begin(offset)
        self.visible_end = offset


class _Held:
    """Records that were appended together, in the order of the log: when to show which."""

    __slots__ = ("end", "ends", "queues", "tags_codes", "targets")

    def __init__(
        self,
        queues: Sequence[ConsumeQueue],
        tags_codes: Sequence[int],
        ends: Sequence[int],
        targets: dict[ConsumeQueue, int],
    ) -> None:
        self.queues = queues
        self.tags_codes = tags_codes
        self.ends = ends
        """Of each record, where it ends in the log."""
        self.end = ends[-1]
        self.targets = targets
        """Of each queue, its visible end when all of these are confirmed."""

    def split(self, count: int) -> "tuple[_Held, _Held]":
        """The first records, and the others: at least one each."""
        targets = dict(self.targets)
        for queue in islice(self.queues, count, None):
            targets[queue] -= 1
        first, rest = slice(count), slice(count, None)
        return (
            _Held(self.queues[first], self.tags_codes[first], self.ends[first], targets),
            _Held(self.queues[rest], self.tags_codes[rest], self.ends[rest], self.targets),
        )

    def without(self, queue: ConsumeQueue) -> "_Held | None":
        rows = [row for row in zip(self.queues, self.tags_codes, self.ends, strict=True) if row[0] is not queue]
        if not rows:
            return None
        queues, tags_codes, ends = zip(*rows, strict=True)
        return _Held(
            queues, tags_codes, ends, {other: end for other, end in self.targets.items() if other is not queue}
        )


class Gate:
    """For the event loop alone. Its queues are made by `new_queue`; `open` comes before the first append."""

    def __init__(self) -> None:
        self.confirmed_to = 0
        """Records that end here or before are visible. It may be ahead of the log, at a slave."""
        self.epoch = 0
        self._is_over = True
        self._held: deque[_Held] = deque()
        self._recovered: dict[ConsumeQueue, int] = {}
        """Queues with entries from before the start that are not visible yet, and the end of these."""
        self._recovered_to = 0
        self.waiters = OffsetWaiters()
        """Who waits for confirmations of this epoch."""
        self._actions = OffsetWaiters()
        self._notify: Notify = _nobody_listens

    def new_queue(
        self, topic: str, queue_id: int, files: QueueFiles, new: NewEntries[ConsumeQueue], part: bytes
    ) -> GatedQueue:
        return GatedQueue(topic, queue_id, files, new, part, self)

    def open(self, queues: Iterable[ConsumeQueue], log_begin: int, log_end: int, notify: Notify) -> None:
        """After recovery: hides every entry whose record is still in the log. `notify` gets what becomes visible."""
        self.confirmed_to, self._recovered_to, self._notify = log_begin, log_end, notify
        for queue in queues:
            _show(queue, queue.min_offset)
            if queue.min_offset < queue.max_offset:
                self._recovered[queue] = queue.max_offset

    # --- from the append path ---------------------------------------------------------------------------------------

    def hold(self, queues: Sequence[ConsumeQueue], tags_codes: Sequence[int], ends: Sequence[int]) -> None:
        """Records were appended together, in this order: the queue of each, its tags code, and its end in the log.

        The queues have their entries already, and no others behind them."""
        if queues:
            self._held.append(_Held(queues, tags_codes, ends, {queue: queue.max_offset for queue in queues}))
            if ends[0] <= self.confirmed_to:
                self._show_confirmed()

    def forget(self, queue: ConsumeQueue) -> None:
        """What is held back of this queue is not in it any more."""
        self._recovered.pop(queue, None)
        self._held = deque(
            rest for held in self._held if (rest := held.without(queue) if queue in held.targets else held) is not None
        )

    # --- confirmations ----------------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        """From now on confirmations of this epoch count, and no others. Ends the one before."""
        if epoch <= self.epoch:
            raise ValueError(f"epoch {epoch} cannot follow epoch {self.epoch}: epochs only grow")
        self.end_epoch()
        self.epoch, self._is_over = epoch, False

    def end_epoch(self) -> None:
        """The role of this broker ends: all who wait get OutcomeUnknown, and those who come before the next epoch."""
        self._is_over = True
        self.waiters.fail(self._unknown())
        self._actions.fail(self._unknown())

    def confirm(self, offset: int, epoch: int) -> bool:
        """Shows the records that end at `offset` or before, and ends the wait for them; whether that was news.

        A smaller offset than before changes nothing, as one of another epoch."""
        if epoch != self.epoch or self._is_over or offset <= self.confirmed_to:
            return False
        self.confirmed_to = offset
        try:
            self._show_confirmed()
        finally:
            self.waiters.reached(offset)
            self._actions.reached(offset)
        return True

    def _show_confirmed(self) -> None:
        """All at once, and then listeners are notified."""
        queues, tags_codes = list[ConsumeQueue](), list[int | None]()
        if self._recovered:
            queues += self._show_recovered()
            tags_codes += [ANY_TAG] * len(queues)
        while (held := self._next_confirmed()) is not None:
            for queue, end in held.targets.items():
                _show(queue, end)
            queues += held.queues
            tags_codes += held.tags_codes
        if queues:
            self._notify(queues, tags_codes)

    def _next_confirmed(self) -> _Held | None:
        held, confirmed_to = self._held, self.confirmed_to
        if not held or held[0].ends[0] > confirmed_to:
            return None
        first = held.popleft()
        if first.end > confirmed_to:
            first, rest = first.split(bisect_right(first.ends, confirmed_to))
            held.appendleft(rest)
        return first

    def _show_recovered(self) -> list[ConsumeQueue]:
        """The queues of which more is visible now. Mostly all is confirmed at once, and nothing has to be read."""
        shown: list[ConsumeQueue] = []
        for queue, end in tuple(self._recovered.items()):
            before = max(queue.visible_end, queue.min_offset)
            is_all = self.confirmed_to >= self._recovered_to
            _show(queue, end if is_all else queue.confirmed_end(before, end, self.confirmed_to))
            if queue.visible_end > before:
                shown.append(queue)
            if queue.visible_end == end:
                del self._recovered[queue]
        return shown

    # --- who waits --------------------------------------------------------------------------------------------------

    def when_confirmed(self, offset: int, done: Done, deadline: float = inf) -> None:
        """Calls `done`, perhaps now, when everything below `offset` is confirmed; with OutcomeUnknown if the epoch ends
        before. No deadline may be before that of the last caller."""
        if offset <= self.confirmed_to:
            done(None)
        elif self._is_over:
            done(self._unknown())
        else:
            self.waiters.add(offset, done, deadline)

    def after_confirmed(self, offset: int, action: Callable[[], None]) -> None:
        """Calls `action`, perhaps now, when everything below `offset` is confirmed; never if the epoch ends before."""
        if offset <= self.confirmed_to:
            action()
        elif not self._is_over:
            self._actions.add(offset, lambda error: None if error else action())

    @property
    def deadline(self) -> float | None:
        """Of the first that waits."""
        return self.waiters.deadline

    def expired(self, now: float) -> None:
        """Ends the wait of those who have waited until their deadline."""
        self.waiters.expired(now)

    def _unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            "this broker is not the master any more, and whether its successor has the message is unknown: send again"
        )


def _show(queue: ConsumeQueue, end: int) -> None:
    assert isinstance(queue, GatedQueue)
    queue.visible_end = end


def _nobody_listens(queues: Sequence[ConsumeQueue], tags_codes: Iterable[int | None]) -> None:
    pass
