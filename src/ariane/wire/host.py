"""Binary encoding of hosts in records and message ids: the address, then the port as a 32-bit number.

IPv4   4 + 4 =  8 bytes
IPv6  16 + 4 = 20 bytes
"""

import struct
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from ariane.errors import RecordError
from ariane.model.message import HostPort

HOST_BYTES_V4 = 8
HOST_BYTES_V6 = 20

_PORT = struct.Struct(">I")
_PORT_MAX = 65535


def encode_host(host: HostPort) -> bytes:
    """8 bytes for IPv4, 20 for IPv6.

    A dual-stack socket reports an IPv4 peer as ::ffff:a.b.c.d. It is written as IPv4, because the C++ and Node clients
    cannot read a record that has an IPv6 host.
    """
    if not 0 <= host.port <= _PORT_MAX:
        raise RecordError(f"port {host.port} of host {host} is not between 0 and {_PORT_MAX}")
    mapped = host.ip.ipv4_mapped if isinstance(host.ip, IPv6Address) else None
    return (mapped or host.ip).packed + _PORT.pack(host.port)


@lru_cache(maxsize=4096)  # creating an address object costs more than reading the rest of a record; hosts are few
def decode_host(data: bytes) -> HostPort:
    """The host of 8 or 20 bytes."""
    if len(data) not in (HOST_BYTES_V4, HOST_BYTES_V6):
        raise RecordError(f"a host takes {HOST_BYTES_V4} or {HOST_BYTES_V6} bytes, not {len(data)}")
    (port,) = _PORT.unpack(data[-4:])
    if port > _PORT_MAX:
        raise RecordError(f"port {port} of a stored host is not between 0 and {_PORT_MAX}")
    address = data[:-4]
    return HostPort(IPv4Address(address) if len(data) == HOST_BYTES_V4 else IPv6Address(address), port)
