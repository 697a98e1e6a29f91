"""The first bytes of many records, gathered at once: their heads, and more if bodies and topics seem to be alike.

To gather costs a copy for each place, and a copy of 200 bytes takes hardly longer than one of 10. So where some samples
have short bodies of one length and the same topic, everything up to the properties is gathered in one go:

    head | body | length | topic | length of the properties
    |<---------------------- front ---------------------->|

Some at a time, and while those are in the processor's cache they are dealt out to heads, bodies and tails, which are
then read one behind the other. That the others are like the samples is not known yet; if they are not, their heads are
as good as any.
"""

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ariane.arrow.source import Int64s, Source
from ariane.wire.record import TOPIC_BYTES_MAX_V1
from ariane.wire.record_fields import HEAD_BYTES, HEAD_TYPE

TEXT_LENGTH_BYTES = 2
_BODY_BYTES_MAX = 192
"""They are copied twice, which for longer ones costs more than the gathers that are saved."""
_SAMPLES = 8
_BODY_LENGTH = Struct(">i")
_BODY_LENGTH_AT = HEAD_BYTES - _BODY_LENGTH.size
WORD = 8
_AT_ONCE = 1024
"""Fronts: with what is made of them some hundred kilobytes."""

Fields = npt.NDArray[np.void]


class Alike(NamedTuple):
    """What records may have in common."""

    body_length: int
    topic: bytes
    """With its length before it."""

    @property
    def width(self) -> int:
        return HEAD_BYTES + self.body_length + len(self.topic) + TEXT_LENGTH_BYTES


class More(NamedTuple):
    """Of records that seem to be alike, what is behind their heads."""

    alike: Alike
    bodies: Fields
    tails: npt.NDArray[np.int64]
    """Rows of words, as many as hold what is behind the body; see usual_tails.py."""


class Fronts(NamedTuple):
    fields: Fields
    """The heads, by name."""
    more: More | None


def gather_fronts(source: Source, positions: Int64s, limit: int) -> Fronts:
    """Of the records at these positions, which ascend, and at each of which a head must fit before `limit`."""
    alike = _seem_alike(source, positions, limit) if len(positions) else None
    if alike is None:
        return Fronts(np.ndarray(positions.shape, _HEADS, source.blocks(positions, HEAD_BYTES)), None)
    kind = _front_type(alike.body_length, len(alike.topic))
    heads, bodies, tails = parts = [np.empty(len(positions), kind[name]) for name in _PARTS]
    for begin in range(0, len(positions), _AT_ONCE):
        some = positions[begin : begin + _AT_ONCE]
        fronts = np.ndarray(some.shape, kind, source.blocks(some, kind.itemsize))
        for name, part in zip(_PARTS, parts, strict=True):
            part[begin : begin + _AT_ONCE] = fronts[name]
    words = tails.view(">i8").reshape(len(positions), -1)
    return Fronts(np.ndarray(positions.shape, _HEADS, heads), More(alike, bodies, words))


def choose(fields: Fields, which: npt.NDArray[np.int64 | np.bool_]) -> Fields:
    """Some of them. As blocks without names: to choose from arrays with named fields is slow."""
    blocks = np.ndarray(fields.shape, f"V{fields.itemsize}", fields)[which]
    return np.ndarray(blocks.shape, fields.dtype, blocks)


def _seem_alike(source: Source, positions: Int64s, limit: int) -> Alike | None:
    """What some records have in common; None when nothing, or when a front would not be inside."""
    view = source.view
    places: list[int] = positions[:: -(-len(positions) // _SAMPLES)].tolist()
    (length,) = _BODY_LENGTH.unpack_from(view, places[0] + _BODY_LENGTH_AT)
    topic = topic_at(source, places[0] + HEAD_BYTES + length, limit) if 0 < length <= _BODY_BYTES_MAX else b""
    alike, last = Alike(length, topic), int(positions[-1])
    is_alike = topic and last + alike.width <= limit and all(_is_like(view, at, alike) for at in (*places[1:], last))
    return alike if is_alike else None


def topic_at(source: Source, at: int, limit: int) -> bytes:
    """The topic that stands there, with its length before it; empty when it is not there or not a usual one."""
    length = source.view[at] if at < limit else 0
    topic = bytes(source.view[at : at + 1 + length])
    return topic if 0 < length <= TOPIC_BYTES_MAX_V1 and len(topic) == 1 + length else b""


def _is_like(view: memoryview, at: int, alike: Alike) -> bool:
    topic_at = at + HEAD_BYTES + alike.body_length
    return (
        _BODY_LENGTH.unpack_from(view, at + _BODY_LENGTH_AT) == (alike.body_length,)
        and view[topic_at : topic_at + len(alike.topic)] == alike.topic
    )


def _head_fields() -> dict[str, tuple[object, int]]:
    """With the first two fields as one, too: what costs is the way to each head, not what is read there."""
    assert HEAD_TYPE.fields is not None
    return {**{name: (kind, at) for name, (kind, at, *_) in HEAD_TYPE.fields.items()}, "sizeAndMagic": (">i8", 0)}


def _type(fields: dict[str, tuple[object, int]], width: int) -> np.dtype[np.void]:
    formats, offsets = [kind for kind, _ in fields.values()], [at for _, at in fields.values()]
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": width})


_HEADS = _type(_head_fields(), HEAD_BYTES)
_PARTS = ("head", "body", "tail")


def tail_words(topic_length: int) -> int:
    """How many words hold a topic, with its length, and the length of the properties."""
    return -(-(topic_length + TEXT_LENGTH_BYTES) // WORD)


@lru_cache(maxsize=256)
def _front_type(body_length: int, topic_length: int) -> np.dtype[np.void]:
    width, tail_bytes = HEAD_BYTES + body_length + topic_length + TEXT_LENGTH_BYTES, WORD * tail_words(topic_length)
    places = (HEAD_BYTES, 0), (body_length, HEAD_BYTES), (tail_bytes, width - tail_bytes)
    return _type({name: (f"V{length}", at) for name, (length, at) in zip(_PARTS, places, strict=True)}, width)
