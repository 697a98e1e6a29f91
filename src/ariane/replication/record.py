"""What a group keeps in its metadata store: its record, its members, orders of an operator; JSON to values and back.

    /ariane/v1/<cluster>/<brokerName>/state              GroupRecord    epoch, master, in-sync set: one key, so that
                                                                        one comparison says "nothing changed"
                                      member/<id>        MemberRecord   under the lease of a living process
                                      order              Order          under a short lease, written by `ariane cluster`
                                      history/<epoch>    HistoryRecord  one for each election

An incarnation names one run of a member's process. Everything that is granted is granted to an incarnation: a process
that starts again has to ask again. What comes from the store is checked before it is used, as from any peer.
"""

from typing import Annotated, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Meta

from ariane.errors import MetaRecordInvalid
from ariane.replication.epochs import EPOCH_MAX
from ariane.replication.frames import OFFSET_MAX

VERSION = 1
VALUE_BYTES_MAX = 64 * 1024
MEMBER_MAX = 9

MemberId = Annotated[int, Meta(ge=1, le=MEMBER_MAX)]
EpochNumber = Annotated[int, Meta(ge=1, le=EPOCH_MAX)]
LogOffset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
Token = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(max_length=1024)]

R = TypeVar("R", bound="_Record")


class _Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Defaults are written, too: `v` says how to read the rest."""

    WHAT: ClassVar[str] = "record"

    v: int

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls: type[R], value: bytes) -> R:
        """MetaRecordInvalid when it is not such a record."""
        if len(value) > VALUE_BYTES_MAX:
            raise MetaRecordInvalid(f"a {cls.WHAT} of {len(value)} bytes, at most {VALUE_BYTES_MAX} are taken")
        try:
            record = msgspec.json.decode(value, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MetaRecordInvalid(f"not a {cls.WHAT}: {error}") from None
        if record.v != VERSION:
            raise MetaRecordInvalid(
                f"a {cls.WHAT} of version {record.v}, this broker knows {VERSION}: run the same version on all members"
            )
        record.check()
        return record

    def check(self) -> None:
        """MetaRecordInvalid when its parts do not fit together."""


class Holder(msgspec.Struct, frozen=True):
    """A member, and the run of its process."""

    id: MemberId
    incarnation: Token


class Known(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the group remembers of a member, whether it runs or not."""

    store_id: str = ""
    """Of its disk: the same member with another disk has nothing of what it acknowledged."""


class Frozen(msgspec.Struct, frozen=True, rename="camel"):
    """No elections. `lost`: the last in-sync member may have lost messages, so an operator has to choose. `operator`:
    somebody asked for it, and `thaw` ends it."""

    why: Literal["lost", "operator"]
    text: Text = ""


class GroupRecord(_Record, frozen=True, kw_only=True):
    """The truth about a group. Who is not in `in_sync` with its current incarnation can never be elected."""

    WHAT: ClassVar[str] = "record of a group"

    v: int = VERSION
    epoch: EpochNumber
    master: Holder
    in_sync: dict[MemberId, Token]
    """Member to incarnation. Every acknowledged message is in the log of all of them."""
    min_in_sync: MemberId
    members: dict[MemberId, Known]
    frozen: Frozen | None = None
    loss_epoch: Annotated[int, Meta(ge=0, le=EPOCH_MAX)] = 0
    """The newest epoch whose election accepted the loss of messages; 0 for none."""
    done: str = ""
    """Nonce of the last order that was carried out."""
    by: Text = ""
    """Who wrote it: member/incarnation/counter."""

    def check(self) -> None:
        strangers = [member for member in (self.master.id, *self.in_sync) if member not in self.members]
        if strangers:
            raise MetaRecordInvalid(f"a record of a group whose member {strangers[0]} is not among its members")
        if self.loss_epoch > self.epoch:
            raise MetaRecordInvalid(f"a record of a group of epoch {self.epoch} with a loss in epoch {self.loss_epoch}")

    def is_in_sync(self, holder: Holder) -> bool:
        return self.in_sync.get(holder.id) == holder.incarnation


class MemberRecord(_Record, frozen=True, kw_only=True):
    """A member whose process runs."""

    WHAT: ClassVar[str] = "record of a member"

    v: int = VERSION
    id: MemberId
    incarnation: Token
    store_id: Token
    address: Annotated[str, Meta(min_length=1, max_length=300)]
    """Of its main port."""
    ha: Annotated[str, Meta(min_length=1, max_length=300)]
    """Of its replication port."""
    version: Annotated[str, Meta(max_length=64)] = ""

    @property
    def holder(self) -> Holder:
        return Holder(self.id, self.incarnation)


class Order(_Record, frozen=True, kw_only=True):
    """What an operator wants."""

    WHAT: ClassVar[str] = "order"

    v: int = VERSION
    do: Literal["switch", "freeze", "thaw", "forget", "unclean"]
    nonce: Token
    member: Annotated[int, Meta(ge=0, le=MEMBER_MAX)] = 0
    """The new master of `switch` and `unclean`, the one to `forget`."""
    epoch: Annotated[int, Meta(ge=0, le=EPOCH_MAX)] = 0
    """When the order was given: a switch or an election is not carried out in a later one."""
    accept_loss: Text = ""
    """Of `unclean`: the name of the group, typed by the operator."""
    by: Text = ""

    def check(self) -> None:
        if self.do in ("switch", "forget", "unclean") and not self.member:
            raise MetaRecordInvalid(f"an order to {self.do} that names no member")
        if self.do in ("switch", "unclean") and not self.epoch:
            raise MetaRecordInvalid(f"an order to {self.do} that names no epoch")


class HistoryRecord(_Record, frozen=True, kw_only=True):
    """An election."""

    WHAT: ClassVar[str] = "record of an election"

    v: int = VERSION
    epoch: EpochNumber
    master: MemberId
    start: LogOffset
    """The end of the new master's log."""
    why: Text
    at_ms: Annotated[int, Meta(ge=0, le=OFFSET_MAX)] = 0


class GroupKeys(msgspec.Struct, frozen=True):
    """Names of a group's keys."""

    cluster: str
    broker_name: str

    def __post_init__(self) -> None:
        for name in (self.cluster, self.broker_name):
            if not name or "/" in name:
                raise MetaRecordInvalid(f"{name!r} cannot be part of a key: a name without / is needed")

    @property
    def prefix(self) -> str:
        return f"/ariane/v1/{self.cluster}/{self.broker_name}/"

    @property
    def state(self) -> str:
        return self.prefix + "state"

    @property
    def order(self) -> str:
        return self.prefix + "order"

    @property
    def members(self) -> str:
        return self.prefix + "member/"

    def member(self, member: int) -> str:
        return f"{self.members}{member}"

    def history(self, epoch: int) -> str:
        return f"{self.prefix}history/{epoch:010d}"
