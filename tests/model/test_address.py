"""Addresses: parsing `host:port` and `[ipv6]:port`, and formatting them again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.model.address import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9876", Address("127.0.0.1", 9876)),
        (" broker-a:10911\n", Address("broker-a", 10911)),
        ("[::1]:9876", Address("::1", 9876)),
        ("::1:9876", Address("::1", 9876)),
        (":9876", Address("", 9876)),
        ("localhost:0", Address("localhost", 0)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "localhost:65536", "h:-1", "h:1.5", "h:\u0664"])
def test_a_malformed_address_is_an_error_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT expected, for example 127\.0\.0\.1:9876"):
        Address.parse(text)


@given(st.ip_addresses(), st.integers(0, 65535))
def test_an_address_survives_the_round_trip(ip: object, port: int) -> None:
    address = Address(str(ip), port)
    assert Address.parse(str(address)) == address
