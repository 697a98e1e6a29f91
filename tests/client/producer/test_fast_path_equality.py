"""The fast path encodes simple messages as the general path does, and leaves all others to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.client.consumer.pull_request import PullTemplate
from ariane.client.producer.fast_path import SendTemplate, encode_keys_and_tags, encode_simple_properties
from ariane.client.producer.message import prepare_uncompressed
from ariane.client.producer.request import Single
from ariane.client.producer.settings import ProducerSettings
from ariane.errors import MessageRejected
from ariane.model.ids import QueueOffset
from ariane.model.message import Message
from ariane.model.route import MessageQueue
from ariane.wire.exchange import request_command
from ariane.wire.frame import FRAME_BYTES_MAX, encode_frame
from ariane.wire.requests.pull import PullMessage

SETTINGS = ProducerSettings(group="pg")
KEY = "7F0000016DF8C21669094EDCC1000000"
BELOW = 4096
words = st.text(max_size=6)
names = st.sampled_from(["colour", "TAGS", "KEYS", "WAIT", "size", "", " ", "a\x01b"]) | words
plain = st.builds(
    Message,
    topic=st.sampled_from(["orders", "%RETRY%group", "", "a b", "SCHEDULE_TOPIC_XXXX"]),
    body=st.sampled_from([b"", b"x", b"x" * 5000]),
    tags=st.none() | words | st.sampled_from(["a||b", "paid"]),
    keys=words | st.lists(words, max_size=3) | st.sampled_from(["order-1", "a b"]),
    properties=st.dictionaries(names, words, max_size=3),
    wait_stored=st.booleans(),
    flag=st.sampled_from([0, 9]),
)


def general_text(message: Message) -> str | None:
    try:
        return prepare_uncompressed(message, KEY, SETTINGS).properties
    except MessageRejected:
        return None


@given(plain)
def test_fast_path_properties_equal_those_of_the_general_path(message: Message) -> None:
    text = encode_simple_properties(message, BELOW)
    if text is not None:
        assert f"{text}UNIQ_KEY\x01{KEY}\x02" == general_text(message)


@given(words | st.lists(words, max_size=3) | st.sampled_from(["order-1", "a b"]), st.none() | words)
def test_keys_and_tags_equal_those_of_the_general_path(keys: str | list[str], tags: str | None) -> None:
    text = encode_keys_and_tags(keys, tags)
    if text is not None:
        general = general_text(Message(topic="orders", body=b"x", keys=keys, tags=tags))
        assert f"{text}WAIT\x01true\x02UNIQ_KEY\x01{KEY}\x02" == general


@pytest.mark.parametrize(("keys", "tags"), [(5, None), ({"a"}, None), ([["a"]], None), ("", 5), ("k", ["a"])])
def test_keys_and_tags_of_other_types_are_left_to_the_general_path(keys: object, tags: object) -> None:
    assert encode_keys_and_tags(keys, tags) is None


@pytest.mark.parametrize(
    "message",
    [
        Message(topic="orders", body=b"x"),
        Message(topic="orders", body=b"x", keys="order-1", tags="paid"),
        Message(topic="orders", body=b"x", keys=["order-1"], properties={"colour": "dark red"}, wait_stored=False),
        Message(topic="orders", body=b"x", keys="Bestellung-Ä", tags="支付"),
    ],
)
def test_ordinary_messages_are_simple(message: Message) -> None:
    assert encode_simple_properties(message, BELOW) is not None


@pytest.mark.parametrize(
    "message",
    [
        Message(topic="orders", body=b""),
        Message(topic="orders", body=b"x" * BELOW),
        Message(topic="orders", body="text"),  # type: ignore[arg-type]
        Message(topic="%RETRY%group", body=b"x"),
        Message(topic="SCHEDULE_TOPIC_XXXX", body=b"x"),
        Message(topic="orders", body=b"x", delay_level=3),
        Message(topic="orders", body=b"x", deliver_at=1),
        Message(topic="orders", body=b"x", sharding_key="s"),
        Message(topic="orders", body=b"x", flag=1),
        Message(topic="orders", body=b"x", keys="a b"),
        Message(topic="orders", body=b"x", keys=["a", "b"]),
        Message(topic="orders", body=b"x", keys=[1]),  # type: ignore[list-item]
        Message(topic="orders", body=b"x", tags="a||b"),
        Message(topic="orders", body=b"x", tags="\x02"),
        Message(topic="orders", body=b"x", properties={"TAGS": "a"}),
        Message(topic="orders", body=b"x", properties={"colour": " "}),
        Message(topic="orders", body=b"x", properties={"colour": 7}),  # type: ignore[dict-item]
        Message(topic="orders", body=b"x", properties={"colour": "x" * 9000}),
    ],
)
def test_messages_for_the_general_path_are_not_simple(message: Message) -> None:
    assert encode_simple_properties(message, BELOW) is None


@given(st.text(max_size=40), st.binary(min_size=1, max_size=40), st.integers(1, 2**31 - 1), st.integers(0, 2**62))
def test_a_send_from_the_template_equals_that_of_the_general_path(
    text: str, body: bytes, opaque: int, now_ms: int
) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    queue = MessageQueue(topic="100%-orders", broker_name="a", queue_id=3)
    prepared = prepare_uncompressed(Message(topic="orders", body=body), KEY, SETTINGS)
    request = Single(prepared).wire_request(queue, SETTINGS, now_ms)
    general = type(request)(
        **{name: getattr(request, name) for name in request.__struct_fields__}
        | {"topic": queue.topic, "properties": text}
    )
    frame = SendTemplate(queue, SETTINGS, unit_mode=False).frame(opaque, now_ms, text, body)
    assert frame == encode_frame(request_command(general, opaque=opaque))


def test_a_send_too_large_for_a_frame_is_left_to_the_general_path() -> None:
    queue = MessageQueue(topic="orders", broker_name="a", queue_id=3)
    assert SendTemplate(queue, SETTINGS, unit_mode=False).frame(1, 1, "", bytes(FRAME_BYTES_MAX)) is None


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**62), st.integers(0, 31), st.integers(0, 2**62))
def test_a_pull_from_the_template_equals_that_of_the_general_path(
    opaque: int, offset: int, flags: int, commit: int
) -> None:
    request = PullMessage(
        consumer_group="group",
        topic="orders",
        queue_id=3,
        queue_offset=QueueOffset(offset),
        max_msg_nums=32,
        sys_flag=flags,
        commit_offset=QueueOffset(commit),
        suspend_timeout_millis=15_000,
        sub_version=17,
        subscription="a || b",
        expression_type="TAG",
    )
    frame = PullTemplate(request).frame(opaque, offset, flags, commit)
    assert frame == encode_frame(request_command(request, opaque=opaque))
