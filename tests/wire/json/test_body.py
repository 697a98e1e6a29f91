"""JSON bodies: the fast and the tolerant path, real clients' bodies, and limits."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import BodyError, FieldError, WireError
from ariane.model.group import ConsumeFromWhere, ConsumeType, MessageModel
from ariane.model.route import MessageQueue, TopicRoute
from ariane.model.topic import DataVersion, Permission, TopicConfig
from ariane.wire.json.body import JsonBody, decode_json, encode_json
from ariane.wire.json.coerce import coerce
from ariane.wire.json.fastjson import parse
from ariane.wire.requests.clients import HeartbeatData
from tests.wire.golden_bodies import bodies_of, damaged, golden_bodies

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)


class Offsets(JsonBody, frozen=True):
    offset_table: dict[MessageQueue, int] = msgspec.field(default_factory=dict)
    by_queue_id: dict[int, int] = msgspec.field(default_factory=dict)
    group_name: str | None = None


class Strict(JsonBody, frozen=True):
    name: str
    limit: int = 0
    share: float = 0.0


ANY_KIND: list[Any] = [HeartbeatData, TopicRoute, Offsets, Strict, TopicConfig, DataVersion, dict[str, list[int]]]


def test_a_body_is_written_in_camel_case_order_without_none() -> None:
    assert Offsets(offset_table={QUEUE: 12}, by_queue_id={1: 9, 0: 3}).to_bytes() == (
        b'{"byQueueId":{1:9,0:3},"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:12}}'
    )


def test_a_body_has_a_standard_form() -> None:
    assert Offsets(offset_table={QUEUE: 12}, by_queue_id={1: 9}).to_bytes(standard=True) == (
        rb'{"byQueueId":{"1":9},"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}":12}}'
    )


@pytest.mark.parametrize("standard", [False, True])
def test_a_body_is_read_back_in_either_form(standard: bool) -> None:
    body = Offsets(offset_table={QUEUE: 12}, by_queue_id={1: 9}, group_name="é")
    assert Offsets.from_bytes(body.to_bytes(standard=standard)) == body


def test_trap_19_reset_offsets_have_the_compact_form_that_go_clients_split() -> None:
    data = Offsets(offset_table={QUEUE: 0, MessageQueue(topic="T", broker_name="b", queue_id=1): 7}).to_bytes()
    assert data.count(b"},{") == 0
    assert data.count(b",{") == 1
    assert data.count(b"}:") == 2
    assert b" " not in data


def test_trap_08_cpp_heartbeats_enum_ints_string_subversion_missing_sets() -> None:
    data = (
        b'{"clientID":"127.0.0.1@18029","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"CG",'
        b'"messageModel":1,"subscriptionDataSet":[{"subString":"*","subVersion":"1794775073922","topic":"T"}]}]}\n'
    )
    heartbeat = HeartbeatData.from_bytes(data)
    (consumer,) = heartbeat.consumer_data_set
    assert heartbeat.producer_data_set == []
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.CLUSTERING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    (subscription,) = consumer.subscription_data_set
    assert subscription.sub_version == 1794775073922
    assert (subscription.tags_set, subscription.code_set, subscription.expression_type) == ([], [], "TAG")


@pytest.mark.parametrize("data", bodies_of(34, is_response=False))
def test_every_recorded_heartbeat_is_read_and_written(data: bytes) -> None:
    heartbeat = HeartbeatData.from_bytes(data)
    assert heartbeat.client_id
    assert heartbeat.producer_data_set or heartbeat.consumer_data_set
    for standard in (False, True):
        assert HeartbeatData.from_bytes(heartbeat.to_bytes(standard=standard)) == heartbeat


def test_lua_writes_an_empty_set_as_an_empty_object() -> None:
    heartbeat = HeartbeatData.from_bytes(b'{"clientID":"c","producerDataSet":{},"consumerDataSet":{}}')
    assert heartbeat == HeartbeatData(client_id="c")


def test_recorded_object_keyed_offsets_are_read() -> None:
    (data,) = set(bodies_of(222, is_response=True))
    offsets = Offsets.from_bytes(data).offset_table
    assert sorted(queue.queue_id for queue in offsets) == [0, 1]
    assert set(offsets.values()) == {0}


def test_references_are_resolved_before_conversion() -> None:
    data = b'{"a":{"counter":3,"timestamp":4},"b":{"$ref":"$.a"}}'
    assert decode_json(data, dict[str, DataVersion]) == dict.fromkeys("ab", DataVersion(counter=3, timestamp=4))


def test_values_that_are_not_structs_are_read_and_written_too() -> None:
    topic = TopicConfig(topic_name="T", perm=Permission.READ_WRITE)
    data = encode_json(topic)
    assert data == (
        b'{"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,'
        b'"writeQueueNums":16}'
    )
    assert decode_json(data, TopicConfig) == topic
    assert decode_json(encode_json(["a"]), list[str]) == ["a"]


def test_an_empty_body_is_all_defaults_or_an_error() -> None:
    assert Offsets.from_bytes(b"") == Offsets()
    assert decode_json(b"", list[str]) == []
    with pytest.raises(BodyError, match=r"the body is empty, but Strict needs one: \$\.name: missing"):
        Strict.from_bytes(b"")


@pytest.mark.parametrize(
    "number", ["9223372036854775808", "-9223372036854775809", "1" + "0" * 30, '"9999999999999999999"']
)
def test_integers_beyond_64_bits_are_refused(number: int | str) -> None:
    with pytest.raises(FieldError, match="64-bit"):
        Strict.from_bytes(f'{{"name":"n","limit":{number}}}'.encode())


def test_the_largest_integers_are_read_and_long_digits_in_text_are_allowed() -> None:
    data = f'{{"name":"{"9" * 40}","limit":{2**63 - 1}}}'.encode()
    assert Strict.from_bytes(data) == Strict(name="9" * 40, limit=2**63 - 1)


@pytest.mark.parametrize("share", ['"nan"', '"inf"', "1e999", "NaN"])
def test_numbers_that_are_not_finite_are_refused(share: str) -> None:
    with pytest.raises(WireError):
        Strict.from_bytes(f'{{"name":"n","share":{share}}}'.encode())


def test_a_body_nested_too_deep_is_refused_at_any_position() -> None:
    for depth in (40, 200_000):
        with pytest.raises(BodyError, match="deeper than 32"):
            Strict.from_bytes(b'{"name":"n","unknown":' + b"[" * depth + b"]" * depth + b"}")


@pytest.mark.parametrize("data", [b"[]", b"7", b"null", b'{"name":[]}', b'{"name":', b"\xff", b'{"name":"\xff"}'])
def test_a_malformed_body_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        Strict.from_bytes(data)


def test_a_union_of_bodies_is_read_as_the_matching_one() -> None:
    kind: Any = Offsets | Strict
    assert decode_json(b'{"name":[],"groupName":5}', kind) == Offsets(group_name="5")
    assert decode_json(b"", kind) == Offsets()


def test_subclasses_keep_their_own_options() -> None:
    class Named(JsonBody, frozen=True, rename={"client_id": "clientID"}):
        client_id: str

    body = Named(client_id="c")
    assert body.to_bytes() == b'{"clientID":"c"}'
    assert hash(Named.from_bytes(b'{"clientID":"c"}')) == hash(body)
    with pytest.raises(AttributeError):
        body.client_id = "d"  # type: ignore[misc]


@given(st.builds(Offsets, by_queue_id=st.dictionaries(st.integers(0, 99), st.integers(-(2**63), 2**63 - 1))))
def test_any_offsets_are_read_back(body: Offsets) -> None:
    assert Offsets.from_bytes(body.to_bytes()) == body


@given(st.sampled_from(ANY_KIND), st.binary(max_size=100) | damaged(tuple(body.data for body in golden_bodies())))
@settings(deadline=None)
def test_any_bytes_are_a_body_or_a_wire_error(kind: Any, data: bytes) -> None:
    with suppress(WireError):
        value = decode_json(data, kind)
        assert decode_json(encode_json(value), kind) == value
        assert msgspec.json.decode(encode_json(value, standard=True)) is not None


@given(st.sampled_from(ANY_KIND), damaged(tuple(body.data for body in golden_bodies())))
@settings(deadline=None)
def test_the_fast_and_the_tolerant_path_agree(kind: Any, data: bytes) -> None:
    with suppress(WireError):
        assert decode_json(data, kind) == coerce(kind, parse(data))
