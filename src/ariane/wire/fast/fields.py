"""What the fast decoders yield: the fields of a request, whichever kind of header it came in.

They are the structs that the general decoder yields, with all fields declared that clients are known to send: an
unknown one sends a frame to the general decoder.
"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import field

from ariane.wire.codes import Serialization
from ariane.wire.fields import Request
from ariane.wire.frame import Command, FrameLimits
from ariane.wire.requests.pull import Pull
from ariane.wire.requests.send import EndTransaction, Send, SendV2
from ariane.wire.signature import NONCE, SIGNATURE_V2, SIGNED_AT

_JSON = Serialization.JSON

FrameCheck = Callable[[Request[Any], bytes, bytes], bool]
"""Access control for the fast path: whether a request may pass, from its fields, its whole header and its body. A frame
that may not is left to the general path, which asks its guard again and responds with the reason."""

Opaque = int | bytes
"""The opaque number of a request: a number from a JSON header, its four bytes from a binary one. So it also says which
serialisation the response has, at no cost for either."""


def opaque_of(command: Command) -> Opaque:
    """The same from the general decoder."""
    number = command.opaque
    return number if command.serialization is _JSON else number.to_bytes(4, "big", signed=True)


def command_of(code: int, opaque: Opaque) -> Command:
    """A request, as far as a response depends on it."""
    if isinstance(opaque, int):
        return Command(code=code, opaque=opaque)
    return Command(code=code, opaque=int.from_bytes(opaque, "big", signed=True), serialization=Serialization.BINARY)


SendFrames = Callable[[bytes, int, FrameLimits, FrameCheck | None], Iterator[tuple[int, Opaque, Send, int]]]
"""A decoder of sends: where the next frame begins, the opaque number, the fields, where the body begins."""

PullFrames = Callable[[bytes, int, FrameLimits, FrameCheck | None], Iterator[tuple[int, Opaque, Pull, int]]]
"""A decoder of pulls: where the next frame begins, the opaque number, the fields, where the body begins (unused)."""

OutcomeFrames = Callable[[bytes, int, FrameLimits], Iterator[tuple[int, Opaque | None, EndTransaction, int]]]
"""A decoder of outcomes of transactions: the same; None in place of the opaque number of one that wants no response."""


class SendFields(SendV2, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Fields of a send. Those of access control are declared so that they do not end the run.

    An unknown field ends it, which costs 0.07 us for JSON and makes a search for deep nesting (0.47 us) unnecessary.
    """

    access_key: str | None = field(name="AccessKey", default=None)
    signature: str | None = field(name="Signature", default=None)
    security_token: str | None = field(name="SecurityToken", default=None)
    ons_channel: str | None = field(name="OnsChannel", default=None)
    signature_v2: str | None = field(name=SIGNATURE_V2, default=None)
    signature_nonce: str | None = field(name=NONCE, default=None)
    signed_at: str | None = field(name=SIGNED_AT, default=None)


class PullFields(Pull, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Fields of a pull. What the general path ignores is declared here so that it does not end the run."""

    bname: str | None = None
    request_type: str | None = field(name="ReqT", default=None)
    ns: str | None = None
    nsd: str | None = None
    oway: str | None = None
    lo: str | None = None
    request_source: str | int | None = None
    proxy_froward_client_id: str | None = None  # so misspelt by Apache
    access_key: str | None = field(name="AccessKey", default=None)
    signature: str | None = field(name="Signature", default=None)
    security_token: str | None = field(name="SecurityToken", default=None)
    ons_channel: str | None = field(name="OnsChannel", default=None)
    signature_v2: str | None = field(name=SIGNATURE_V2, default=None)
    signature_nonce: str | None = field(name=NONCE, default=None)
    signed_at: str | None = field(name=SIGNED_AT, default=None)


class OutcomeFields(EndTransaction, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Fields of an outcome. Those of access control are not declared: who signed it is for the general path."""

    bname: str | None = None
