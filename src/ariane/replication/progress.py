"""What slaves have acknowledged, and who waits for it: values and decisions, without clock and sockets.

An acknowledgement belongs to a connection and goes with it. In Apache the best one ever seen counts for good, also when
its slave is gone: a single forged or stale report there acknowledges everything that follows.

What a SYNC_MASTER answers to a send whose record ends at `end`:

    no slave has reported, or all are too far behind     SLAVE_NOT_AVAILABLE, at once
    a slave reports `end` or more in time                SEND_OK
    else                                                 FLUSH_SLAVE_TIMEOUT; the message is stored here
"""

import heapq
from collections import deque
from collections.abc import Hashable
from enum import Enum
from itertools import count
from typing import Generic, NamedTuple, TypeVar

Link = TypeVar("Link", bound=Hashable)
Waiter = TypeVar("Waiter")


class Replicated(Enum):
    """Whether a slave has a record."""

    YES = "yes"
    NOT_AVAILABLE = "no slave, or too far behind"
    TIMEOUT = "not in time"


class Acks(Generic[Link]):
    """The end of the log that each connected slave has reported."""

    def __init__(self) -> None:
        self._ends: dict[Link, int] = {}
        self.best = -1
        """The furthest of them; -1 without a slave."""

    def __len__(self) -> int:
        return len(self._ends)

    def report(self, link: Link, end: int) -> bool:
        """Whether `best` has moved. A report below an earlier one of the same connection changes nothing."""
        if end < self._ends.get(link, -1):
            return False
        self._ends[link] = end
        has_moved = end > self.best
        self.best = max(self.best, end)
        return has_moved

    def drop(self, link: Link) -> None:
        """Its connection is closed: what it had does not count any more."""
        if self._ends.pop(link, None) is not None:
            self.best = max(self._ends.values(), default=-1)

    def of(self, link: Link) -> int | None:
        return self._ends.get(link)

    @property
    def worst(self) -> int | None:
        """What the slave that is furthest behind has; None without a slave."""
        return min(self._ends.values(), default=None)

    def outcome(self, end: int, log_end: int, fall_behind_max: int) -> Replicated | None:
        """For a record that ends at `end`; None when it is worth waiting."""
        if end <= self.best:
            return Replicated.YES
        if not self._ends or log_end - self.best >= fall_behind_max:
            return Replicated.NOT_AVAILABLE
        return None


class _Waiting(NamedTuple):
    end: int
    number: int


class AckWaiters(Generic[Waiter]):
    """Who waits for an acknowledgement, and until when. All wait equally long, so deadlines are in order of arrival."""

    def __init__(self) -> None:
        self._by_end: list[_Waiting] = []
        self._by_deadline: deque[tuple[float, int]] = deque()
        self._waiters: dict[int, Waiter] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, waiter: Waiter, end: int, deadline: float) -> None:
        number = next(self._numbers)
        self._waiters[number] = waiter
        heapq.heappush(self._by_end, _Waiting(end, number))
        self._by_deadline.append((deadline, number))

    def acknowledged(self, end: int) -> list[Waiter]:
        """Takes out those whose records end at or before `end`."""
        done: list[Waiter] = []
        while self._by_end and self._by_end[0].end <= end:
            waiter = self._waiters.pop(heapq.heappop(self._by_end).number, None)
            if waiter is not None:
                done.append(waiter)
        while self._by_deadline and self._by_deadline[0][1] not in self._waiters:
            self._by_deadline.popleft()
        return done

    def expired(self, now: float) -> list[Waiter]:
        """Takes out those who have waited long enough."""
        late: list[Waiter] = []
        while self._by_deadline and (self._by_deadline[0][0] <= now or self._by_deadline[0][1] not in self._waiters):
            waiter = self._waiters.pop(self._by_deadline.popleft()[1], None)
            if waiter is not None:
                late.append(waiter)
        while self._by_end and self._by_end[0].number not in self._waiters:
            heapq.heappop(self._by_end)
        return late

    @property
    def next_deadline(self) -> float | None:
        return self._by_deadline[0][0] if self._by_deadline else None

    def all(self) -> list[Waiter]:
        """Takes out all: the master stops."""
        waiters = list(self._waiters.values())
        self._waiters.clear()
        self._by_end.clear()
        self._by_deadline.clear()
        return waiters
