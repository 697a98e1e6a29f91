"""Address patterns of white lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.acl.rules import address_match, host_of


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", ["10.1.2.3", "::1", "?"], []),
        ("*.*.*.*", ["10.1.2.3"], []),
        ("", [], ["10.1.2.3", "::1"]),
        (None, [], ["10.1.2.3"]),
        ("10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.30", "10.1.2.4", "?", ""]),
        ("10.1.2.3,10.1.2.4", ["10.1.2.3", "10.1.2.4"], ["10.1.2.5"]),
        ("10.1.2.{3, 4}", ["10.1.2.3", "10.1.2.4"], ["10.1.2.34"]),
        ("10.1.2.*", ["10.1.2.0", "10.1.2.255"], ["10.1.3.1", "10.1.22.1"]),
        ("10.1.2-9.*", ["10.1.2.7", "10.1.9.255"], ["10.1.1.7", "10.1.10.7"]),
        ("10.1.2.3-9", ["10.1.2.3", "10.1.2.9"], ["10.1.2.2", "10.1.2.10"]),
        ("10.*.*.*", ["10.250.1.1"], ["11.1.1.1"]),
        ("2001:db8::7", ["2001:DB8:0:0::7", "2001:db8::7%eth0"], ["2001:db8::8"]),
        ("2001:db8::1:*", ["2001:db8::1:ffff"], ["2001:db8::2:1", "10.1.2.3"]),
        ("2001:db8::1-9:*", ["2001:db8::5:1"], ["2001:db8::a:1"]),
        ("2001:db8::{7,8}", ["2001:db8::8"], ["2001:db8::78"]),
        ("::1", ["::1"], ["127.0.0.1"]),
    ],
)
def test_patterns(pattern: str | None, inside: list[str], outside: list[str]) -> None:
    matches = address_match(pattern)
    assert [host for host in inside if not matches(host)] == []
    assert [host for host in outside if matches(host)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "10.1.2",
        "10.1.2.300",
        "10.1.*.3",
        "10.1-3.2.3",
        "10.1.9-2.*",
        "-3.1.1.1",
        "10.1.2.{3",
        "10.1.2{3,4}",
        "10.1.2.{x}",
        *("host", "10.1.2.3,", "1:2:3:*", "2001:db8::1-9:7", "2001:*:1::", "::1-g", "10.1.2.+3", "2001::*::1", "{3}"),
    ],
)
def test_an_invalid_pattern_is_rejected(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not an address pattern"):
        address_match(pattern)


@pytest.mark.parametrize(
    ("peer", "host"),
    [("127.0.0.1:47", "127.0.0.1"), ("[::1]:47", "::1"), ("?", "?"), ("[fe80::1%eth0]:1", "fe80::1%eth0")],
)
def test_the_host_of_a_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host


@given(st.text("0123456789abcdef.:*-{},", max_size=30), st.sampled_from(["10.1.2.3", "::1", "?"]))
def test_a_pattern_is_parsed_or_rejected(pattern: str, host: str) -> None:
    try:
        matches = address_match(pattern)
    except ValueError as error:
        assert "pattern" in str(error)  # noqa: PT017
    else:
        assert matches(host) in (True, False)


@given(st.ip_addresses(v=4) | st.ip_addresses(network="2001:db8::/32"), st.ip_addresses(network="2001:db8::/124"))
def test_an_address_matches_only_itself(one: object, other: object) -> None:
    assert address_match(str(one))(str(one))
    assert address_match(str(one))(str(other)) == (one == other)
