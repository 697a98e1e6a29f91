"""How members of a group introduce themselves to each other. Messages only; hello.py has the proofs and the order.

    slave    GroupHello      who I am, in which run of which disk, my epoch, where my log ends, which epochs it has
    master   GroupWelcome    the same of the master, and from where the stream goes on; or why not

A group speaks version 3. A pair of master and slave speaks version 2, and neither takes the other's introduction.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ariane.errors import FrameError, RecordError
from ariane.replication.epochs import EPOCH_MAX, EPOCHS_MAX, EpochMap
from ariane.replication.frames import OFFSET_MAX
from ariane.replication.hello import Challenge, Message, decoded, new_challenge
from ariane.replication.record import EpochNumber, LogOffset, MemberId, Text, Token

GROUP_VERSION = 3

Name = Annotated[str, Meta(min_length=1, max_length=255)]
EpochPairs = Annotated[tuple[tuple[int, int], ...], Meta(max_length=EPOCHS_MAX)]


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """This member, in this run of its process."""

    cluster: str
    group: str
    """The name of the broker, which all members share."""
    file_size: int
    member: int
    incarnation: str
    store_id: str
    sync_flush: bool


class GroupHello(Message, frozen=True, kw_only=True):
    cluster: Name
    group: Name
    member: MemberId
    incarnation: Token
    store_id: Token = msgspec.field(name="storeId")
    epoch: EpochNumber
    """The newest that this member has read in the record of the group."""
    min: LogOffset
    end: LogOffset
    epochs: EpochPairs
    """Number and first offset."""
    file_size: LogOffset = msgspec.field(name="fileSize")
    flush: Literal["SYNC", "ASYNC"]
    """Whether its reports say what is synced, or what is written."""
    challenge: str
    version: int = GROUP_VERSION


class GroupWelcome(Message, frozen=True, kw_only=True, omit_defaults=True):
    epoch: Annotated[int, Meta(ge=0, le=EPOCH_MAX)] = 0
    incarnation: Annotated[str, Meta(max_length=64)] = ""
    min: LogOffset = 0
    end: LogOffset = 0
    epochs: EpochPairs = ()
    begin: Annotated[int, Meta(ge=0, le=OFFSET_MAX)] | None = msgspec.field(name="from", default=None)
    """Where the stream goes on: the end of the slave's log. None: its log has to be cut, or removed, before that."""
    refused: Text | None = None


class _Versioned(Message, frozen=True, kw_only=True):
    version: int = 0


def new_hello(me: GroupMember, epoch: int, begin: int, end: int, epochs: EpochMap) -> GroupHello:
    return GroupHello(
        cluster=me.cluster,
        group=me.group,
        member=me.member,
        incarnation=me.incarnation,
        store_id=me.store_id,
        epoch=epoch,
        min=begin,
        end=end,
        epochs=epochs.pairs(),
        file_size=me.file_size,
        flush="SYNC" if me.sync_flush else "ASYNC",
        challenge=new_challenge(),
    )


def new_group_challenge() -> Challenge:
    return Challenge(challenge=new_challenge(), version=GROUP_VERSION)


def check_version(message: bytes) -> None:
    """FrameError when the peer does not belong to a group: before the rest, whose fields differ."""
    version = decoded(_Versioned, message).version
    if version != GROUP_VERSION:
        raise FrameError(
            f"the peer speaks version {version} of the replication protocol, members of a group {GROUP_VERSION}: set "
            "replication.group alike, and run the same release"
        )


def log_of(message: GroupHello | GroupWelcome) -> EpochMap:
    """The epochs of the peer's log. FrameError when log and epochs do not fit together."""
    if message.min > message.end:
        raise FrameError(f"a log that begins at {message.min} and ends at {message.end}")
    try:
        epochs = EpochMap.of(message.epochs)
    except RecordError as error:
        raise FrameError(f"not the epochs of a log: {error}") from None
    if epochs.last is not None and epochs.last.start >= message.end:
        raise FrameError(f"epoch {epochs.last.number} begins at {epochs.last.start}, and the log ends at {message.end}")
    return epochs


def hello_refusal(hello: GroupHello, master: GroupMember) -> str | None:
    """Why a master does not talk to this peer; None when its group has to decide."""
    if hello.cluster != master.cluster:
        return f"the slave belongs to cluster {hello.cluster}, the master to {master.cluster}"
    if hello.group != master.group:
        return f"the slave has brokerName {hello.group}, the master {master.group}"
    if hello.member == master.member:
        return f"the slave is member {hello.member}, as the master: give each member its own replication.member"
    if hello.store_id == master.store_id:
        return "the slave has a copy of the master's store, with its id: begin with an empty store"
    if hello.file_size != master.file_size:
        return (
            f"the slave's log files have {hello.file_size} bytes, the master's {master.file_size}: set "
            "mappedFileSizeCommitLog alike, and begin with an empty store"
        )
    return None
