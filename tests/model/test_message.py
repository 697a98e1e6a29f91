"""Messages: keys in both forms, reserved properties, and the properties of a stored message."""

from ipaddress import IPv4Address, IPv6Address

import pytest

from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import (
    RESERVED_PROPERTIES,
    HostPort,
    Message,
    MessageFields,
    Property,
    StoredMessage,
    split_keys,
)

HOST = HostPort(IPv4Address("10.0.0.7"), 10911)


def stored(**properties: str) -> StoredMessage:
    return StoredMessage(
        topic="orders",
        body=b"b",
        queue_id=0,
        queue_offset=QueueOffset(0),
        physical_offset=PhysicalOffset(0),
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=HOST,
        store_timestamp_ms=0,
        store_host=HOST,
        properties=properties,
    )


@pytest.mark.parametrize("keys", ["k1 k2", " k1  k2 ", ("k1", "k2"), ["k1", "k2"]])
def test_keys_are_a_string_with_spaces_or_a_sequence(keys: str | list[str]) -> None:
    assert Message(topic="orders", body=b"", keys=keys).key_list == ("k1", "k2")


def test_a_key_of_a_sequence_is_not_split() -> None:
    assert Message(topic="orders", body=b"", keys=["order 17"]).key_list == ("order 17",)


def test_a_message_without_keys_has_none() -> None:
    assert Message(topic="orders", body=b"").key_list == ()
    assert split_keys("") == ()


def test_a_stored_message_reads_tags_keys_and_unique_key_from_its_properties() -> None:
    message = stored(TAGS="paid", KEYS="k1 k2", UNIQ_KEY="7F0000010001")
    assert (message.tags, message.keys, message.unique_key) == ("paid", ("k1", "k2"), "7F0000010001")


def test_a_stored_message_without_properties_has_no_tags_keys_or_unique_key() -> None:
    message = stored()
    assert (message.tags, message.keys, message.unique_key) == (None, (), None)


def test_reserved_properties_are_the_values_not_the_names_of_the_constants() -> None:
    assert Property.REAL_QUEUE_ID == "REAL_QID"
    assert {"KEYS", "TAGS", "DELAY", "UNIQ_KEY", "REAL_QID", "__SHARDINGKEY"} <= RESERVED_PROPERTIES
    assert "REAL_QUEUE_ID" not in RESERVED_PROPERTIES
    assert len(RESERVED_PROPERTIES) == 37


def test_the_keyword_arguments_of_a_message_are_its_optional_fields() -> None:
    assert set(MessageFields.__annotations__) == set(Message.__struct_fields__) - {"topic", "body"}


def test_a_host_is_written_with_brackets_only_for_ipv6() -> None:
    assert str(HOST) == "10.0.0.7:10911"
    assert str(HostPort(IPv6Address("::1"), 10911)) == "[::1]:10911"
