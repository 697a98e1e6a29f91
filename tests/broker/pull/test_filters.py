from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.pull.filters import MATCH_ALL, MessageFilter, filter_of, is_tag_type, subscription_of
from ariane.errors import ExpressionError, RequestFailed
from ariane.model.group import Subscription
from ariane.model.message import HostPort
from ariane.wire.codes import ResponseCode
from ariane.wire.hashes import tags_code
from ariane.wire.host import encode_host
from ariane.wire.properties import encode_properties
from ariane.wire.record.layout import pack_record

HOST = encode_host(HostPort(IPv4Address("127.0.0.1"), 10911))


def record(properties: bytes) -> memoryview:
    data = pack_record(
        topic=b"orders",
        body=b"a body that nobody reads",
        properties=properties,
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp_ms=1,
        born_host=HOST,
        store_timestamp_ms=2,
        store_host=HOST,
    )
    return memoryview(data)


def tagged(expression: str | None) -> MessageFilter:
    return filter_of(subscription_of("orders", expression, None), property_filter=False)


def sql(expression: str) -> MessageFilter:
    return filter_of(subscription_of("orders", expression, "SQL92"), property_filter=True)


# --- tags -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_expression_is_all_messages(expression: str | None) -> None:
    assert subscription_of("orders", expression, None) == Subscription(topic="orders", sub_string="*")
    assert tagged(expression) is MATCH_ALL
    assert MATCH_ALL.matches(0, None)


def test_tags_are_split_and_hashed() -> None:
    subscription = subscription_of("orders", " TagA||TagB  || TagA|| ", "TAG", version=7)
    assert subscription.tags_set == ["TagA", "TagB"]
    assert subscription.code_set == [tags_code("TagA"), tags_code("TagB")]
    assert subscription.sub_version == 7
    assert subscription.sub_string == " TagA||TagB  || TagA|| "


def test_a_tag_filter_compares_hashes_of_the_queue() -> None:
    chosen = tagged("TagA || TagB")
    assert chosen.matches(tags_code("TagB"), None)
    assert not chosen.matches(tags_code("TagC"), None)
    assert not chosen.matches(0, None)  # a message without a tag
    assert chosen.record_match is None


def test_hashes_are_signed() -> None:
    assert tags_code("EU-WEST") < 0
    assert tagged("EU-WEST").matches(tags_code("EU-WEST"), None)


def test_two_tags_with_one_hash_both_pass() -> None:
    assert tagged("Aa").matches(tags_code("BB"), None)


def test_a_heartbeat_without_codes_is_read_by_its_expression() -> None:
    chosen = filter_of(Subscription(topic="orders", sub_string="TagA || TagB"), property_filter=True)
    assert chosen.matches(tags_code("TagA"), None)
    assert not chosen.matches(tags_code("TagC"), None)


def test_a_list_of_tags_has_a_limit() -> None:
    """It is read again with each pull, on the event loop."""
    tags = "||".join(f"tag-{number}" for number in range(100_000))
    with pytest.raises(ExpressionError, match="at most 32768"):
        filter_of(Subscription(topic="orders", sub_string=tags), property_filter=True)


@pytest.mark.parametrize("expression", ["||", " || || ", " "])
def test_an_expression_without_a_tag_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError, match="no tag in the expression"):
        subscription_of("orders", expression, "TAG")


@given(st.lists(st.text(st.characters(exclude_characters="|", codec="utf-8"), min_size=1).map(str.strip), min_size=1))
def test_every_tag_that_is_asked_for_passes(tags: list[str]) -> None:
    wanted = [tag for tag in tags if tag and tag != "*"]
    for tag in wanted:
        assert tagged(" || ".join(wanted)).matches(tags_code(tag), None)


# --- properties -------------------------------------------------------------------------------------------------------


def test_sql_reads_the_properties_of_the_record() -> None:
    chosen = sql("price > 5 AND TAGS = 'TagA'")
    assert chosen.tag_match is None
    assert chosen.matches(0, record(encode_properties({"price": "6", "TAGS": "TagA"})))
    assert not chosen.matches(0, record(encode_properties({"price": "5", "TAGS": "TagA"})))
    assert not chosen.matches(0, record(b""))


def test_without_the_record_a_message_may_match() -> None:
    assert sql("price > 5").matches(0, None)


def test_a_record_that_cannot_be_read_does_not_match() -> None:
    chosen = sql("price IS NULL")
    assert chosen.matches(0, record(b""))
    assert not chosen.matches(0, memoryview(b"no record"))
    assert not chosen.matches(0, record(b"price\x01\xff\x02"))


def test_a_bad_expression_is_refused_where_it_enters() -> None:
    for expression in (None, "", "price >"):
        with pytest.raises(ExpressionError):
            subscription_of("orders", expression, "SQL92")
    with pytest.raises(ExpressionError):
        filter_of(Subscription(topic="orders", sub_string="price >", expression_type="SQL92"), property_filter=True)


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ExpressionError, match="neither TAG nor SQL92"):
        subscription_of("orders", "x", "XPATH")
    with pytest.raises(ExpressionError, match="neither TAG nor SQL92"):
        filter_of(Subscription(topic="orders", sub_string="x", expression_type="XPATH"), property_filter=True)


def test_sql_is_refused_where_it_is_switched_off() -> None:
    with pytest.raises(RequestFailed, match="enablePropertyFilter=true") as caught:
        filter_of(subscription_of("orders", "a = 1", "SQL92"), property_filter=False)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_a_filter_is_made_once() -> None:
    assert sql("price > 6") is sql("price > 6")


def test_long_expressions_work_too() -> None:
    text = " OR ".join(f"a = {number}" for number in range(300))
    assert sql(text).matches(0, record(encode_properties({"a": "299"})))


def test_a_class_filter_is_left_to_the_client() -> None:
    subscription = Subscription(topic="orders", sub_string="some.Class", class_filter_mode=True)
    assert filter_of(subscription, property_filter=False) is MATCH_ALL


@pytest.mark.parametrize(("expression_type", "is_tag"), [(None, True), ("", True), ("TAG", True), ("SQL92", False)])
def test_no_type_means_tags(expression_type: str | None, is_tag: bool) -> None:
    assert is_tag_type(expression_type) is is_tag
