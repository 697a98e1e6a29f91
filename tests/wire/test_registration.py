"""The body of REGISTER_BROKER in its three formats, against recordings and damaged bytes."""

import contextlib
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import BodyError, WireError
from ariane.model.topic import DataVersion, TopicConfig, TopicFilterType
from ariane.wire import registration
from ariane.wire.codes import RequestCode, Version
from ariane.wire.exchange import read_request
from ariane.wire.hashes import crc32
from ariane.wire.registration import RegistrationBody, decode_registration, encode_registration
from ariane.wire.requests.brokers import RegisterBroker
from tests.wire.golden_frames import GoldenFrame, whole_frames

NAMES = st.from_regex(r"[%a-zA-Z0-9_-]{1,20}", fullmatch=True)
COUNTS = st.integers(0, 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def registrations(**lost: st.SearchStrategy[Any]) -> st.SearchStrategy[RegistrationBody]:
    """`lost`: fields that the format does not have, so that they keep their defaults."""
    config = st.builds(
        TopicConfig,
        topic_name=NAMES,
        read_queue_nums=COUNTS,
        write_queue_nums=COUNTS,
        perm=st.integers(0, 15),
        topic_filter_type=st.sampled_from(TopicFilterType),
        **({"topic_sys_flag": COUNTS, "order": st.booleans()} | lost),
    )
    topics = st.lists(config, max_size=5).map(lambda configs: {config.topic_name: config for config in configs})
    version = st.builds(DataVersion, timestamp=INT64, counter=INT64)
    return st.builds(
        RegistrationBody, data_version=version, topics=topics, filter_servers=st.lists(st.text(), max_size=3)
    )


def request(body: bytes, *, compressed: bool = False, crc: int = 0) -> RegisterBroker:
    return RegisterBroker(
        broker_name="a", broker_addr="10.0.0.1:10911", cluster_name="c", broker_id=0, compressed=compressed,
        body_crc32=crc, body=body,
    )  # fmt: skip


def decode(body: bytes, *, compressed: bool = False, version: int = Version.V4_7_1) -> RegistrationBody:
    result = decode_registration(request(body, compressed=compressed), version)
    assert result is not None
    return result


def compressed(*parts: bytes | int) -> bytes:
    """A compressed body: an int is a count, bytes follow their length."""
    packed = [
        struct.pack(">i", part) if isinstance(part, int) else struct.pack(">i", len(part)) + part for part in parts
    ]
    return zlib.compress(b"".join(packed))


@given(registrations())
def test_the_plain_format_survives(body: RegistrationBody) -> None:
    data, crc = encode_registration(body, compressed=False)
    assert decode_registration(request(data, crc=crc), Version.V4_7_1) == body


@given(registrations(topic_sys_flag=st.just(0), order=st.just(False)))
def test_the_compressed_format_survives(body: RegistrationBody) -> None:
    data, crc = encode_registration(body, compressed=True)
    assert decode_registration(request(data, compressed=True, crc=crc), Version.V4_7_1) == body


def test_a_request_without_a_body_has_no_registration() -> None:
    assert decode_registration(request(b""), Version.V4_7_1) is None


def test_before_version_37_the_body_is_the_bare_topic_table() -> None:
    body = b'{"dataVersion":{"counter":3,"timestamp":5},"topicConfigTable":{"T":{"readQueueNums":8,"topicName":"T"}}}'
    old = decode(body, version=36)
    assert old.data_version == DataVersion(timestamp=5, counter=3)
    assert old.topics["T"].read_queue_nums == 8
    assert decode(body, version=37).topics == {}


def test_members_of_5x_are_ignored_in_the_plain_format() -> None:
    body = b"""{"filterServerList":[],"topicConfigSerializeWrapper":{
        "dataVersion":{"counter":1,"stateVersion":9,"timestamp":2},
        "mappingDataVersion":{"counter":0},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{},
        "topicConfigTable":{"T":{"attributes":{"+message.type":"FIFO"},"order":false,"perm":6,"topicName":"T"}}}}"""
    assert decode(body).topics == {"T": TopicConfig(topic_name="T")}


def test_additions_of_5x_are_ignored_in_the_compressed_format() -> None:
    topic = b'T 8 4 6 SINGLE_TAG {"+message.type": "FIFO", "a": "b c"}'
    body = compressed(b'{"counter":1,"stateVersion":0,"timestamp":2}', 1, topic, b"[]", 1, b'{"topic":"T"}')
    assert decode(body, compressed=True) == RegistrationBody(
        data_version=DataVersion(timestamp=2, counter=1),
        topics={"T": TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=4)},
    )


