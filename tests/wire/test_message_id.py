"""Offset ids and unique keys: layout, round trips, time and counter."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from ipaddress import IPv4Address, IPv6Address
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import RecordError, WireError
from ariane.model.message import HostPort
from ariane.wire.host import encode_host
from ariane.wire.message_id import (
    UNIQUE_KEY_CHARS_MAX,
    UniqueKeys,
    decode_offset_message_id,
    offset_message_id,
    offset_message_ids,
    unique_key_time_ms,
)

SALT = bytes.fromhex("30946E09")
LOCALHOST = IPv4Address("127.0.0.1")
CHINA = timezone(timedelta(hours=8))


def ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, zone: tzinfo = UTC) -> int:
    return int(datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp() * 1000)


def at(now_ms: int) -> Callable[[], int]:
    return lambda: now_ms


@pytest.mark.parametrize(
    ("address", "offset", "expected"),
    [
        ("127.0.0.1", 0, "7F00000100002A9F0000000000000000"),
        ("192.168.1.10", 123456, "C0A8010A00002A9F000000000001E240"),
    ],
)
def test_an_offset_id_is_address_port_and_offset(address: str, offset: int, expected: str) -> None:
    host = HostPort(IPv4Address(address), 10911)
    assert offset_message_id(encode_host(host), offset) == expected
    assert decode_offset_message_id(expected) == (host, offset)


def test_trap_14_ids_are_upper_case_and_their_length_distinguishes_ipv4_from_ipv6() -> None:
    v4 = offset_message_id(encode_host(HostPort(IPv4Address("250.251.252.253"), 10911)), 0xABCDEF)
    v6 = offset_message_id(encode_host(HostPort(IPv6Address("fe80::abcd"), 10911)), 0xABCDEF)
    keys = [UniqueKeys(ip, 0xABCD, SALT, at(0xABCDEF), UTC).next() for ip in (LOCALHOST, IPv6Address("fe80::abcd"))]
    assert [len(text) for text in (v4, v6, *keys)] == [32, 56, 32, 56]
    assert all(text == text.upper() for text in (v4, v6, *keys))
    assert decode_offset_message_id(v4).store_host.ip == IPv4Address("250.251.252.253")
    assert decode_offset_message_id(v6).store_host.ip == IPv6Address("fe80::abcd")


def test_an_offset_id_is_read_in_lower_case_too() -> None:
    text = "7F00000100002A9F000000000001E240"
    assert decode_offset_message_id(text.lower()) == decode_offset_message_id(text)
    assert str(decode_offset_message_id(text.lower())) == text


@settings(deadline=None)
@given(st.ip_addresses(), st.integers(0, 65535), st.integers(0, 2**63 - 1))
def test_offset_ids_survive_the_round_trip(ip: IPv4Address | IPv6Address, port: int, offset: int) -> None:
    text = offset_message_id(encode_host(HostPort(ip, port)), offset)
    decoded = decode_offset_message_id(text)
    assert (decoded.store_host.port, decoded.physical_offset) == (port, offset)
    assert str(decoded) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7F",
        "7F00000100002A9F00000000000000",
        "7F00000100002A9F000000000000000G",
        "7F 0000010000 2A9F00000000000000",  # 32 characters, but not of hex alone
        "7F00000100002A9F00000000000000 00",
        "7F00000100002A9F80000000000000001",
        "7F00000100002A9F8000000000000000",  # a negative offset
        "7F000001FFFFFFFF0000000000000000",  # a port that no socket has
        "é" * 32,
    ],
)
def test_a_malformed_offset_id_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        decode_offset_message_id(text)


@settings(deadline=None)
@given(st.text(max_size=60) | st.text("0123456789abcdefABCDEF ", min_size=30, max_size=60))
def test_any_text_is_an_id_or_raises_a_wire_error(text: str) -> None:
    for read in (decode_offset_message_id, lambda key: unique_key_time_ms(key, ms(2024, 5, 17), UTC)):
        try:
            read(text)
        except WireError:
            continue
        assert len(text) in (32, 56)


def test_a_unique_key_is_laid_out_as_java_does() -> None:
    keys = UniqueKeys(LOCALHOST, 0x139FE, SALT, at(ms(2024, 5, 1) + 0x4CB2B1EB), UTC)
    assert [keys.next(), keys.next()] == ["7F00000139FE30946E094CB2B1EB0000", "7F00000139FE30946E094CB2B1EB0001"]


def test_the_time_of_a_real_java_key_is_read() -> None:
    # From a store that Apache RocketMQ 4.9.8 wrote on a machine in UTC, with the message's own birth time.
    key = "FD00000000000000000000000000000239FE30946E094CB2B1EB0000"
    assert abs(unique_key_time_ms(key, 1794777999999, UTC) - 1794777979372) < 1000


def test_the_counter_restarts_after_65536_keys() -> None:
    keys = UniqueKeys(LOCALHOST, 1, SALT, at(0), UTC)
    made = [keys.next()[-4:] for _ in range(65537)]
    assert (made[0], made[65535], made[65536]) == ("0000", "FFFF", "0000")
    assert len(set(made[:65536])) == 65536


@pytest.mark.parametrize("ip", [LOCALHOST, IPv6Address("::1")])
def test_many_keys_are_equal_to_single_keys(ip: IPv4Address | IPv6Address) -> None:
    singles, many = (UniqueKeys(ip, 1, SALT, at(ms(2024, 5, 31)), UTC) for _ in range(2))
    assert many.many(0) == []
    made = [key for count in (1, 65_000, 1_000, 2) for key in many.many(count)]
    assert made == [singles.next() for _ in made]
    assert many.next() == singles.next()
    assert {len(key) for key in made} <= {32, UNIQUE_KEY_CHARS_MAX}


def test_the_time_restarts_with_the_month() -> None:
    now_ms = ms(2024, 2, 29, 23, 59, 59)
    keys = UniqueKeys(LOCALHOST, 1, SALT, lambda: now_ms, UTC)
    assert keys.next()[20:28] == f"{29 * 86_400_000 - 1000:08X}"
    now_ms += 1000
    assert keys.next()[20:28] == "00000000"
    now_ms -= 1000  # a clock set back
    assert keys.next()[20:28] == f"{29 * 86_400_000 - 1000:08X}"


def test_the_month_begins_in_local_time() -> None:
    keys = UniqueKeys(LOCALHOST, 1, SALT, at(ms(2024, 5, 1, 0, 0, 5, zone=CHINA)), CHINA)
    assert keys.next()[20:28] == f"{5000:08X}"


def test_without_a_zone_local_time_is_used() -> None:
    now_ms = ms(2024, 5, 17, 12)
    key = UniqueKeys(LOCALHOST, 1, SALT, at(now_ms)).next()
    assert unique_key_time_ms(key, now_ms + 1) == now_ms


@settings(deadline=None)
@given(st.integers(ms(2000, 1, 1), ms(2100, 1, 1)), st.integers(1, 27 * 86_400_000), st.sampled_from([UTC, CHINA]))
def test_the_time_of_a_key_is_read_for_most_of_a_month(born_ms: int, age_ms: int, zone: tzinfo) -> None:
    key = UniqueKeys(LOCALHOST, 1, SALT, at(born_ms), zone).next()
    assert unique_key_time_ms(key, born_ms + age_ms, zone) == born_ms


def test_a_key_of_the_last_day_of_a_long_month_is_read_unsigned() -> None:
    # 31 days have more ms than a signed 32-bit number holds.
    born_ms = ms(2024, 5, 31, 23, 59, 59)
    key = UniqueKeys(LOCALHOST, 1, SALT, at(born_ms), UTC).next()
    assert key[20] in "89ABCDEF"
    assert unique_key_time_ms(key, ms(2024, 6, 1), UTC) == born_ms


def test_threads_that_share_a_producer_make_different_keys() -> None:
    keys = UniqueKeys(LOCALHOST, 1, SALT, at(0), UTC)
    made: list[str] = []
    threads = [Thread(target=lambda: made.extend([keys.next() for _ in range(2000)])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 16000


def test_a_salt_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(RecordError, match="4 bytes, not 3"):
        UniqueKeys(LOCALHOST, 1, b"abc", at(0))


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=40), st.sampled_from([8, 20]))
def test_ids_of_a_batch_are_those_of_its_messages(offsets: list[int], host_bytes: int) -> None:
    host = bytes(range(0xA0, 0xA0 + host_bytes))
    assert offset_message_ids(host, offsets) == ",".join(offset_message_id(host, offset) for offset in offsets)
