"""The two ids of a message, both upper-case hex.

    the offset id, given by the broker: where the message is stored    the unique key, given by the producer
    4 or 16  store address                                             4 or 16  producer address
          4  store port                                                      2  process id, its low 16 bits
          8  physical offset                                                 4  bytes that stay the same for a producer
                                                                             4  ms since the month began, local time
                                                                             2  counter

Either is 16 bytes with IPv4 and 28 with IPv6, so the length identifies the address type: 32 or 56 characters. Tools
connect to the address inside an offset id, and search from the time inside a unique key, so both layouts are part of
the protocol.
"""

import struct
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from itertools import count, islice, repeat
from operator import add
from typing import NamedTuple

from ariane.errors import RecordError
from ariane.model.ids import PhysicalOffset
from ariane.model.message import HostPort
from ariane.wire.host import decode_host, encode_host

_ID_BYTES = (16, 28)
UNIQUE_KEY_CHARS_MAX = 2 * max(_ID_BYTES)
_OFFSET = struct.Struct(">q")
_SALT_BYTES = 4
_HEX = tuple(f"{byte:02X}" for byte in range(256))  # two look-ups take 0.15 us, formatting a number 0.4


class OffsetMessageId(NamedTuple):
    store_host: HostPort
    physical_offset: PhysicalOffset

    def __str__(self) -> str:
        return offset_message_id(encode_host(self.store_host), self.physical_offset)


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """The offset id; `store_host` is encoded as in a record (`encode_host`)."""
    return f"{store_host.hex()}{physical_offset:016x}".upper()


def offset_message_ids(store_host: bytes, physical_offsets: Sequence[int]) -> str:
    """Several offset ids, separated by commas, as in the response to a batch."""
    fields: list[bytes | int] = [store_host] * (2 * len(physical_offsets))
    fields[1::2] = physical_offsets
    ids = _ids_of(len(store_host), len(physical_offsets)).pack(*fields)
    return ids.hex(",", len(store_host) + _OFFSET.size).upper()


@lru_cache(maxsize=256)
def _ids_of(host_bytes: int, count: int) -> struct.Struct:
    return struct.Struct(">" + f"{host_bytes}sq" * count)


def decode_offset_message_id(text: str) -> OffsetMessageId:
    """The address and offset inside an offset id, in upper or lower case; RecordError if it is malformed."""
    data = _from_hex(text)
    (offset,) = _OFFSET.unpack(data[-8:])
    if offset < 0:
        raise RecordError(f"message id {text!r} has the negative offset {offset}")
    return OffsetMessageId(decode_host(data[:-8]), PhysicalOffset(offset))


class UniqueKeys:
    """Generates unique keys for one producer. Thread-safe: incrementing the counter is one atomic call."""

    def __init__(
        self,
        ip: IPv4Address | IPv6Address,
        pid: int,
        salt: bytes,
        now_ms: Callable[[], int],
        zone: tzinfo | None = None,
    ) -> None:
        """`salt` is 4 bytes that distinguish producers with the same process id; `zone` defaults to the local one."""
        if len(salt) != _SALT_BYTES:
            raise RecordError(f"the salt of unique keys must have {_SALT_BYTES} bytes, not {len(salt)}")
        self._prefix = (ip.packed + (pid & 0xFFFF).to_bytes(2, "big") + salt).hex().upper()
        self._now_ms = now_ms
        self._zone = zone
        self._counter = count()
        # Tuples, so that other threads never see half of a change.
        self._month = _month_of(now_ms(), zone)
        self._cached_prefix = (-1, "")

    def next(self) -> str:
        return self.next_at(self._now_ms())

    def next_at(self, now_ms: int) -> str:
        """For callers that have just read the clock."""
        prefix_ms, prefix = self._cached_prefix
        if now_ms != prefix_ms:
            _, prefix = self._cached_prefix = now_ms, self._prefix_at(now_ms)
        number = next(self._counter)
        return f"{prefix}{_HEX[number >> 8 & 0xFF]}{_HEX[number & 0xFF]}"

    def many(self, count: int) -> list[str]:
        """Several keys with one timestamp: the clock is read once, and the counters are formatted in C."""
        now_ms = self._now_ms()
        numbers = [number & 0xFFFF for number in islice(self._counter, count)]
        suffixes = struct.pack(f">{count}H", *numbers).hex(",", 2).upper().split(",") if count else []
        return list(map(add, repeat(self._prefix_at(now_ms)), suffixes))

    def _prefix_at(self, now_ms: int) -> str:
        """Everything but the counter: equal for all keys of a millisecond."""
        begin_ms, end_ms = self._month
        if not begin_ms <= now_ms < end_ms:
            begin_ms, end_ms = self._month = _month_of(now_ms, self._zone)
        return f"{self._prefix}{now_ms - begin_ms:08X}"


def unique_key_time_ms(key: str, now_ms: int, zone: tzinfo | None = None) -> int:
    """When `key` was generated, assuming this month, or the previous month if that would be in the future.

    The time is read in the local zone, but was written in the producer's; a search must allow for the difference.
    """
    data = _from_hex(key)
    since_month_ms = int.from_bytes(data[-6:-2], "big")  # unsigned: a month has more ms than a signed number holds
    begin_ms, _ = _month_of(now_ms, zone)
    if begin_ms + since_month_ms >= now_ms:
        begin_ms, _ = _month_of(begin_ms - 1, zone)
    return begin_ms + since_month_ms


def _from_hex(text: str) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise RecordError(f"message id {text[:60]!r} is not hexadecimal") from None
    # fromhex skips blanks, so the characters must be counted too
    if len(data) not in _ID_BYTES or len(text) != 2 * len(data):
        raise RecordError(f"message id {text[:60]!r} has {len(text)} characters, not 32 (IPv4) or 56 (IPv6)")
    return data


def _month_of(now_ms: int, zone: tzinfo | None) -> tuple[int, int]:
    """The first millisecond of the month around `now_ms`, and that of the next month."""
    first_day = datetime.fromtimestamp(now_ms / 1000, zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    next_first_day = (first_day + timedelta(days=32)).replace(day=1)
    return int(first_day.timestamp() * 1000), int(next_first_day.timestamp() * 1000)
