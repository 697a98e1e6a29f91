"""Templates of headers that differ in a few values only.

A sample is written by the general encoder, and cut where the values will be. So a template always says what the general
encoder would, and filling it in takes a fifth of the time.
"""

import struct
from itertools import groupby
from typing import Any

from ariane.wire.codes import Serialization
from ariane.wire.exchange import request_command
from ariane.wire.fields import Request
from ariane.wire.frame import FRAME_BYTES_MAX, encode_json_header

# --- JSON headers of requests: the sample has marks where the values will be ------------------------------------------

OPAQUE_MARK = 2_000_111_000
"""Where the opaque number will be. It comes first in each template."""

_pack_prefix = struct.Struct(">iI").pack
_KIND = Serialization.JSON << 24


def header_form(sample: Request[Any], marks: dict[bytes, bytes]) -> bytes | None:
    """A template for bytes' `%`: the opaque number as %d, then each mark as its value says, in the order of the header.

    None when a mark does not occur exactly once: a topic may be named like one.
    """
    header = encode_json_header(request_command(sample, opaque=OPAQUE_MARK)).replace(b"%", b"%%")
    position = 0
    for mark, form in {b"%d" % OPAQUE_MARK: b"%d", **marks}.items():
        if header.count(mark) != 1 or header.index(mark) < position:
            return None
        position = header.index(mark)
        header = header.replace(mark, form)
    return header


def frame_of(header: bytes, body: bytes = b"") -> bytes | None:
    """The frame of a JSON header; None when it would exceed a limit, which the general path reports."""
    return frame_of_pieces(header, [body], len(body))


def frame_of_pieces(header: bytes, body: list[bytes], body_bytes: int) -> bytes | None:
    """The same for a body in pieces of so many bytes: a body of many messages is copied once, and not twice."""
    length = 4 + len(header) + body_bytes
    if length + 4 > FRAME_BYTES_MAX:
        return None
    return b"".join([_pack_prefix(length, _KIND | len(header)), header, *body])


# --- binary headers: two samples, whose values have the same lengths and differ in each byte --------------------------

BINARY_TEMPLATES_MAX = 4096
"""A template fits values of the same lengths, so each of its users has many, and drops all at this number."""

SAMPLE_OPAQUES = (0, -1)


def sample_numbers(digits: int) -> tuple[int, int]:
    """Two numbers of so many digits, up to 19, that differ in each."""
    return int("1" * digits), int("2" * digits)


def form_of_samples(one: bytes, other: bytes, *conversions: bytes) -> bytes:
    """A template for bytes' `%`: what the samples share, and between that a conversion for each value."""
    form, at, given = b"", 0, iter(conversions)
    for is_shared, run in groupby(map(int.__eq__, one, other)):
        end = at + len(list(run))
        form += one[at:end].replace(b"%", b"%%") if is_shared else next(given)
        at = end
    return form
