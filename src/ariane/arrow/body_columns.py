"""Columns made from bodies, hosts and offset ids.

Bodies are copied, or decompressed where the sysFlag says so. A few bytes can decompress to gigabytes, so each body is
decompressed with a limit, and a batch ends before its bodies exceed another one.
"""

from collections.abc import Callable
from ipaddress import ip_address
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ariane.arrow.gather import BORN_HOST_AT, STORE_HOST_AT, Int64s, uniform_blocks, uniform_texts
from ariane.arrow.rows import Rows
from ariane.errors import RecordError
from ariane.wire.compression import decompress
from ariane.wire.host import HOST_BYTES_V4, HOST_BYTES_V6
from ariane.wire.sys_flag import SysFlag

BODY_BYTES_MAX = 64 * 1024 * 1024
"""Limit of one decompressed body: far above the 4 MiB that producers may send, far below what would hurt."""
DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""Limit of all decompressed bodies of one batch; the first one always fits."""

_NO_ROWS: Int64s = np.empty(0, np.int64)
_COMPRESSED = int(SysFlag.COMPRESSED)


class DecompressedBodies(NamedTuple):
    rows: Int64s
    """Indexes of the rows whose body was compressed."""
    bodies: list[bytes]
    failed: list[tuple[int, str]]
    """Indexes of rows whose body cannot be decompressed, with the reason."""
    end: int
    """How many rows are done: fewer than all when the bodies became too large."""


def decompress_bodies(rows: Rows, body_bytes_max: int) -> DecompressedBodies:
    if not rows.flags & _COMPRESSED:
        return DecompressedBodies(_NO_ROWS, [], [], len(rows))
    done: list[int] = []
    bodies: list[bytes] = []
    failed: list[tuple[int, str]] = []
    total = 0
    for index in np.flatnonzero(rows.sys_flag & _COMPRESSED).tolist():
        start = int(rows.body_position[index])
        raw = bytes(rows.source.view[start : start + int(rows.body_length[index])])
        try:
            body = decompress(raw, int(rows.sys_flag[index]), body_bytes_max)
        except RecordError as error:
            failed.append((index, str(error)))
            continue
        total += len(body)
        if total > DECOMPRESSED_BYTES_MAX and bodies:
            return DecompressedBodies(np.array(done, np.int64), bodies, failed, index)
        done.append(index)
        bodies.append(body)
    return DecompressedBodies(np.array(done, np.int64), bodies, failed, len(rows))


def body_column(rows: Rows, decompressed: DecompressedBodies | None) -> pa.Array:
    """`decompressed` must have been made from the same rows, whose indexes it holds."""
    if decompressed is None or not len(decompressed.rows):
        if rows.bodies is not None:
            return uniform_blocks(rows.bodies, pa.binary())
        return rows.source.gather(rows.body_position, rows.body_length, pa.binary())
    plain = np.setdiff1d(np.arange(len(rows)), decompressed.rows)
    copied = rows.source.gather(rows.body_position[plain], rows.body_length[plain], pa.binary())
    both = pa.concat_arrays([copied, pa.array(decompressed.bodies, pa.binary())])
    return both.take(pa.array(np.argsort(np.concatenate((plain, decompressed.rows)))))


# --- hosts and offset ids as text: a host has 8 bytes, or 20 with IPv6; there are few distinct hosts, but many ids ---

_OFFSET_AT, _OFFSET_BYTES = 28, 8
_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)
"""The two hex characters of each byte."""


def born_hosts(rows: Rows) -> pa.Array:
    position = rows.position + BORN_HOST_AT
    return _by_width(
        len(rows), rows.born_shift, lambda which, width: _host_names(rows.source.blocks(position[which], width))
    )


def store_hosts(rows: Rows) -> pa.Array:
    position = _store_host_positions(rows)
    return _by_width(
        len(rows), rows.store_shift, lambda which, width: _host_names(rows.source.blocks(position[which], width))
    )


def offset_ids(rows: Rows) -> pa.Array:
    """Store host and physical offset in upper-case hex: `ariane.wire.message_id`, for all rows at once."""
    host, offset = _store_host_positions(rows), rows.position + _OFFSET_AT

    def ids(which: Int64s, width: int) -> pa.Array:
        hosts = rows.source.blocks(host[which], width)
        both = np.concatenate((hosts, rows.source.blocks(offset[which], _OFFSET_BYTES)), axis=1)
        return uniform_texts(_HEX[both].view(np.uint8), pa.string())

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


def _host_names(hosts: "np.ndarray[tuple[int, int], np.dtype[np.uint8]]") -> pa.Array:
    """`address:port`. Formatting one costs a microsecond, so each distinct host is formatted once."""
    count, width = hosts.shape
    coded = pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(hosts)]).dictionary_encode()
    names = pa.array([_host_name(host) for host in coded.dictionary.to_pylist()], pa.string())
    return names.take(coded.indices)


def _host_name(host: bytes) -> str:
    """Accepts a port above 65535, which only a damaged record has: the row's other columns are still useful."""
    address, port = ip_address(host[:-4]), int.from_bytes(host[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
