"""The column of bodies: copied as they stand, or unpacked where the sysFlag says that they are packed.

A few bytes can unpack to gigabytes, so a body is unpacked with a limit, and a batch ends before its bodies grow past
one.
"""

from collections.abc import Callable
from ipaddress import ip_address
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ariane.arrow.gather import BORN_HOST_AT, STORE_HOST_AT, Int64s, even_blocks, even_texts
from ariane.arrow.rows import Rows
from ariane.errors import RecordError
from ariane.wire.compression import decompress
from ariane.wire.host import HOST_BYTES_V4, HOST_BYTES_V6
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


# --- hosts ---
#
# Hosts and offset ids as text. A host takes 8 bytes, or 20 with IPv6. Few hosts are in use at a time, many ids are.

_OFFSET_AT, _OFFSET_BYTES = 28, 8
_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)
"""Two characters for each byte."""


def born_hosts(rows: Rows) -> pa.Array:
    position = rows.position + BORN_HOST_AT
    return _by_width(
        len(rows), rows.born_shift, lambda which, width: _names(rows.source.blocks(position[which], width))
    )


def store_hosts(rows: Rows) -> pa.Array:
    position = _store_host_positions(rows)
    return _by_width(
        len(rows), rows.store_shift, lambda which, width: _names(rows.source.blocks(position[which], width))
    )


def offset_ids(rows: Rows) -> pa.Array:
    """Store host and physical offset in upper-case hex: `ariane.wire.message_id`, for all rows at once."""
    host, offset = _store_host_positions(rows), rows.position + _OFFSET_AT

    def ids(which: Int64s, width: int) -> pa.Array:
        hosts = rows.source.blocks(host[which], width)
        both = np.concatenate((hosts, rows.source.blocks(offset[which], _OFFSET_BYTES)), axis=1)
        return even_texts(_HEX[both].view(np.uint8), pa.string())

    return _by_width(len(rows), rows.store_shift, ids)


def _store_host_positions(rows: Rows) -> Int64s:
    position = rows.position + STORE_HOST_AT
    return position if rows.born_shift is None else position + rows.born_shift


def _by_width(count: int, shift: Int64s | None, make: Callable[[Int64s, int], pa.Array]) -> pa.Array:
    """One array from the rows with IPv4 and those with IPv6, back in their order."""
    if shift is None or not shift.any():
        return make(np.arange(count), HOST_BYTES_V4)
    narrow, wide = np.flatnonzero(shift == 0), np.flatnonzero(shift)
    both = pa.concat_arrays([make(narrow, HOST_BYTES_V4), make(wide, HOST_BYTES_V6)])
    return both.take(pa.array(np.argsort(np.concatenate((narrow, wide)))))


def _names(hosts: "np.ndarray[tuple[int, int], np.dtype[np.uint8]]") -> pa.Array:
    """`address:port`. Making one costs a microsecond, so each distinct host is made once."""
    count, width = hosts.shape
    coded = pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(hosts)]).dictionary_encode()
    names = pa.array([_name(host) for host in coded.dictionary.to_pylist()], pa.string())
    return names.take(coded.indices)


def _name(host: bytes) -> str:
    """Also of a port above 65535, which only a damaged record has: the row's other columns are worth having."""
    address, port = ip_address(host[:-4]), int.from_bytes(host[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
