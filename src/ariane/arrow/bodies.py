"""The column of bodies: copied as they stand, or unpacked where the sysFlag says that they are packed.

A few bytes can unpack to gigabytes, so a body is unpacked with a limit, and a batch ends before its bodies grow past
one.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ariane.arrow.rows import Rows
from ariane.arrow.source import Int64s, even_blocks
from ariane.errors import RecordError
from ariane.wire.compression import decompress
from ariane.wire.sys_flag import SysFlag

BODY_BYTES_MAX = 64 * 1024 * 1024
"""What a packed body may unpack to: far above the 4 MiB that producers may send, far below what would hurt."""
UNPACKED_BYTES_MAX = 256 * 1024 * 1024
"""What all packed bodies of one batch may unpack to; the first one always fits."""

_NO_ROWS: Int64s = np.empty(0, np.int64)
_COMPRESSED = int(SysFlag.COMPRESSED)


class Unpacked(NamedTuple):
    rows: Int64s
    """Numbers of the rows whose body was packed."""
    bodies: list[bytes]
    failed: list[tuple[int, str]]
    """Numbers of rows whose body cannot be unpacked, and why."""
    end: int
    """How many rows are done: fewer than there are when the bodies became too large."""


def unpack_bodies(rows: Rows, body_bytes_max: int) -> Unpacked:
    if not rows.flags & _COMPRESSED:
        return Unpacked(_NO_ROWS, [], [], len(rows))
    done: list[int] = []
    bodies: list[bytes] = []
    failed: list[tuple[int, str]] = []
    total = 0
    for number in np.flatnonzero(rows.sys_flag & _COMPRESSED).tolist():
        start = int(rows.body_position[number])
        raw = bytes(rows.source.view[start : start + int(rows.body_length[number])])
        try:
            body = decompress(raw, int(rows.sys_flag[number]), body_bytes_max)
        except RecordError as error:
            failed.append((number, str(error)))
            continue
        total += len(body)
        if total > UNPACKED_BYTES_MAX and bodies:
            return Unpacked(np.array(done, np.int64), bodies, failed, number)
        done.append(number)
        bodies.append(body)
    return Unpacked(np.array(done, np.int64), bodies, failed, len(rows))


def body_column(rows: Rows, unpacked: Unpacked | None) -> pa.Array:
    """With `unpacked`, made from these very rows, whose numbers it uses."""
    if unpacked is None or not len(unpacked.rows):
        if rows.bodies is not None:
            return even_blocks(rows.bodies, pa.binary())
        return rows.source.spans(rows.body_position, rows.body_length, pa.binary())
    plain = np.setdiff1d(np.arange(len(rows)), unpacked.rows)
    copied = rows.source.spans(rows.body_position[plain], rows.body_length[plain], pa.binary())
    both = pa.concat_arrays([copied, pa.array(unpacked.bodies, pa.binary())])
    return both.take(pa.array(np.argsort(np.concatenate((plain, unpacked.rows)))))
