"""Record prefixes: uniform records, which are gathered with their bodies, and other records among them."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.arrow import record_prefixes
from ariane.arrow.decode import decode_records
from ariane.arrow.filter import OffsetRange, Selection
from ariane.arrow.gather import ByteGatherer
from ariane.arrow.record_prefixes import gather_prefixes
from ariane.arrow.schema import COLUMNS
from ariane.model.message import StoredMessage
from ariane.wire.compression import compress
from ariane.wire.record.layout import encode
from ariane.wire.record.numpy_fields import HEAD_BYTES
from ariane.wire.record.read import decode_all
from ariane.wire.sys_flag import Compression, with_compression
from tests.arrow.expected_rows import expected_row, rows_of
from tests.wire.sample_records import MESSAGE, V6

COUNT = 100
ODD = 37
"""Not one of the samples."""
USUAL = replace(MESSAGE, topic="orders", body=b"0123456789")
PACKED = with_compression(0, Compression.ZLIB)
OTHERS = [
    replace(USUAL, body=b"9876543210"),
    replace(USUAL, body=b"longer than others"),
    replace(USUAL, body=b""),
    replace(USUAL, body=bytes(1000)),
    replace(USUAL, topic="orderS"),
    replace(USUAL, topic="payments"),
    replace(USUAL, topic="t" * 200),
    replace(USUAL, properties={}),
    replace(USUAL, properties={"k": "v" * 30_000}),
    replace(USUAL, born_host=V6),
    replace(USUAL, body=compress(b"a", Compression.ZLIB), sys_flag=PACKED),
]


def check_all_columns(sent: list[StoredMessage]) -> None:
    log = b"".join(map(encode, sent))
    result = decode_records(log, columns=tuple(COLUMNS))
    assert rows_of(result.batch) == [expected_row(message) for message in decode_all(log)]
    assert result.bad == []


@pytest.mark.parametrize("topic", ["t", "topic", "orders", "topic-7", "topic-of-some-12", "t" * 127, "日本"])
@pytest.mark.parametrize("body", [b"b", b"0123456789", bytes(192), bytes(193)])
def test_a_log_of_one_topic_and_bodies_of_one_length(topic: str, body: bytes) -> None:
    check_all_columns([replace(USUAL, topic=topic, body=body, queue_id=number) for number in range(COUNT)])


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("index", [0, ODD, COUNT - 1])
def test_one_record_of_another_shape(other: StoredMessage, index: int) -> None:
    sent = [USUAL] * COUNT
    sent[index] = other
    check_all_columns(sent)


@settings(deadline=None)
@given(st.lists(st.just(USUAL) | st.sampled_from(OTHERS), min_size=1, max_size=40))
def test_any_mixture_equals_the_row_decoder(sent: list[StoredMessage]) -> None:
    check_all_columns(sent)


@pytest.mark.parametrize("at_once", [1024, 1 << 20])
@pytest.mark.parametrize("length", [0, 10, 193])
def test_headers_of_many_records_are_split_into_columns(
    at_once: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps; rarely used fields are gathered on first use."""
    monkeypatch.setattr(record_prefixes, "_BYTES_PER_STEP", at_once)
    monkeypatch.setattr(record_prefixes, "_SMALL_HEADERS_BYTES", 0)
    numbers = range(COUNT)
    sent = [replace(USUAL, body=bytes(length), queue_id=n, queue_offset=n, flag=n, reconsume_times=n) for n in numbers]
    check_all_columns(sent)
    check_all_columns([replace(message, topic=f"topic-{message.flag}") for message in sent])
    log = b"".join(map(encode, sent))
    result = decode_records(
        log, columns=tuple(COLUMNS), selection=Selection(ranges=(OffsetRange("orders", ODD, 0, COUNT),))
    )
    assert rows_of(result.batch) == [expected_row(decode_all(log)[ODD])]


