"""`scan_simple_records` gives the same as one record at a time, and stops at records of another layout."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.errors import RecordError
from ariane.model.ids import PhysicalOffset
from ariane.model.system_topics import SCHEDULE
from ariane.store.commit_log.recovery import RECORDS_MAX, SimpleRecords, scan_simple_records
from ariane.wire.record.layout import RECORD_BYTES_MAX, add_checksum, encode, pack_record, with_checksum_room
from ariane.wire.record.read import DispatchFacts, RecordView, verify
from tests.wire.sample_records import MESSAGE, V6, plain_messages

BASE = 1_000_000
HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])

_pieces = st.sampled_from(
    [
        b"TAGS",
        b"KEYS",
        b"UNIQ_KEY",
        b"TAG",
        b"S",
        b"\x01",
        b"\x02",
        b"a",
        b"b c",
        b" ",
        b"\0",
        b"\xc3\xa4",
        b"\xc3",
        b"\xa4",
    ]
)
_texts = st.lists(_pieces, max_size=12).map(b"".join)


def record(at: int, properties: bytes = b"", **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "topic": b"orders", "body": b"a body", "properties": properties, "queue_id": 3, "flag": 0, "queue_offset": 7,
        "physical_offset": BASE + at, "sys_flag": 0, "born_timestamp_ms": 1, "born_host": HOST,
        "store_timestamp_ms": 2, "store_host": HOST, **changes,
    }  # fmt: skip
    return pack_record(**fields)


def log_of(*properties: bytes, **changes: Any) -> bytes:
    log = b""
    for text in properties:
        log += record(len(log), text, **changes)
    return log


def read(log: bytes, position: int = 0) -> SimpleRecords | None:
    return scan_simple_records(memoryview(log), position, BASE, RECORD_BYTES_MAX)


def one_by_one(log: bytes, count: int) -> Iterator[tuple[Any, ...]]:
    position = 0
    for _ in range(count):
        view = verify(log, position)
        assert isinstance(view, RecordView), view
        assert view.physical_offset == BASE + position
        facts = facts_of(view)
        keys = (facts.unique_key, *facts.keys) if facts.unique_key else tuple(facts.keys)
        yield (
            view.physical_offset, view.size, view.topic, view.queue_id, view.queue_offset, view.sys_flag,
            view.store_timestamp_ms, facts.tags_code, keys,
        )  # fmt: skip
        position += view.size


def facts_of(view: RecordView) -> DispatchFacts:
    try:
        return view.dispatch_facts()
    except RecordError:
        pytest.fail("a record whose text is not UTF-8 is not simple")


def together(batch: SimpleRecords) -> list[tuple[Any, ...]]:
    lists = (
        batch.physical, batch.sizes, batch.topics, batch.queue_ids, batch.queue_offsets, batch.sys_flags,
        batch.timestamps_ms, batch.facts.tags_codes, map(tuple, batch.facts.keys),
    )  # fmt: skip
    return list(zip(*lists, strict=True))


def assert_equal(log: bytes) -> int:
    """How many were taken together; they are what they are one by one."""
    batch = read(log)
    if batch is None:
        return 0
    taken = together(batch)
    assert taken == list(one_by_one(log, len(taken)))
    assert batch.end == sum(size for _, size, *_ in taken)
    return len(taken)


def is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


@given(st.lists(_texts, min_size=1, max_size=8))
def test_any_property_text_says_the_same(texts: list[bytes]) -> None:
    taken = assert_equal(log_of(*texts))
    assert taken == len(texts) or not all(map(is_text, texts))
    assert all(map(is_text, texts[:taken]))


@given(st.lists(plain_messages, min_size=1, max_size=6))
def test_any_message_is_the_same(messages: list[Any]) -> None:
    log = b""
    for message in messages:
        log += encode(replace(message, physical_offset=PhysicalOffset(BASE + len(log))))
    assert_equal(log)


@given(st.data())
def test_a_damaged_record_is_never_taken(data: st.DataObject) -> None:
    texts = [b"TAGS\x01a\x02KEYS\x01k1 k2\x02", b"", b"UNIQ_KEY\x01U\x02", b"KEYS\x01k\x02"]
    log = bytearray(log_of(*texts))
    for _ in range(data.draw(st.integers(1, 3))):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    assert_equal(bytes(log[: data.draw(st.integers(0, len(log)))]))


def test_simple_records_are_scanned_all_at_once() -> None:
    texts = [f"KEYS\x01k{number}\x02TAGS\x01t{number % 3}\x02".encode() for number in range(RECORDS_MAX + 10)]
    log = log_of(*texts)
    assert assert_equal(log) == RECORDS_MAX
    first = read(log)
    assert first is not None
    rest = read(log, first.end)
    assert rest is not None
    assert [tuple(keys) for keys in rest.facts.keys] == [
        (f"k{number}",) for number in range(RECORDS_MAX, RECORDS_MAX + 10)
    ]
    assert rest.end == len(log)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"born_host": bytes(20)}, id="IPv6"),
        pytest.param({"topic": b"t" * 130}, id="a long topic"),
        pytest.param({"topic": b"b\xfccher"}, id="a topic that is no text"),
        pytest.param({"topic": SCHEDULE.encode()}, id="a delayed message"),
        pytest.param({"properties": b"TAGS\x01\xff\x02"}, id="properties that are no text"),
        pytest.param({"properties": b"TAGS\x01lost\0\0\0"}, id="the end of a page that was lost"),
        pytest.param({"physical_offset": 5}, id="a record that belongs elsewhere"),
    ],
)
def test_records_are_scanned_up_to_one_of_another_layout(fields: dict[str, Any]) -> None:
    log = log_of(b"", b"KEYS\x01a\x02")
    log += record(len(log), **fields)
    behind = len(log)
    log += record(len(log))
    assert assert_equal(log) == 2
    assert read(log, behind) is not None
    first_of_all = record(0, **fields)
    assert read(first_of_all + record(len(first_of_all))) is None


def test_a_character_that_two_texts_share_is_in_neither() -> None:
    umlaut = "ä".encode()
    assert assert_equal(log_of(b"KEYS\x01a\x02", b"KEYS\x01" + umlaut[:1], umlaut[1:] + b"\x02")) == 1
    assert assert_equal(log_of(b"KEYS\x01" + umlaut + b"\x02", "TAGS\x01grün".encode(), topic="bücher".encode())) == 2


def test_a_record_checksum_is_checked() -> None:
    checksummed = add_checksum(record(0, with_checksum_room(b"KEYS\x01k\x02")))
    log = checksummed + record(len(checksummed))
    assert assert_equal(log) == 2
    other_time = log[:47] + b"\x09" + log[48:]  # the body's own checksum does not see it
    assert read(other_time) is None


def test_prepared_and_ipv6_hosts_and_wild_numbers_keep_their_fields() -> None:
    message = replace(MESSAGE, physical_offset=PhysicalOffset(BASE), sys_flag=0x4, queue_offset=-1)
    assert assert_equal(encode(message)) == 1
    assert assert_equal(encode(replace(message, store_host=V6))) == 0


def test_nothing_is_read_behind_the_buffer() -> None:
    log = log_of(b"", b"KEYS\x01a\x02")
    for end in range(len(log)):
        batch = read(log[:end])
        assert (batch is None) == (end < len(record(0)))
