"""Our reading of commit logs that Apache RocketMQ 4.9.8 wrote, against what its own Java client read from them."""

import hashlib
from typing import Any

import msgspec
import pytest

from ariane.model.message import Property, StoredMessage
from ariane.wire.compression import decompress
from ariane.wire.host import encode_host
from ariane.wire.message_id import decode_offset_message_id, offset_message_id
from ariane.wire.record.layout import encode, pack_record
from ariane.wire.record.read import BlankRecord, BrokenRecord, Fault, RecordView, decode, to_message, walk
from tests.wire.golden import FILE_BYTES, GoldenStore, golden_store


@pytest.fixture(params=["clean", "killed"])
def store(request: pytest.FixtureRequest) -> GoldenStore:
    return golden_store(request.param)


def as_java_tells(message: StoredMessage) -> dict[str, Any]:
    body = decompress(message.body, message.sys_flag, limit=64 * 1024)
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.unique_key,
        "offsetMsgId": offset_message_id(encode_host(message.store_host), message.physical_offset),
        "physicalOffset": message.physical_offset,
        "storeSize": message.stored_size,
        "bornTimestamp": message.born_timestamp_ms,
        "storeTimestamp": message.store_timestamp_ms,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
        "properties": message.properties,
    }


def repack(buffer: bytes, view: RecordView) -> bytes:
    """The record written anew from what was read, with the property text as it stood."""
    return pack_record(
        topic=view.topic.encode(),
        body=view.body(buffer),
        properties=view.property_text,
        queue_id=view.queue_id,
        flag=view.flag,
        queue_offset=view.queue_offset,
        physical_offset=view.physical_offset,
        sys_flag=view.sys_flag,
        born_timestamp_ms=view.born_timestamp_ms,
        born_host=view.born_host,
        store_timestamp_ms=view.store_timestamp_ms,
        store_host=view.store_host,
        reconsume_times=view.reconsume_times,
        prepared_transaction_offset=view.prepared_transaction_offset,
    )


def records(store: GoldenStore) -> list[RecordView]:
    return [verdict for verdict in walk(store.commit_log, check_crc=True) if isinstance(verdict, RecordView)]


def test_a_walk_finds_every_message_as_java_decoded_it(store: GoldenStore) -> None:
    found = {view.physical_offset: as_java_tells(to_message(store.commit_log, view)) for view in records(store)}
    for expected in store.messages:
        assert found[expected["physicalOffset"]] == expected


def test_a_message_is_found_by_the_offset_inside_its_id(store: GoldenStore) -> None:
    for expected in store.messages:
        message_id = decode_offset_message_id(expected["offsetMsgId"])
        assert str(message_id) == expected["offsetMsgId"]
        message = decode(store.commit_log, message_id.physical_offset, check_crc=True)
        assert message.unique_key == expected["msgId"]
        assert message.store_host == message_id.store_host


def test_a_walk_reads_the_whole_log_and_ends_at_the_zeros(store: GoldenStore) -> None:
    *whole, last = walk(store.commit_log, check_crc=True)
    assert isinstance(last, BrokenRecord)
    assert last.fault is Fault.EMPTY
    assert not any(store.commit_log[last.position :])
    assert all(isinstance(verdict, RecordView | BlankRecord) for verdict in whole)
    assert all(verdict.physical_offset == verdict.position for verdict in whole if isinstance(verdict, RecordView))


def test_blank_records_end_exactly_at_the_end_of_a_file(store: GoldenStore) -> None:
    blanks = [verdict for verdict in walk(store.commit_log) if isinstance(verdict, BlankRecord)]
    assert [blank.position + blank.size for blank in blanks] == [FILE_BYTES * (n + 1) for n in range(len(blanks))]
    assert len(blanks) >= 2


def test_every_record_written_anew_gives_the_same_bytes(store: GoldenStore) -> None:
    for view in records(store):
        assert repack(store.commit_log, view) == store.commit_log[view.position : view.position + view.size]


def test_every_decoded_message_encodes_to_the_same_record(store: GoldenStore) -> None:
    # Two liberties of 4.9.8 do not survive a dict: it leaves out the 0x02 behind the last property, where 4.7.1 and we
    # write it, and it appends the properties of a batch to each of its messages, so that WAIT stands there twice.
    for view in records(store):
        record = encode(to_message(store.commit_log, view))
        if view.topic == "GoldenBatch":
            assert view.property_text.count(b"WAIT\x01true") == 2
            assert decode(record).properties == view.properties()
        else:
            changed = msgspec.structs.replace(view, property_text=view.property_text + b"\x02")
            assert record == repack(store.commit_log, changed)


def test_the_system_topics_are_there_too() -> None:
    topics = {view.topic for view in records(golden_store("clean"))}
    assert {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"} <= topics


def test_the_facts_for_dispatch_are_those_of_the_messages(store: GoldenStore) -> None:
    facts = {view.physical_offset: view.dispatch_facts() for view in records(store)}
    for expected in store.messages:
        found = facts[expected["physicalOffset"]]
        assert found.unique_key == expected["msgId"]
        assert list(found.keys) == expected["properties"].get(Property.KEYS, "").split()
        assert (found.tags_code == 0) == (Property.TAGS not in expected["properties"])
