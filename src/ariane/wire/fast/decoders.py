"""The fast decoders of sends, pulls and outcomes: whole frames of one chunk, with headers of either kind.

They yield the structs that the general decoder yields, so handlers do not depend on which of them was used. Their types
are in fields.py (`SendFrames` and others): a compiled decoder fits behind them.

A run of frames ends where the other kind of header begins. The connection comes again for what follows: clients do not
mix them.
"""

from collections.abc import Iterator

from ariane.wire.fast.binary_headers import (
    BINARY_OUTCOMES,
    BINARY_PULLS,
    BINARY_SENDS,
    BinaryOutcomeFrames,
    BinaryPullFrames,
    BinarySendFrames,
    binary_header_texts,
)
from ariane.wire.fast.fields import FrameCheck, Opaque, OutcomeFields, PullFields, SendFields
from ariane.wire.fast.json_headers import (
    JSON_OUTCOMES,
    JSON_PULLS,
    JSON_SENDS,
    json_header_texts,
    json_outcome_frames,
    json_pull_frames,
    json_send_frames,
)
from ariane.wire.frame import FrameLimits

_SENDS, _PULLS = JSON_SENDS + BINARY_SENDS, JSON_PULLS + BINARY_PULLS
_OUTCOMES = JSON_OUTCOMES + BINARY_OUTCOMES
_KIND_AT = 4  # of a frame: the top byte of its header's length


def begins_with_send(data: bytes, position: int) -> bool:
    """Whether a send may begin there: a quick check, before anything is prepared for it."""
    return data.startswith(_SENDS, position + 8)


def begins_with_pull(data: bytes, position: int) -> bool:
    """Whether a pull may begin there: a quick check, before anything is prepared for it."""
    return data.startswith(_PULLS, position + 8)


def begins_with_outcome(data: bytes, position: int) -> bool:
    """Whether the outcome of a transaction may begin there: a quick check, before anything is prepared for it."""
    return data.startswith(_OUTCOMES, position + 8)


class SendDecoder:
    def __init__(self) -> None:
        self._binary = BinarySendFrames()

    def frames(
        self, data: bytes, position: int, limits: FrameLimits, check: FrameCheck | None = None
    ) -> Iterator[tuple[int, Opaque, SendFields, int]]:
        """The sends in `data` from `position` on, where one may begin, single ones and batches, up to the first
        uncommon or incomplete frame."""
        frames = self._binary.frames if data[position + _KIND_AT] else json_send_frames
        return frames(data, position, limits, check)


class PullDecoder:
    def __init__(self) -> None:
        self._binary = BinaryPullFrames()

    def frames(
        self, data: bytes, position: int, limits: FrameLimits, check: FrameCheck | None = None
    ) -> Iterator[tuple[int, Opaque, PullFields, int]]:
        """The pulls in `data` from `position` on, where one may begin, up to the first uncommon or incomplete frame."""
        frames = self._binary.frames if data[position + _KIND_AT] else json_pull_frames
        return frames(data, position, limits, check)


class OutcomeDecoder:
    def __init__(self) -> None:
        self._binary = BinaryOutcomeFrames()

    def frames(
        self, data: bytes, position: int, limits: FrameLimits
    ) -> Iterator[tuple[int, Opaque | None, OutcomeFields, int]]:
        """The outcomes in `data` from `position` on, where one may begin, up to the first uncommon or incomplete
        frame."""
        frames = self._binary.frames if data[position + _KIND_AT] else json_outcome_frames
        return frames(data, position, limits)


def header_texts(header: bytes) -> tuple[int, dict[str, str]] | None:
    """Code and fields of a decoded header, as its signature covers them; None when one of the fields is not a text."""
    return json_header_texts(header) if header.startswith(b"{") else binary_header_texts(header)
