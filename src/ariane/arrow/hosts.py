"""Hosts and offset ids as text. A host takes 8 bytes, or 20 with IPv6. Few hosts are in use at a time, many ids are."""

from collections.abc import Callable
from ipaddress import ip_address

import numpy as np
import pyarrow as pa

from ariane.arrow.rows import Rows
from ariane.arrow.source import BORN_HOST_AT, STORE_HOST_AT, Int64s, even_texts
from ariane.wire.host import HOST_BYTES_V4, HOST_BYTES_V6

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
