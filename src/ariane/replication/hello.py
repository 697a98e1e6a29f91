"""How a slave and a master of Ariane introduce themselves, and prove that they know the same secret. No I/O.

    slave    MAGIC, Hello                       who I am, where my log ends, a challenge
    master   Challenge, proof                   a challenge; HMAC-SHA256 of both with the secret
    slave    proof                              the same, with another label: an echo proves nothing
    master   Welcome                            from where the stream goes on, or why not

Each message has its length before it (frames.py). A proof is empty where there is no secret. Nothing about the log
leaves the master before the slave's proof.
"""

import hashlib
import hmac
import secrets
from typing import TypeVar

import msgspec

from ariane.errors import FrameError

VERSION = 2
TAIL_BYTES = 4096
"""Of the end of the slave's log, whose checksum it sends: a log that lost other messages in a crash differs there."""

_MASTER, _SLAVE = b"ariane replication master\0", b"ariane replication slave\0"
_CHALLENGE_CHARACTERS_MIN = 32
_TEXT_MAX = 255

M = TypeVar("M", bound="Message")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


class Hello(Message, frozen=True, kw_only=True):
    cluster: str
    group: str
    """The name of the broker, which master and slaves share."""
    member: int
    """The id of the broker."""
    file_size: int = msgspec.field(name="fileSize")
    min: int
    end: int
    tail: tuple[int, int]
    """Size and CRC-32 of the last bytes before `end`."""
    challenge: str
    version: int = VERSION

    @property
    def is_empty(self) -> bool:
        return self.min == self.end


class Challenge(Message, frozen=True, kw_only=True):
    challenge: str
    version: int = VERSION


class Welcome(Message, frozen=True, kw_only=True):
    begin: int = msgspec.field(name="from", default=0)
    end: int = 0
    refused: str | None = None


class Identity(msgspec.Struct, frozen=True):
    """What a master and its slaves have in common."""

    cluster: str
    group: str
    file_size: int


def new_challenge() -> str:
    return secrets.token_hex(_CHALLENGE_CHARACTERS_MIN)


def decoded(kind: type[M], data: bytes) -> M:
    """FrameError when it is not such a message."""
    try:
        message = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not an introduction of a replication peer: {error}") from None
    challenge = getattr(message, "challenge", None)
    if challenge is not None and not _CHALLENGE_CHARACTERS_MIN <= len(challenge) <= _TEXT_MAX:
        raise FrameError(f"a challenge of {len(challenge)} characters: it has {_CHALLENGE_CHARACTERS_MIN} at least")
    return message


def master_proof(secret: bytes | None, hello: bytes, challenge: bytes) -> bytes:
    return _proof(secret, _MASTER, hello, challenge)


def slave_proof(secret: bytes | None, hello: bytes, challenge: bytes) -> bytes:
    return _proof(secret, _SLAVE, hello, challenge)


def _proof(secret: bytes | None, label: bytes, hello: bytes, challenge: bytes) -> bytes:
    if secret is None:
        return b""
    text = b"".join((label, len(hello).to_bytes(4, "big"), hello, challenge))
    return hmac.new(secret, text, hashlib.sha256).digest()


def is_proof(given: bytes, expected: bytes) -> bool:
    return hmac.compare_digest(given, expected)


def refusal(hello: Hello, master: Identity, log_begin: int, log_end: int) -> str | None:
    """Why a master does not serve this slave; None when it does."""
    if hello.version != VERSION:
        return f"the slave speaks version {hello.version} of the replication protocol, the master {VERSION}"
    if hello.cluster != master.cluster:
        return f"the slave belongs to cluster {hello.cluster[:_TEXT_MAX]}, the master to {master.cluster}"
    if hello.group != master.group:
        return f"the slave has brokerName {hello.group[:_TEXT_MAX]}, the master {master.group}"
    if hello.member <= 0:
        return f"brokerId {hello.member} is not a slave's: give it one above 0"
    if hello.file_size != master.file_size:
        return (
            f"the slave's log files have {hello.file_size} bytes, the master's {master.file_size}: set "
            "mappedFileSizeCommitLog alike, and begin with an empty slave"
        )
    return None if hello.is_empty else position_refusal(hello.end, log_begin, log_end)


def position_refusal(end: int, log_begin: int, log_end: int) -> str | None:
    """Why a slave whose log ends at `end` cannot go on from there; None when it can."""
    if end > log_end:
        return (
            f"the slave's log ends at {end}, beyond the master's at {log_end}: the master has lost messages that the "
            "slave has. Make the slave the master, or begin with an empty slave"
        )
    if end < log_begin:
        return (
            f"the slave's log ends at {end}, and the master's begins at {log_begin}: what is between is deleted. Begin "
            "with an empty slave"
        )
    return None
