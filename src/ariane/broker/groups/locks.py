"""Locks of ordered consumption: a queue has at most one member of a group that consumes it.

A member renews its locks every 20 s and takes one for lost after 30 s; here a lock lives for 60 s. The time between is
what keeps two members from consuming one queue at once, so the lock of a member whose connection closed is not freed
early: the member may still be at work. Nothing is saved: after a restart the first to ask gets the queue.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ariane.broker.groups.lag import queue_count
from ariane.broker.topics import Topics
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.model.ids import group_name_problem
from ariane.model.route import MessageQueue
from ariane.rpc.handlers import Call, handles
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.requests.clients import LockedQueues, LockQueues, LockResponse, UnlockQueues

LOCK_S = 60.0


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed: float


class QueueLocks:
    """Changes on the event loop only. Time is an argument: seconds that never go back."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._swept = 0.0

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now: float) -> list[MessageQueue]:
        """Those of `queues` that `client_id` holds now: renewed, free, or not renewed in time by whoever had them."""
        self._sweep(now)
        locks = self._groups.setdefault(group, {})
        granted = []
        for queue in dict.fromkeys(queues):
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or now - lock.renewed > LOCK_S:
                locks[queue] = _Lock(client_id, now)
                granted.append(queue)
        if not locks:
            del self._groups[group]
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Only the owner's own locks."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def owner(self, group: str, queue: MessageQueue, now: float) -> str | None:
        lock = self._groups.get(group, {}).get(queue)
        return lock.client_id if lock is not None and now - lock.renewed <= LOCK_S else None

    def _sweep(self, now: float) -> None:
        """Forgets locks that count no more, so that groups and queues of the past take no memory."""
        if now - self._swept <= LOCK_S:
            return
        self._swept = now
        for group, locks in tuple(self._groups.items()):
            for queue in [queue for queue, lock in locks.items() if now - lock.renewed > LOCK_S]:
                del locks[queue]
            if not locks:
                del self._groups[group]

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))


# --- locks ---
#
# Locks of ordered consumption.


@dataclass(frozen=True)
class LockHandlers:
    locks: QueueLocks
    topics: Topics
    clock: Clock

    @handles(LockQueues)
    def lock(self, request: LockQueues, call: Call) -> LockResponse:
        if request.body is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, "a lock request without a body names no queue")
        if (problem := group_name_problem(request.body.consumer_group)) is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, problem)
        real = [queue for queue in request.body.mq_set if self._exists(queue)]
        granted = self.locks.lock(request.body.consumer_group, request.body.client_id, real, self.clock.monotonic())
        return LockResponse(body=LockedQueues(locked=granted))

    @handles(UnlockQueues)
    def unlock(self, request: UnlockQueues, call: Call) -> Response:
        if request.body is not None:
            self.locks.unlock(request.body.consumer_group, request.body.client_id, request.body.mq_set)
        return Response()

    def _exists(self, queue: MessageQueue) -> bool:
        """A lock on a queue that is not here keeps nobody out, and would take memory for nothing."""
        config = self.topics.get(queue.topic)
        return config is not None and 0 <= queue.queue_id < queue_count(config)