def test_uniform_records_are_gathered_with_bodies_and_others_without() -> None:
    record = encode(USUAL)
    shape, longer = record * COUNT, record * COUNT + encode(OTHERS[1])
    positions = np.arange(COUNT) * len(record)
    assert gather_prefixes(ByteGatherer(shape), positions, len(shape)).uniform is not None
    unlike = gather_prefixes(ByteGatherer(longer), np.append(positions, len(shape)), len(longer))
    assert unlike.uniform is None


@pytest.mark.parametrize("limit", [-1, -40])
def test_a_truncated_record_is_left_whatever_the_others_are(limit: int) -> None:
    record = encode(USUAL)
    result = decode_records((record * COUNT)[:limit], columns=["body"], partial=True)
    assert (result.batch.num_rows, result.bad, result.end) == (COUNT - 1, [], (COUNT - 1) * len(record))


BODY_END = HEAD_BYTES + len(USUAL.body)
DAMAGE: dict[str, Callable[[bytearray], None]] = {
    "magic number": lambda record: record.__setitem__(7, 0),
    "size": lambda record: record.__setitem__(3, record[3] + 1),
    "length of the body": lambda record: record.__setitem__(HEAD_BYTES - 1, 9),
    "negative length of the body": lambda record: record.__setitem__(HEAD_BYTES - 4, 0x80),
    "length of the topic": lambda record: record.__setitem__(BODY_END, 5),
    "negative length of the topic": lambda record: record.__setitem__(BODY_END, 0x86),
    "topic": lambda record: record.__setitem__(BODY_END + 1, 0xFF),
    "length of the properties": lambda record: record.__setitem__(BODY_END + 8, 0),
    "negative length of the properties": lambda record: record.__setitem__(BODY_END + 7, 0x80),
}


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("index", [0, ODD, COUNT - 1])
def test_one_damaged_record_is_reported_and_the_others_are_rows(what: str, index: int) -> None:
    damaged = bytearray(encode(USUAL))
    DAMAGE[what](damaged)
    records = [encode(replace(USUAL, queue_id=number)) for number in range(COUNT)]
    records[index] = bytes(damaged)
    result = decode_records(b"".join(records), columns=["queueId", "body", "topic"])
    assert result.batch["queueId"].to_pylist() == [number for number in range(COUNT) if number != index]
    assert [(bad.position, bad.size) for bad in result.bad] == [(index * len(damaged), len(damaged))]


@pytest.mark.parametrize("length", [0x80, 0xFF])
def test_a_topic_that_is_too_long_in_every_record_is_bad(length: int) -> None:
    record = bytearray(encode(replace(USUAL, topic="t" * 127, properties={"k": "v" * 200})))
    record[BODY_END] = length
    record[BODY_END + 1 + length : BODY_END + 3 + length] = (len(record) - BODY_END - 3 - length).to_bytes(2)
    result = decode_records(bytes(record) * COUNT, columns=["topic"])
    assert result.batch.num_rows == 0
    assert result.bad


def test_a_selection_of_uniform_records_keeps_each_body_with_its_row() -> None:
    sent = [replace(USUAL, body=b"body %05d" % number, queue_id=number % 4) for number in range(COUNT)]
    wanted = Selection(queue_ids=frozenset({1, 2}), topics=frozenset({"orders"}))
    result = decode_records(b"".join(map(encode, sent)), columns=["topic", "body", "queueId"], selection=wanted)
    expected = [(m.topic, m.body, m.queue_id) for m in sent if m.queue_id in (1, 2)]
    assert [tuple(row.values()) for row in result.batch.to_pylist()] == expected


def test_a_batch_of_a_topic_is_not_changed_by_the_next_one() -> None:
    few, many = encode(USUAL) * 3, encode(USUAL) * 300
    first = decode_records(few, columns=["topic"]).batch
    second = decode_records(many, columns=["topic"]).batch
    third = decode_records(encode(replace(USUAL, topic="others")) * 5, columns=["topic"]).batch
    assert [set(batch["topic"].to_pylist()) for batch in (first, second, third)] == [{"orders"}, {"orders"}, {"others"}]
    assert [batch.num_rows for batch in (first, second, third)] == [3, 300, 5]
