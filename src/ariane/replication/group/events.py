"""What happens to a member of a group. Values only; each comes with the monotonic time at which it happened."""

from typing import NamedTuple

from ariane.replication.epochs import EpochMap
from ariane.replication.record import GroupRecord, MemberRecord, Order


class Opened(NamedTuple):
    """The store is open: at the start, and after Truncate, Wipe and Reopen."""

    begin: int
    end: int
    flushed: int
    epochs: EpochMap
    kept_all: bool
    """False when it may have lost what it acknowledged: another boot id with ASYNC_FLUSH, a cut below what was durable,
    or the mark of an earlier such start, which RegistrationDone removes."""


class Tick(NamedTuple):
    """At least every 100 ms."""


class Present(NamedTuple):
    """A member whose key is there."""

    record: MemberRecord
    created: int
    lease: int


class Snapshot(NamedTuple):
    """All keys of the group, read together: at least every second, and when a watch says that something changed."""

    revision: int
    record: GroupRecord | None
    record_revision: int
    members: dict[int, Present]
    order: Order | None = None


class LeaseGranted(NamedTuple):
    lease: int
    ttl_s: float
    sent_at: float
    """When the request left: the lease may be as old."""


class LeaseRenewed(NamedTuple):
    lease: int
    ttl_s: float
    sent_at: float


class LeaseLost(NamedTuple):
    lease: int


class Swapped(NamedTuple):
    """The answer to a Swap, with the store's revision. `done` is None when there was none."""

    token: int
    done: bool | None
    revision: int = 0


# --- at a master ---


class HelloArrived(NamedTuple):
    """A slave introduced itself, and proved that it knows the secret."""

    link: int
    member: int
    incarnation: str
    epoch: int
    begin: int
    end: int
    epochs: EpochMap


class Acked(NamedTuple):
    """A report."""

    link: int
    epoch: int
    end: int


class LinkClosed(NamedTuple):
    link: int


class EpochWritten(NamedTuple):
    """The first record of the epoch is in the log, and everything before it is dispatched."""

    epoch: int
    start: int
    end: int


class Appended(NamedTuple):
    end: int


# --- at a slave ---


class Welcomed(NamedTuple):
    """The answer of the master that Connect was for."""

    link: int
    epoch: int
    begin: int
    end: int
    epochs: EpochMap


class FrameArrived(NamedTuple):
    link: int
    epoch: int
    offset: int
    size: int
    """0 for a heartbeat."""
    confirmed: int


class LinkLost(NamedTuple):
    """The connection to the master ended, or could not be made. `is_refused`: no process listens there."""

    link: int
    is_refused: bool = False


class EpochSeen(NamedTuple):
    """The first record of an epoch has been dispatched."""

    epoch: int
    start: int


# --- at both ---


class Flushed(NamedTuple):
    end: int


class DiskFailed(NamedTuple):
    why: str


class Stop(NamedTuple):
    """A clean end. Switch away first."""


Event = (
    Opened
    | Tick
    | Snapshot
    | LeaseGranted
    | LeaseRenewed
    | LeaseLost
    | Swapped
    | HelloArrived
    | Acked
    | LinkClosed
    | EpochWritten
    | Appended
    | Welcomed
    | FrameArrived
    | LinkLost
    | EpochSeen
    | Flushed
    | DiskFailed
    | Stop
)
