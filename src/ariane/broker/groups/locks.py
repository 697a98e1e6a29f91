"""Queue locks for ordered consumption: at most one member of a group consumes a queue.

A member renews its locks every 20 s and considers a lock lost after 30 s; the broker expires it after 60 s. The margin
keeps two members from consuming one queue at the same time. For the same reason a closed connection does not release
its locks early, and a restart of the broker keeps them (groups/lock_journal.py), each with a new life: the member may
still be processing. If it is not known who held which queue, nobody gets a lock for 60 s after the start.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.lag import queue_count
from ariane.broker.groups.lock_journal import LockChange, LockJournal
from ariane.broker.groups.members import client_id_problem
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.model.route import MessageQueue
from ariane.rpc.handlers import Call, handles
from ariane.store.checkpoint import LastExit
from ariane.store.maintenance.recovery import StoreComponents
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.requests.clients import LockedQueues, LockQueues, LockResponse, UnlockQueues

log = logging.getLogger(__name__)

LOCK_S = 60.0


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed: float


class QueueLocks:
    """Use on the event loop only. `now` is monotonic time in seconds."""

    def __init__(self, journal: LockJournal | None = None) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._swept = 0.0
        self._journal = journal
        self._unknown_until = 0.0
        """Before this time a member may hold a lock that this broker does not know."""

    @classmethod
    @asynccontextmanager
    async def open(cls, parts: StoreComponents, now: float) -> AsyncIterator["QueueLocks"]:
        """With the locks of the last run."""
        journal = LockJournal(parts.disk, parts.layout.config / "queueLocks.journal")
        locks = cls(journal)
        was_used = parts.commit_log.max_offset > 0
        changes = journal.replay() if parts.last_exit is not LastExit.MACHINE_CRASH else None
        if changes is not None:
            locks._restore(changes, now)
        elif was_used:
            log.info("queue locks of the last run are not known: none is granted at first", extra={"seconds": LOCK_S})
            locks._unknown_until = now + LOCK_S
        try:
            journal.begin(locks._held())
        except OSError as error:  # the old file still says the same; the next change tries again
            log.warning("queue locks not written", extra={"reason": error.strerror})
        try:
            yield locks
        finally:
            journal.close()

    def _restore(self, changes: Iterable[LockChange], now: float) -> None:
        for group, queue, client_id in changes:
            if client_id is None:
                self._groups.get(group, {}).pop(queue, None)
            else:
                self._groups.setdefault(group, {})[queue] = _Lock(client_id, now)
        self._groups = {group: locks for group, locks in self._groups.items() if locks}

    def _held(self) -> Iterator[LockChange]:
        for group, locks in self._groups.items():
            for queue, lock in locks.items():
                yield group, queue, lock.client_id

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now: float) -> list[MessageQueue]:
        """Locks the queues that are free, expired or already held by `client_id`; returns those."""
        self._sweep(now)
        if now < self._unknown_until:
            return []
        locks = self._groups.setdefault(group, {})
        granted, changed = [], list[LockChange]()
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or now - lock.renewed > LOCK_S:
                locks[queue] = _Lock(client_id, now)
                granted.append(queue)
                if lock is None or lock.client_id != client_id:
                    changed.append((group, queue, client_id))
        if not locks:
            del self._groups[group]
        self._write(changed)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Releases only locks that `client_id` holds."""
        locks = self._groups.get(group, {})
        changed = list[LockChange]()
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                changed.append((group, queue, None))
        if not locks:
            self._groups.pop(group, None)
        self._write(changed)

    def owner(self, group: str, queue: MessageQueue, now: float) -> str | None:
        lock = self._groups.get(group, {}).get(queue)
        return lock.client_id if lock is not None and now - lock.renewed <= LOCK_S else None

    def _sweep(self, now: float) -> None:
        """Removes expired locks, so that old groups and queues take no memory."""
        if now - self._swept <= LOCK_S:
            return
        self._swept = now
        changed = list[LockChange]()
        for group, locks in tuple(self._groups.items()):
            for queue in [queue for queue, lock in locks.items() if now - lock.renewed > LOCK_S]:
                del locks[queue]
                changed.append((group, queue, None))
            if not locks:
                del self._groups[group]
        self._write(changed)

    def _write(self, changed: list[LockChange]) -> None:
        if changed and self._journal is not None:
            self._journal.append(changed, self._held())

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))


# --- request handlers ---


@dataclass(frozen=True)
class LockHandlers:
    settings: BrokerSettings
    locks: QueueLocks
    topics: Topics
    groups: Groups
    clock: Clock

    @handles(LockQueues)
    def lock(self, request: LockQueues, call: Call) -> LockResponse:
        if request.body is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, "the lock request has no body with queues")
        if (problem := client_id_problem(request.body.client_id)) is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, problem)
        self.groups.find(request.body.consumer_group, call.connection)
        existing = [queue for queue in dict.fromkeys(request.body.mq_set) if self._exists(queue)]
        granted = self.locks.lock(request.body.consumer_group, request.body.client_id, existing, self.clock.monotonic())
        return LockResponse(body=LockedQueues(locked=granted))

    @handles(UnlockQueues)
    def unlock(self, request: UnlockQueues, call: Call) -> Response:
        if request.body is not None:
            self.locks.unlock(request.body.consumer_group, request.body.client_id, request.body.mq_set)
        return Response()

    def _exists(self, queue: MessageQueue) -> bool:
        """Locks on queues that do not exist here would be useless, and fill memory and journal."""
        config = self.topics.get(queue.topic) if queue.broker_name == self.settings.name else None
        return config is not None and 0 <= queue.queue_id < queue_count(config)
