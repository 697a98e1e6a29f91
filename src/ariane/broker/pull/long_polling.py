"""Long polling: pulls that found nothing wait until a matching message arrives, or until their time is over.

A waiting pull is a value in three tables, and costs no task. An arrival looks up one dict entry: that of its own queue.
The pulls that it wakes run after the whole chunk of messages is in the log, so a burst is answered by one read.

    by queue        (topic, queue) ─► its pulls           an arrival
    by tick         a tenth of a second ─► its pulls      time is over; one sleeper for each tick with a pull in it
    by connection   ─► its pulls                          the peer has gone
"""

import asyncio
import math
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from ariane.broker.pull.filters import MessageFilter
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.lifecycle import SLICE_S, TaskSet
from ariane.model.group import GroupConfig
from ariane.rpc.handlers import Call
from ariane.store.dispatch import Arrivals
from ariane.transport.connection import Connection
from ariane.transport.memory_budget import MemoryBudget
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.pull import Pull

PULLS_MAX = 100_000
"""Apache's pullThreadPoolQueueCapacity."""

PULL_BYTES = 2048
"""What a waiting pull takes, without its subscription. Both count in the memory of connections."""

PULLS_PER_CONNECTION_MAX = 20_000
"""So that one client cannot use up the limit of all. A client has one pull for each of its queues."""

WAIT_S_MAX = 120.0
_TICK_S = 0.1


@dataclass(eq=False, slots=True)
class PullWaiter:
    call: Call
    request: Pull
    group: GroupConfig
    filter: MessageFilter
    offset: int
    """Where to go on reading: what lies before did not match."""
    resume: Callable[["PullWaiter", bool], None]
    """Reads again. True: respond with what there is. False: a message arrived; wait on if it does not match."""
    tick: int = 0
    size: int = 0


