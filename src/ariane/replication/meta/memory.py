"""A metadata store in memory, with the behaviour of etcd: for simulations, and for tests of what uses one.

`MemoryStore` is the store itself: values in, values out, time as an argument. `MemoryClient` is a MetaStore on it,
whose calls can be made to fail as those of etcd do: before they are done, after they are done, or done later.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum

from ariane.clock import Clock
from ariane.errors import MetaLeaseGone, MetaOutcomeUnknown, MetaRefused, MetaUnavailable, MetaWatchEnded
from ariane.replication.meta import (
    Change,
    Changes,
    Compare,
    Field,
    KeyValue,
    Lease,
    Outcome,
    Put,
    Reading,
    Transaction,
)

TTL_MIN_S = 2.0
"""etcd's, with its usual election timeout."""
EXPIRY_STEP_S = 0.5
"""etcd looks for expired leases that often."""


@dataclass(slots=True)
class _Lease:
    ttl_s: float
    ends: float
    keys: set[str] = field(default_factory=set)


class MemoryStore:
    """Linearizable: every call happens in one moment. Call `expire` at least every 0.5 s."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self._keys: dict[str, KeyValue] = {}
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0
        self._log: deque[Changes] = deque()
        self.on_change: Callable[[Changes], None] = lambda _: None

    def read(self, prefix: str) -> Reading:
        return Reading(self.revision, tuple(kv for key, kv in sorted(self._keys.items()) if key.startswith(prefix)))

    def transact(self, transaction: Transaction) -> Outcome:
        puts = [change for change in transaction.changes if isinstance(change, Put)]
        if any(put.lease and put.lease not in self._leases for put in puts):
            raise MetaLeaseGone("requested lease not found")
        if len({change.key for change in transaction.changes}) < len(transaction.changes):
            raise MetaRefused("a transaction changes the same key twice")
        if not all(self._holds(compare) for compare in transaction.compares):
            return Outcome(False, self.revision)
        changes = []
        for change in transaction.changes:
            if isinstance(change, Put):
                changes.append(self._put(change, self.revision + 1))
            elif change.key in self._keys:
                changes.append(self._delete(change.key, self.revision + 1))
        self._commit(changes)
        return Outcome(True, self.revision)

    def grant(self, ttl_s: float, now: float) -> Lease:
        self._last_lease += 1
        ttl_s = max(ttl_s, TTL_MIN_S)
        self._leases[self._last_lease] = _Lease(ttl_s, now + ttl_s)
        return Lease(self._last_lease, ttl_s)

    def keep_alive(self, lease: int, now: float) -> float:
        """MetaLeaseGone when it is over."""
        found = self._leases.get(lease)
        if found is None:
            raise MetaLeaseGone(f"the lease {lease:x} has expired, or was revoked")
        found.ends = now + found.ttl_s
        return found.ttl_s

    def revoke(self, lease: int) -> None:
        found = self._leases.pop(lease, None)
        if found is not None:
            self._commit([self._delete(key, self.revision + 1) for key in sorted(found.keys)])

    def expire(self, now: float) -> None:
        for number in [number for number, lease in self._leases.items() if lease.ends <= now]:
            self.revoke(number)

    def renew_all(self, now: float) -> None:
        """What a new leader of etcd does: every lease begins anew."""
        for lease in self._leases.values():
            lease.ends = now + lease.ttl_s

    def compact(self, revision: int) -> None:
        self.compacted = max(self.compacted, min(revision, self.revision))
        while self._log and self._log[0].revision <= self.compacted:
            self._log.popleft()

    def since(self, prefix: str, revision: int) -> list[Changes]:
        """Changes from `revision` on. MetaWatchEnded when it was compacted."""
        if revision <= self.compacted:
            raise MetaWatchEnded(f"revision {revision} is compacted")
        return [found for done in self._log if done.revision >= revision and (found := _of(done, prefix)).changes]

    def _holds(self, compare: Compare) -> bool:
        kv = self._keys.get(compare.key)
        if compare.field is Field.VALUE:
            return kv is not None and kv.value == compare.expected
        actual = {
            Field.CREATED: kv.create_revision if kv else 0,
            Field.MODIFIED: kv.mod_revision if kv else 0,
            Field.LEASE: kv.lease if kv else 0,
        }[compare.field]
        return actual == compare.expected

    def _put(self, put: Put, revision: int) -> Change:
        old = self._keys.get(put.key)
        if old is not None and old.lease in self._leases:
            self._leases[old.lease].keys.discard(put.key)
        created = revision if old is None else old.create_revision
        new = self._keys[put.key] = KeyValue(put.key, put.value, created, revision, put.lease)
        if put.lease:
            self._leases[put.lease].keys.add(put.key)
        return Change(put.key, new, revision)

    def _delete(self, key: str, revision: int) -> Change:
        old = self._keys.pop(key)
        if old.lease in self._leases:
            self._leases[old.lease].keys.discard(key)
        return Change(key, None, revision)

    def _commit(self, changes: list[Change]) -> None:
        if changes:
            self.revision += 1
            done = Changes(self.revision, tuple(changes))
            self._log.append(done)
            self.on_change(done)


def _of(done: Changes, prefix: str) -> Changes:
    return Changes(done.revision, tuple(change for change in done.changes if change.key.startswith(prefix)))


class Fault(Enum):
    """How the next calls of a client fail."""

    UNAVAILABLE = "not done"
    ANSWER_LOST = "done, but nobody hears of it"
    LATE = "done only when `deliver_late` is called"


class MemoryClient:
    """A MetaStore on a MemoryStore that several clients share."""

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._watchers: list[asyncio.Queue[Changes]] = []
        self._late: list[Transaction] = []
        self.fault: Fault | None = None
        self.are_watches_stalled = False
        before = store.on_change

        def on_change(done: Changes) -> None:
            before(done)
            if not self.are_watches_stalled:
                for queue in self._watchers:
                    queue.put_nowait(done)

        store.on_change = on_change

    async def read(self, prefix: str) -> Reading:
        self._begin()
        return self.store.read(prefix)

    async def transact(self, transaction: Transaction) -> Outcome:
        if self.fault is Fault.LATE:
            self._late.append(transaction)
            raise MetaOutcomeUnknown("no answer")
        lost = self.fault is Fault.ANSWER_LOST
        if not lost:
            self._begin()
        self.store.expire(self._clock.monotonic())
        outcome = self.store.transact(transaction)
        if lost:
            raise MetaOutcomeUnknown("no answer")
        return outcome

    def deliver_late(self) -> None:
        """What was held back arrives now."""
        late, self._late = self._late, []
        for transaction in late:
            self.store.transact(transaction)

    async def grant(self, ttl_s: int) -> Lease:
        self._begin()
        return self.store.grant(ttl_s, self._clock.monotonic())

    async def keep_alive(self, lease: int) -> float:
        self._begin()
        return self.store.keep_alive(lease, self._clock.monotonic())

    async def revoke(self, lease: int) -> None:
        self._begin()
        self.store.revoke(lease)

    @asynccontextmanager
    async def watch(self, prefix: str, revision: int) -> AsyncIterator[AsyncIterator[Changes]]:
        if self.fault is not None:
            raise MetaWatchEnded("no endpoint")
        queue: asyncio.Queue[Changes] = asyncio.Queue()
        self._watchers.append(queue)
        try:
            yield self._changes(queue, prefix, revision)
        finally:
            self._watchers.remove(queue)

    async def _changes(self, queue: asyncio.Queue[Changes], prefix: str, revision: int) -> AsyncIterator[Changes]:
        for done in self.store.since(prefix, revision):
            revision = done.revision + 1
            yield done
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(EXPIRY_STEP_S):
                    done = _of(await queue.get(), prefix)
                if done.changes and done.revision >= revision:
                    yield done
            self.store.expire(self._clock.monotonic())

    def _begin(self) -> None:
        self.store.expire(self._clock.monotonic())
        if self.fault is not None:
            raise MetaUnavailable("no endpoint")
