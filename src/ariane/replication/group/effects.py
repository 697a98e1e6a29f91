"""What a member of a group has to do, in this order and before its next event. Values only."""

from typing import NamedTuple

from ariane.replication.epochs import EpochMap
from ariane.replication.meta import Transaction

# --- the metadata store ---


class Read(NamedTuple):
    """Then Snapshot."""


class Grant(NamedTuple):
    """Then LeaseGranted."""

    ttl_s: int


class KeepAlive(NamedTuple):
    """Then LeaseRenewed or LeaseLost; nothing without an answer."""

    lease: int


class Revoke(NamedTuple):
    lease: int


class Swap(NamedTuple):
    """Then Swapped."""

    token: int
    transaction: Transaction


# --- connections ---


class Connect(NamedTuple):
    """To a master's replication port, to introduce this member. Everything must be dispatched, so that the map of
    epochs is whole. Then Welcomed or LinkLost."""

    link: int
    address: str
    epoch: int
    begin: int
    end: int
    epochs: EpochMap


class Close(NamedTuple):
    link: int
    why: str


class Welcome(NamedTuple):
    """Tell a slave where its log and ours are the same; stream from there if that is where its log ends."""

    link: int
    epoch: int
    begin: int
    end: int
    epochs: EpochMap
    stream_from: int | None


class Refuse(NamedTuple):
    link: int
    why: str


class Append(NamedTuple):
    """Write the body of this frame to the log, now."""

    link: int
    offset: int
    size: int


class Report(NamedTuple):
    link: int
    epoch: int
    end: int


# --- the store ---


class Truncate(NamedTuple):
    """Close the store, cut the log, open it again; then Opened. A crash anywhere in between repeats it."""

    to: int


class Wipe(NamedTuple):
    """Close the store, remove everything, open it to begin at this offset; then Opened."""

    begin: int


class Reopen(NamedTuple):
    """Close the store and open it again: no table in memory survives a role. Then Opened."""


class RegistrationDone(NamedTuple):
    """The group knows what this log may have lost: the mark of that can go."""


# --- roles ---


class BecomeMaster(NamedTuple):
    """Dispatch what there is, write the first record of the epoch, open what only a master has; then EpochWritten."""

    epoch: int


class Confirm(NamedTuple):
    """Every member that may be elected has the log up to here. Ends waits of this epoch, makes messages visible."""

    epoch: int
    to: int


class FailWaiters(NamedTuple):
    """Every send that waits ends as unknown."""

    why: str


class AllowWrites(NamedTuple):
    pass


class RefuseWrites(NamedTuple):
    """Before the append."""

    why: str


class HoldWrites(NamedTuple):
    """New sends wait, for a second at most, until AllowWrites or RefuseWrites."""


class Register(NamedTuple):
    """At the nameservers: as 0 when leading, as the member id when following, not at all with None."""

    broker_id: int | None


class Note(NamedTuple):
    """For the log. The same text is not repeated."""

    text: str
    is_problem: bool = False


Effect = (
    Read
    | Grant
    | KeepAlive
    | Revoke
    | Swap
    | Connect
    | Close
    | Welcome
    | Refuse
    | Append
    | Report
    | Truncate
    | Wipe
    | Reopen
    | RegistrationDone
    | BecomeMaster
    | Confirm
    | FailWaiters
    | AllowWrites
    | RefuseWrites
    | HoldWrites
    | Register
    | Note
)