class PullWaiters:
    """For the event loop alone."""

    def __init__(
        self,
        clock: Clock,
        pulls_max: int = PULLS_MAX,
        pulls_per_connection_max: int = PULLS_PER_CONNECTION_MAX,
        memory: MemoryBudget | None = None,
    ) -> None:
        self._clock = clock
        self._memory = memory or MemoryBudget(sys.maxsize)
        self._pulls_max = pulls_max
        self._pulls_per_connection_max = pulls_per_connection_max
        self._by_queue: dict[tuple[str, int], set[PullWaiter]] = {}
        self._by_tick: dict[int, set[PullWaiter]] = {}
        self._by_connection: dict[Connection, set[PullWaiter]] = {}
        self._count = 0
        self._woken: deque[tuple[PullWaiter, bool]] = deque()
        self._sleepers = TaskSet()
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        clock: Clock,
        pulls_max: int = PULLS_MAX,
        pulls_per_connection_max: int = PULLS_PER_CONNECTION_MAX,
        memory: MemoryBudget | None = None,
    ) -> AsyncIterator["PullWaiters"]:
        """On exit all are answered. Call `respond_all` before the server drains, while peers are still connected.

        `memory` is the budget of all connections.
        """
        pull_waiters = cls(clock, pulls_max, pulls_per_connection_max, memory)
        try:
            yield pull_waiters
        finally:
            pull_waiters.respond_all()
            pull_waiters._sleepers.cancel()
            await pull_waiters._sleepers.wait()

    def __len__(self) -> int:
        return self._count

    # --- in -----------------------------------------------------------------------------------------------------------

    def park(self, pull: PullWaiter, wait_s: float) -> bool:
        """Whether it waits now; not when the broker stops. RequestFailed(SYSTEM_BUSY) when too many wait already."""
        if self._closed:
            return False
        connection = pull.call.connection
        own = self._by_connection.get(connection)
        pull.call.command.drop_content()
        pull.size = _size_of(pull)
        self._check_room(0 if own is None else len(own), pull.size)
        pull.tick = math.ceil((self._clock.monotonic() + min(wait_s, WAIT_S_MAX)) / _TICK_S)
        if own is None:
            self._by_connection[connection] = set()
            connection.on_close(partial(self._forget, connection))
        self._add(pull)
        return True

    def park_again(self, pull: PullWaiter) -> bool:
        """After an arrival that did not match: for the rest of its time. False when the broker stops."""
        if self._closed or pull.call.connection not in self._by_connection:
            return False
        self._add(pull)
        return True

    def _check_room(self, of_connection: int, size: int) -> None:
        if self._count >= self._pulls_max:
            raise _too_many(self._count, "on this broker", f"pullThreadPoolQueueCapacity = {self._pulls_max}")
        if of_connection >= self._pulls_per_connection_max:
            raise _too_many(of_connection, "on this connection", f"the limit is {self._pulls_per_connection_max}")
        if not self._memory.has_room(size):
            limit = f"the memory of all connections is used up (memory_bytes_max = {self._memory.bytes_max})"
            raise _too_many(self._count, "on this broker", limit)

    def _add(self, pull: PullWaiter) -> None:
        self._by_queue.setdefault((pull.request.topic, pull.request.queue_id), set()).add(pull)
        self._by_connection[pull.call.connection].add(pull)
        due = self._by_tick.get(pull.tick)
        if due is None:
            due = self._by_tick[pull.tick] = set()
            self._sleepers.spawn(self._sleep_until(pull.tick))
        due.add(pull)
        self._count += 1
        self._memory.reserve(pull.size)

    def _remove(self, pull: PullWaiter) -> None:
        key = (pull.request.topic, pull.request.queue_id)
        waiting = self._by_queue[key]
        waiting.discard(pull)
        if not waiting:
            del self._by_queue[key]
        self._by_connection[pull.call.connection].discard(pull)
        self._by_tick[pull.tick].discard(pull)
        self._count -= 1
        self._memory.release(pull.size)

    # --- out ----------------------------------------------------------------------------------------------------------

    def on_arrivals(self, arrivals: Arrivals) -> None:
        """Messages were appended together. While no pull waits, that costs nothing for each of many topics."""
        by_queue = self._by_queue
        if not by_queue:
            return
        for (queue, tags_code), end in arrivals.items():
            if (queue.topic, queue.queue_id) in by_queue:
                self.on_arrival(queue.topic, queue.queue_id, end, tags_code)

    def on_arrival(self, topic: str, queue_id: int, end: int, tags_code: int | None) -> None:
        """A message is in the log, or many with any tags. Called within the append, so nothing is read here."""
        waiting = self._by_queue.get((topic, queue_id))
        if waiting is None:
            return
        for pull in tuple(waiting):
            # The tags code decides at once. What needs the record is decided when it is read, and may park again.
            if tags_code is None or pull.filter.tag_match is None or pull.filter.tag_match(tags_code):
                self._wake(pull, False)

    def sweep(self) -> None:
        """Responds to all whose time is over."""
        now = self._clock.monotonic()
        for tick in [tick for tick in self._by_tick if tick * _TICK_S <= now]:
            self._expire(tick)

    async def _sleep_until(self, tick: int) -> None:
        await self._clock.sleep(max(0.0, tick * _TICK_S - self._clock.monotonic()))
        self._expire(tick)  # whatever the clock says: a timer may be a little early, and there is no other

    def _expire(self, tick: int) -> None:
        for pull in tuple(self._by_tick.get(tick, ())):
            self._wake(pull, True)
        self._by_tick.pop(tick, None)

    def respond_all(self) -> None:
        """The broker stops: every pull is answered with what there is, and no more are parked."""
        self._closed = True
        while self._woken:
            pull, final = self._woken.popleft()
            pull.resume(pull, final)
        for waiting in tuple(self._by_queue.values()):
            for pull in tuple(waiting):
                self._remove(pull)
                pull.resume(pull, True)

    def _wake(self, pull: PullWaiter, final: bool) -> None:
        self._remove(pull)
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._resume_woken)
        self._woken.append((pull, final))

    def _resume_woken(self) -> None:
        """One message may wake ten thousand pulls: they are answered in slices. One that fails does not stop others."""
        ends = perf_counter() + SLICE_S
        try:
            while self._woken and perf_counter() < ends:
                pull, final = self._woken[0]
                try:
                    pull.resume(pull, final)
                finally:
                    self._woken.popleft()
        finally:
            if self._woken:
                asyncio.get_running_loop().call_soon(self._resume_woken)

    def _forget(self, connection: Connection) -> None:
        for pull in tuple(self._by_connection[connection]):
            self._remove(pull)
        del self._by_connection[connection]


def _size_of(pull: PullWaiter) -> int:
    """Bytes that it holds. A client chooses how long its subscription is."""
    request = pull.request
    return (
        PULL_BYTES
        + sys.getsizeof(request.subscription)
        + sys.getsizeof(request.expression_type)
        + pull.filter.bytes_held
    )


def _too_many(count: int, where: str, limit: str) -> RequestFailed:
    return RequestFailed(
        ResponseCode.SYSTEM_BUSY,
        f"[OVERLOAD]broker busy: {count} pulls wait {where} already, {limit}; pull again later, or with fewer queues",
    )
