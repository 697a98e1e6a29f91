"""Who waits until the log has reached an offset, durable (maintenance/flush.py) or confirmed (consume_queue/gate.py).

First come, first served: whatever reaches an offset reaches all before it, so hardly any waits for less than those who
came before.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from math import inf

from ariane.errors import StoreError

log = logging.getLogger(__name__)

Done = Callable[[StoreError | TimeoutError | None], None]
"""Called once, on the event loop: with None when the offset is reached, with TimeoutError when it was not in time, and
with the StoreError for which it will not be."""


class OffsetWaiters:
    """For the event loop alone. Who gets an outcome may add another waiter."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float, Done]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def deadline(self) -> float | None:
        """Of the first that waits."""
        return self._waiting[0][1] if self._waiting else None

    def add(self, offset: int, done: Done, deadline: float = inf) -> None:
        """No deadline may be before that of the last caller."""
        self._waiting.append((offset, deadline, done))

    def reached(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _call(waiting.popleft()[2], None)

    def expired(self, now: float) -> None:
        """Ends the wait of those who have waited until their deadline."""
        waiting = self._waiting
        while waiting and waiting[0][1] <= now:
            _call(waiting.popleft()[2], TimeoutError())

    def fail(self, error: StoreError) -> None:
        """Ends the wait of all."""
        waiting, self._waiting = self._waiting, deque()
        for _, _, done in waiting:
            _call(done, error)


def wait(begin: Callable[[Done], None]) -> "asyncio.Future[None]":
    """A future for what `begin` is given a callback for."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: StoreError | TimeoutError | None) -> None:
        if future.done():  # who waited was cancelled
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    begin(done)
    return future


def _call(done: Done, outcome: StoreError | TimeoutError | None) -> None:
    """The others who wait must get their outcome, too."""
    try:
        done(outcome)
    except Exception:
        log.exception("an append that waited cannot be answered")
