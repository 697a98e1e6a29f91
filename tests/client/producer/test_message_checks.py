"""Messages that can never be sent are rejected with cause and hint."""

from datetime import UTC, datetime

import pytest

from ariane.client.producer.message import check_message
from ariane.errors import MessageRejected
from ariane.model.message import Message


def message(**changes: object) -> Message:
    return Message(**({"topic": "T", "body": b"x"} | changes))  # type: ignore[arg-type]


def test_a_plain_message_is_fine() -> None:
    check_message(message(tags="A", keys=["k1", "k2"], properties={"a": "1"}, sharding_key="s", delay_level=3))
    check_message(message(keys="k1 k2", deliver_at=datetime(2030, 1, 1, tzinfo=UTC)))
    check_message(message(topic="%RETRY%group", deliver_at=1_900_000_000_000))


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"topic": ""}, "the topic name is empty"),
        ({"topic": "a b"}, "may hold only letters"),
        ({"topic": "t" * 128}, "at most 127"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "belongs to the broker"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "belongs to the broker"),
        ({"body": b""}, "the body is empty"),
        ({"body": "text"}, "not bytes: encode it"),
        ({"body": b"x" * 101}, "101 bytes, at most 100"),
        ({"properties": {"TAGS": "a"}}, "reserved: use tags="),
        ({"properties": {"UNIQ_KEY": "a"}}, "reserved: choose another name"),
        ({"properties": {"a": "x\x01y"}}, "0x01 or 0x02"),
        ({"properties": {"a\x02": "x"}}, "0x01 or 0x02"),
        ({"properties": {"a": ""}}, "is blank"),
        ({"properties": {"": "x"}}, "not blank"),
        ({"properties": {"a": 1}}, "is int, not text"),
        ({"tags": "a||b"}, "one tag"),
        ({"tags": ""}, "is blank"),
        ({"keys": ["a b"]}, "blanks, which separate keys"),
        ({"keys": [""]}, "may not be empty"),
        ({"keys": ["a\x01"]}, "0x01 or 0x02"),
        ({"delay_level": -1}, "levels start at 1"),
        ({"delay_level": 1, "deliver_at": 5}, "choose one"),
        ({"deliver_at": datetime(2030, 1, 1)}, "no time zone"),
    ],
)
def test_a_message_that_can_never_be_sent_is_rejected_with_the_cause(changes: dict[str, object], cause: str) -> None:
    with pytest.raises(MessageRejected, match=cause):
        check_message(message(**changes), body_bytes_max=100)