def test_trap_12_the_checksum_has_31_bits_and_a_wrong_one_is_refused() -> None:
    body = next(text for text in (b'{"n":%d}' % number for number in range(99)) if zlib.crc32(text) >> 31)
    assert decode_registration(request(body, crc=zlib.crc32(body) & 0x7FFFFFFF), Version.V4_7_1) == RegistrationBody()
    with pytest.raises(BodyError, match="checksum"):
        decode_registration(request(body, crc=crc32(body) + 1), Version.V4_7_1)


REAL = [frame for frame in whole_frames() if frame.declaration.code == RequestCode.REGISTER_BROKER]
REAL = [frame for frame in REAL if not frame.command.is_response]


@pytest.mark.parametrize("frame", REAL, ids=[frame.label for frame in REAL])
def test_registrations_of_a_real_broker_are_read_and_written_alike(frame: GoldenFrame) -> None:
    real = read_request(frame.declaration, frame.command)
    assert isinstance(real, RegisterBroker)
    assert real.body_crc32
    body = decode_registration(real, frame.command.version)
    assert body is not None
    assert body.topics
    data, crc = encode_registration(body, real.compressed)
    assert decode_registration(request(data, compressed=real.compressed, crc=crc), frame.command.version) == body


def test_both_forms_of_a_real_broker_were_seen() -> None:
    assert {frame.command.ext["compressed"] for frame in REAL} == {"true", "false"}


VERSION = b'{"counter":1,"timestamp":2}'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"not zlib", "zlib"),
        (compressed(VERSION, 0, b"[]")[:-6], "truncated"),
        (compressed(), "ends before"),
        (compressed(VERSION, 2**31 - 1, b"T 1 1 6 SINGLE_TAG"), "2147483647 topics"),
        (compressed(VERSION, -1), "-1 topics"),
        (compressed(VERSION, 1, b"T 1 1 6 SINGLE_TAG"), "ends before the length of the filter servers"),
        (compressed(VERSION, 1, b"just four words here"), "name read write"),
        (compressed(VERSION, 1, b"T 1 1 -6 SINGLE_TAG"), "'-6' is not a valid number"),
        (compressed(VERSION, 1, b"T 1 99999999999 6 SINGLE_TAG"), "not a valid number"),
        (compressed(VERSION, 1, b"T 1 1 6 TRIPLE_TAG"), "TRIPLE_TAG"),
        (zlib.compress(struct.pack(">i", 2**31 - 1)), "2147483647 bytes announced"),
    ],
)
def test_a_malformed_compressed_body_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(BodyError, match=reason):
        decode(body, compressed=True)


def test_a_bomb_is_refused_before_it_is_decompressed() -> None:
    deflater = zlib.compressobj()
    zeroes = bytes(1024 * 1024)
    pieces = [deflater.compress(zeroes) for _ in range(registration.INFLATED_MAX // len(zeroes) + 1)]
    with pytest.raises(BodyError, match="more than"):
        decode(b"".join([*pieces, deflater.flush()]), compressed=True)


@given(body=st.binary(min_size=1), version=st.sampled_from([36, 37, 355]), packed=st.booleans())
def test_any_bytes_are_read_or_refused(body: bytes, version: int, packed: bool) -> None:
    for data in (body, zlib.compress(body)):
        with contextlib.suppress(WireError):
            decode(data, compressed=packed, version=version)


@settings(max_examples=300)
@given(data=st.data())
def test_a_damaged_registration_is_read_or_refused(data: st.DataObject) -> None:
    packed = data.draw(st.booleans())
    whole, _ = encode_registration(data.draw(registrations()), compressed=packed)
    plain = bytearray(zlib.decompress(whole) if packed else whole)
    plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        decode(zlib.compress(bytes(plain)) if packed else bytes(plain), compressed=packed)
