"""Annotated bytes: every byte in one field, in order, with the values that the decoders read."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.store.checkpoint import Checkpoint, write_checkpoint, write_mark
from ariane.store.consume_queue.entry import ENTRY as QUEUE
from ariane.store.disk import RealDisk
from ariane.store.index.entries import ENTRY as INDEX
from ariane.store.index.entries import HEADER
from ariane.store.offline.annotate import (
    INDEX_ENTRY,
    INDEX_HEADER,
    QUEUE_ENTRY,
    Field,
    annotate,
    annotate_checkpoint,
    time_text,
)
from ariane.store.offline.annotate_record import annotate_blank, annotate_record, show_sys_flag
from ariane.wire.record.layout import encode, pack_blank
from ariane.wire.record.read import BlankRecord, RecordView, verify, walk
from tests.wire.golden import golden_store
from tests.wire.sample_records import MESSAGE, V6, messages


def covers(fields: list[Field], raw: bytes, position: int) -> bool:
    """Whether the fields are these bytes, each of them once and in order."""
    for field in fields:
        if field.position != position or not field.raw:
            return False
        position += len(field.raw)
    return b"".join(field.raw for field in fields) == raw


def by_name(fields: list[Field]) -> dict[str, str]:
    return {field.name: field.value for field in fields}


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_every_byte_of_every_golden_record_is_in_one_field(name: str) -> None:
    log = golden_store(name).commit_log
    for view in walk(log):
        if isinstance(view, RecordView):
            raw = log[view.position : view.position + view.size]
            assert covers(annotate_record(raw, view, view.position), raw, view.position)
        elif isinstance(view, BlankRecord):
            raw = log[view.position : view.position + view.size]
            assert covers(annotate_blank(raw, view.position), raw, view.position)


@settings(deadline=None)
@given(messages, st.integers(0, 2**40))
def test_every_byte_of_any_record_is_in_one_field(message: object, position: int) -> None:
    assert isinstance(message, type(MESSAGE))
    raw = encode(message)
    view = verify(raw)
    assert isinstance(view, RecordView)
    assert covers(annotate_record(raw, view, position), raw, position)


def test_a_golden_record_is_reported_as_java_decoded_it() -> None:
    log, manifest = golden_store("clean")
    for message in manifest[::50]:
        position = message["physicalOffset"]
        view = verify(log, position)
        assert isinstance(view, RecordView)
        values = by_name(annotate_record(log[position : position + view.size], view, position))
        for name in ("queueId", "queueOffset", "physicalOffset", "flag", "reconsumeTimes", "preparedTransactionOffset"):
            assert values[name] == str(message[name])
        assert values["totalSize"] == str(message["storeSize"])
        assert values["topic"] == message["topic"]
        assert values["storeTimestamp"] == f"{message['storeTimestamp']} = {time_text(message['storeTimestamp'])}"
        assert values["bodyCRC"] == f"{message['bodyCRC']:#010x}, right"
        assert {name: values[f"property {name}"] for name in message["properties"]} == message["properties"]


def test_hosts_flags_and_compression_are_shown_in_words() -> None:
    raw = encode(replace(MESSAGE, born_host=V6))
    view = verify(raw)
    assert isinstance(view, RecordView)
    values = by_name(annotate_record(raw, view, 0))
    assert values["bornHost"] == "[fd00::2]:40000"
    assert values["sysFlag"] == "0x10 born_host_v6"
    assert values["body"] == "'hi'"
    assert show_sys_flag(0x301) == "0x301 zlib"
    assert show_sys_flag(0x28) == "0x28 commit store_host_v6"
    assert show_sys_flag(0x701) == "0x701"


def test_a_wrong_checksum_and_a_body_that_does_not_unpack_are_reported() -> None:
    raw = encode(replace(MESSAGE, sys_flag=1))
    view = verify(raw[:8] + b"\0\0\0\1" + raw[12:], check_body_crc=False)
    assert isinstance(view, RecordView)
    values = by_name(annotate_record(raw, view, 0))
    assert "wrong, the body has" in values["bodyCRC"]
    assert "damaged" in values["body"]


def test_properties_that_no_reader_sees_are_shown_as_such() -> None:
    raw = encode(MESSAGE)
    odd = raw.replace(b"TAGS\x01TagA\x02", b"TAGS\x02\xffagA\x02\x02"[:10])
    view = verify(odd)
    assert isinstance(view, RecordView)
    fields = annotate_record(odd, view, 0)
    assert covers(fields, odd, 0)
    assert sum("readers skip it" in field.meaning for field in fields) == 2


def test_a_blank_record_is_reported() -> None:
    values = by_name(annotate_blank(pack_blank(100) + bytes(92), 7))
    assert values == {"size": "100", "magic": "0xcbd43194 blank", "(unused)": "zeros"}


def test_entries_and_headers_are_reported() -> None:
    queue = QUEUE.pack(1010, 247, 2598919)
    assert covers(annotate(queue, 20, QUEUE_ENTRY), queue, 20)
    assert list(by_name(annotate(queue, 20, QUEUE_ENTRY)).values()) == ["1010", "247", "2598919"]
    extended = by_name(annotate(QUEUE.pack(0, 1, -(2**63) + 44), 0, QUEUE_ENTRY))
    assert extended["tagsCode"].endswith("unit at 44 of consumequeue_ext")
    index = INDEX.pack(1, 2, 3, 4)
    assert list(by_name(annotate(index, 0, INDEX_ENTRY)).values()) == ["1", "2", "3", "4"]
    header = HEADER.pack(1000, 2000, 3, 4, 5, 6)
    assert covers(annotate(header, 0, INDEX_HEADER), header, 0)
    assert by_name(annotate(header, 0, INDEX_HEADER))["beginTimestamp"] == "1000 = 1970-01-01T00:00:01.000Z"


def test_a_checkpoint_of_apaches_is_three_times_and_zeros() -> None:
    data = (1).to_bytes(8, "big") * 3 + bytes(4072)
    fields = annotate_checkpoint(data)
    assert covers(fields, data, 0)
    assert [field.name for field in fields] == ["physicTimestamp", "logicsTimestamp", "indexTimestamp", "(unused)"]


def test_a_checkpoint_of_ours_is_reported_slot_by_slot(tmp_path: Path) -> None:
    disk, path = RealDisk(), tmp_path / "checkpoint"
    first = write_checkpoint(disk, path, Checkpoint(flushed_to=100, dispatched_to=90))
    write_checkpoint(disk, path, first)
    file = disk.open(path, writable=True)
    write_mark(file, 95)
    file.close()
    data = path.read_bytes()
    fields = annotate_checkpoint(data)
    assert covers(fields, data, 0)
    values = by_name(fields)
    assert (values["A.sequence"], values["B.sequence"]) == ("2", "1")
    assert (values["A.flushedTo"], values["A.dispatchedTo"], values["mark.writtenTo"]) == ("100", "90", "95")
    assert all(values[name].endswith("right") for name in ("A.crc", "B.crc", "mark.crc"))
    damaged = by_name(annotate_checkpoint(data[:1040] + b"\1" + data[1041:]))
    assert damaged["A.crc"].endswith("wrong, so this part does not count")


def test_a_checkpoint_that_is_cut_short_is_all_unused() -> None:
    assert [field.name for field in annotate_checkpoint(b"abc")] == ["(unused)"]


@pytest.mark.parametrize(
    ("ms", "text"), [(0, ""), (1, "1970-01-01T00:00:00.001Z"), (-1, "1969-12-31T23:59:59.999Z"), (2**62, str(2**62))]
)
def test_times_are_reported_in_utc(ms: int, text: str) -> None:
    assert time_text(ms) == text


def test_no_value_breaks_out_of_json() -> None:
    raw = encode(replace(MESSAGE, body=b"\x1b[31m\xff\xfe"))
    view = verify(raw)
    assert isinstance(view, RecordView)
    for field in annotate_record(raw, view, 0):
        json.dumps([field.name, field.value, field.meaning]).encode("utf-8")
