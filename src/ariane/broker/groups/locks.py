"""Queue locks for ordered consumption: at most one member of a group consumes a queue.

A member renews its locks every 20 s and considers a lock lost after 30 s; the broker expires it after 60 s. The margin
keeps two members from consuming one queue at the same time. For the same reason a closed connection does not release
its locks early: the member may still be processing. Locks are not persisted: after a restart the first member that
requests a queue gets it.
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
    """Use on the event loop only. `now` is monotonic time in seconds."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._swept = 0.0

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now: float) -> list[MessageQueue]:
        """Locks the queues that are free, expired or already held by `client_id`; returns those."""
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
        """Releases only locks that `client_id` holds."""
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
        """Removes expired locks, so that old groups and queues take no memory."""
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


# --- request handlers ---


@dataclass(frozen=True)
class LockHandlers:
    locks: QueueLocks
    topics: Topics
    clock: Clock

    @handles(LockQueues)
    def lock(self, request: LockQueues, call: Call) -> LockResponse:
        if request.body is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, "the lock request has no body with queues")
        if (problem := group_name_problem(request.body.consumer_group)) is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, problem)
        existing = [queue for queue in request.body.mq_set if self._exists(queue)]
        granted = self.locks.lock(request.body.consumer_group, request.body.client_id, existing, self.clock.monotonic())
        return LockResponse(body=LockedQueues(locked=granted))

    @handles(UnlockQueues)
    def unlock(self, request: UnlockQueues, call: Call) -> Response:
        if request.body is not None:
            self.locks.unlock(request.body.consumer_group, request.body.client_id, request.body.mq_set)
        return Response()

    def _exists(self, queue: MessageQueue) -> bool:
        """Locks on queues that do not exist here would be useless and take memory."""
        config = self.topics.get(queue.topic)
        return config is not None and 0 <= queue.queue_id < queue_count(config)
