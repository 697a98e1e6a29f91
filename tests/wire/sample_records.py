"""Stored messages for tests: an example, and Hypothesis strategies for valid and damaged records."""

from ipaddress import IPv4Address, IPv6Address

from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import HostPort, StoredMessage
from ariane.wire.compression import compress
from ariane.wire.record.layout import encode
from ariane.wire.sys_flag import Compression, with_compression

V4 = HostPort(IPv4Address("192.168.1.10"), 10911)
V6 = HostPort(IPv6Address("fd00::2"), 40000)

MESSAGE = StoredMessage(
    topic="T",
    body=b"hi",
    properties={"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "U"},
    flag=5,
    queue_id=3,
    queue_offset=QueueOffset(7),
    physical_offset=PhysicalOffset(4096),
    sys_flag=0,
    born_timestamp_ms=1_600_000_000_000,
    born_host=HostPort(IPv4Address("10.0.0.1"), 5000),
    store_timestamp_ms=1_600_000_000_123,
    store_host=V4,
    reconsume_times=2,
    prepared_transaction_offset=99,
)

_int32 = st.integers(-(2**31), 2**31 - 1)
_int64 = st.integers(-(2**63), 2**63 - 1)
_nasty_bytes = st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=12)
# Mapped addresses are excluded: they are decoded as IPv4, which has a test of its own.
_addresses = st.ip_addresses().filter(lambda ip: isinstance(ip, IPv4Address) or ip.ipv4_mapped is None)
_hosts = st.builds(HostPort, _addresses, st.integers(0, 65535))
_topics = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.integers(120, 300).map("t".__mul__)

plain_messages = st.builds(
    StoredMessage,
    topic=_topics,
    body=st.binary(max_size=200),
    properties=st.dictionaries(_names, _names, max_size=5),
    flag=_int32,
    queue_id=_int32,
    queue_offset=_int64.map(QueueOffset),
    physical_offset=_int64.map(PhysicalOffset),
    sys_flag=_int32.map(lambda flag: with_compression(flag, None)),
    born_timestamp_ms=_int64,
    born_host=_hosts,
    store_timestamp_ms=_int64,
    store_host=_hosts,
    reconsume_times=_int32,
    prepared_transaction_offset=_int64,
)


def _compressed(message: StoredMessage, kind: Compression) -> StoredMessage:
    return replace(message, body=compress(message.body, kind), sys_flag=with_compression(message.sys_flag, kind))


messages = plain_messages | st.builds(_compressed, plain_messages, st.sampled_from(list(Compression)))


_SAMPLES = [
    encode(message)
    for plain in (MESSAGE, replace(MESSAGE, topic="t" * 130), replace(MESSAGE, body=b"", properties={}))
    for message in (
        plain,
        replace(plain, born_host=V6),
        replace(plain, store_host=V6),
        _compressed(plain, Compression.ZLIB),
    )
]


@st.composite
def damaged_records(draw: st.DrawFn) -> bytes:
    """A valid record with some bytes changed, or some missing, or some more behind."""
    record = bytearray(draw(st.sampled_from(_SAMPLES)))
    for position, byte in draw(st.lists(st.tuples(st.integers(0, len(record) - 1), _nasty_bytes), max_size=4)):
        record[position] = byte
    start = draw(st.integers(0, 3))
    return bytes(record[start : draw(st.integers(start, len(record)))]) + draw(st.binary(max_size=20))
