"""Hosts in records: IPv4, IPv6 and mapped addresses."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import RecordError
from ariane.model.message import HostPort
from ariane.wire.host import decode_host, encode_host


def test_an_ipv4_host_takes_8_bytes() -> None:
    assert encode_host(HostPort(IPv4Address("127.0.0.1"), 10911)) == bytes.fromhex("7F000001 00002A9F")


def test_an_ipv6_host_takes_20_bytes() -> None:
    assert encode_host(HostPort(IPv6Address("fd00::2"), 10911)) == bytes.fromhex(f"FD00{'00' * 13}02 00002A9F")


def test_trap_15_an_ipv4_mapped_peer_is_written_as_ipv4() -> None:
    mapped = HostPort(IPv6Address("::ffff:10.1.2.3"), 9876)
    assert encode_host(mapped) == encode_host(HostPort(IPv4Address("10.1.2.3"), 9876))


@settings(deadline=None)
@given(st.binary(max_size=30))
def test_only_bytes_of_a_host_decode_and_they_encode_back(data: bytes) -> None:
    try:
        host = decode_host(data)
    except RecordError:
        assert len(data) not in (8, 20) or int.from_bytes(data[-4:], "big") > 65535
        return
    assert decode_host(encode_host(host)).port == host.port
    assert encode_host(host) in (data, data[12:])  # the latter for a mapped address


@settings(deadline=None)
@given(st.ip_addresses(), st.integers(0, 65535))
def test_hosts_survive_the_round_trip(ip: IPv4Address | IPv6Address, port: int) -> None:
    decoded = decode_host(encode_host(HostPort(ip, port)))
    assert decoded == HostPort((isinstance(ip, IPv6Address) and ip.ipv4_mapped) or ip, port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_no_socket_has_is_refused(port: int) -> None:
    with pytest.raises(RecordError, match="not between 0 and 65535"):
        encode_host(HostPort(IPv4Address("127.0.0.1"), port))
