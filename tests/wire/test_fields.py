"""Header fields: names on the wire, text values, tolerant numbers, and required fields."""

import pytest

from ariane.errors import FieldError, HeaderError
from ariane.wire.fields import Request, Response, from_ext, from_json, to_ext, wire_name
from ariane.wire.requests.offsets import GetMaxOffset
from ariane.wire.requests.send import SendResponse


def test_names_are_camel_case_on_the_wire_and_other_attributes_have_impossible_names() -> None:
    assert wire_name("queue_id") == "queueId"
    assert wire_name("topic") == "topic"
    assert wire_name("body") not in ("body", "")


def test_values_are_text_and_none_is_omitted() -> None:
    response = SendResponse(msg_id="7F", queue_id=3, queue_offset=12)  # type: ignore[arg-type]
    assert to_ext(response) == {
        "msgId": "7F", "queueId": "3", "queueOffset": "12", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
    }  # fmt: skip


@pytest.mark.parametrize("ext", ['{"topic":"T","queueId":"4"}', '{"topic":"T","queueId":4,"more":"ignored"}',
                                 '{"topic":"T","queueId":"004"}', '{"topic":"T","queueId":" 4"}'])  # fmt: skip
def test_every_way_to_write_a_number_is_read(ext: str) -> None:
    assert from_json(GetMaxOffset, ext.encode()) == GetMaxOffset("T", 4)


@pytest.mark.parametrize("number", ["2147483648", "-2147483649", "9" * 30, "4.5", "four", "", "1e400"])
def test_a_number_beyond_javas_range_is_refused_with_its_name(number: str) -> None:
    with pytest.raises(FieldError, match="queueId"):
        from_ext(GetMaxOffset, {"topic": "T", "queueId": number})
    with pytest.raises(FieldError, match="queueId"):
        from_json(GetMaxOffset, b'{"topic":"T","queueId":"%b"}' % number.encode())


def test_a_missing_required_field_is_named() -> None:
    with pytest.raises(FieldError, match="topic"):
        from_ext(GetMaxOffset, {"queueId": "1"})


def test_fields_that_are_not_an_object_are_refused() -> None:
    with pytest.raises(HeaderError):
        from_json(GetMaxOffset, b"[1]")


def test_a_peer_cannot_set_attributes_that_are_not_header_fields() -> None:
    class Ask(Request[Response], frozen=True):
        topic: str
        body: bytes = b""

    assert from_json(Ask, b'{"topic":"T","body":"x","code":1,"remark":"x"}') == Ask("T")
