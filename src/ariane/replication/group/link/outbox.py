"""What changed at a master beside its log, gathered for a moment, as frames for all slaves. No I/O: the caller has the
clock.

Numbers of changes rise through an epoch. A slave that has applied number n has everything that was put before n was
made, because the first batch on a connection has everything (`full`).
"""

from typing import NamedTuple

from ariane.replication.group.link.state import OffsetLine, OffsetLines, StateChange, TimerState, state_bodies
from ariane.wire.requests.groups import GroupTable
from ariane.wire.requests.topics import TopicTable

GATHER_S = 0.1
"""How long offsets and progress wait for more: so much is lost with a master at most."""


class StateBatch(NamedTuple):
    number: int
    bodies: tuple[bytes, ...]
    """Of state frames."""


class StateOutbox:
    """Of one epoch. `end` is everywhere the end of the log on which a change rests."""

    def __init__(self, gather_s: float = GATHER_S) -> None:
        self._gather_s = gather_s
        self._number = 0
        self._end = 0
        self._change = StateChange()
        self._offsets = OffsetLines()
        self.due_at: float | None = None
        """When `take` has something; None while nothing has changed."""

    def put_topics(self, table: TopicTable, end: int, now: float) -> int:
        """The number that all in-sync members have to apply before an operator gets an answer: so it is due at once."""
        return self._put(StateChange(topics=table), end, now)

    def put_groups(self, table: GroupTable, end: int, now: float) -> int:
        """As with topics."""
        return self._put(StateChange(groups=table), end, now)

    def put_offset(self, line: OffsetLine, end: int, now: float) -> int:
        self._offsets.add(line)
        return self._put(StateChange(), end, now + self._gather_s)

    def put_delays(self, delays: dict[int, int], end: int, now: float) -> int:
        """After the batch of deliveries is confirmed."""
        return self._put(StateChange(delays=delays), end, now + self._gather_s)

    def put_timer(self, timer: TimerState, end: int, now: float) -> int:
        return self._put(StateChange(timer=timer), end, now + self._gather_s)

    def _put(self, change: StateChange, end: int, due_at: float) -> int:
        self._change = self._change.then(change)
        self._end = max(self._end, end)
        self.due_at = due_at if self.due_at is None else min(self.due_at, due_at)
        return self._number + 1

    def take(self, now: float) -> StateBatch | None:
        """For every slave that has the stream; None before it is due."""
        if self.due_at is None or now < self.due_at:
            return None
        change = self._change.then(StateChange(offsets=tuple(self._offsets)))
        self._change, self._offsets, self.due_at = StateChange(), OffsetLines(), None
        return self._batch(change)

    def full(self, everything: StateChange, end: int) -> StateBatch:
        """For a slave that has just been welcomed: all tables and offsets as they are now. What is gathered goes to it
        once more."""
        self._end = max(self._end, end)
        return self._batch(everything)

    def _batch(self, change: StateChange) -> StateBatch:
        self._number += 1
        return StateBatch(self._number, state_bodies(self._number, self._end, change))
