"""The metadata store of a group: a few keys with revisions, transactions that compare, leases, watches.

    etcd.py     etcd by its JSON gateway
    memory.py   the same in memory, for simulation; one suite of tests runs on both

Every key has the revision that created it and the one that changed it last; revisions rise with every change in the
store. A transaction changes all or nothing, and only if all its comparisons hold. Keys under a lease go when nobody
renews it.

A call ends in one of four ways: its result; MetaUnavailable (it was not done); MetaOutcomeUnknown (it may have been
done, or still be done later: read and look); MetaRefused (it can never succeed).
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import NamedTuple, Protocol


class KeyValue(NamedTuple):
    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0
    """0 for a key that stays."""


class Reading(NamedTuple):
    """The keys of a prefix, all at one moment."""

    revision: int
    """Of the store at that moment."""
    keys: tuple[KeyValue, ...]


class Field(Enum):
    """What of a key is compared. Both revisions of a key that is not there are 0."""

    CREATED = "create_revision"
    MODIFIED = "mod_revision"
    LEASE = "lease"
    VALUE = "value"


class Compare(NamedTuple):
    """That a key is so. A value can only be compared of a key that is there."""

    key: str
    field: Field
    expected: int | bytes


class Put(NamedTuple):
    key: str
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    key: str


class Transaction(NamedTuple):
    compares: tuple[Compare, ...]
    changes: tuple[Put | Delete, ...]
    """Each key at most once."""


class Outcome(NamedTuple):
    succeeded: bool
    revision: int


class Lease(NamedTuple):
    id: int
    ttl_s: float


class Change(NamedTuple):
    key: str
    current: KeyValue | None
    """None when it was deleted, or its lease ended."""
    revision: int


class Changes(NamedTuple):
    """What one transaction changed. Without changes: a sign of life that says how far the watch is."""

    revision: int
    changes: tuple[Change, ...]


class MetaStore(Protocol):
    async def read(self, prefix: str) -> Reading:
        """All keys that begin with it, as they are now (linearizable)."""

    async def transact(self, transaction: Transaction) -> Outcome:
        """Tried once: MetaOutcomeUnknown as soon as it may have left this process without an answer."""

    async def grant(self, ttl_s: int) -> Lease:
        """A new lease; the store may give a longer one."""

    async def keep_alive(self, lease: int) -> float:
        """Renews it in full; how long it lasts from now. MetaLeaseGone when it is over."""

    async def revoke(self, lease: int) -> None:
        """Ends it; its keys go at once. One that is over is no error."""

    def watch(self, prefix: str, revision: int) -> AbstractAsyncContextManager[AsyncIterator[Changes]]:
        """Every change from `revision` on, in order. A hint: an endpoint that hangs ends no watch, so read as well.
        MetaWatchEnded when it ended, or `revision` is no longer kept."""


def prefix_end(prefix: str) -> bytes:
    """The first key behind all that begin with `prefix`: etcd has ranges, no prefixes."""
    key = bytearray(prefix.encode())
    while key and key[-1] == 0xFF:
        key.pop()
    if not key:
        return b"\0"  # etcd: to the end of all keys
    key[-1] += 1
    return bytes(key)
