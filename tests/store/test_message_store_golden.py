"""Whole stores that Apache RocketMQ 4.9.8 wrote, opened, read, extended and left so that Apache could go on."""

import hashlib
import struct
import tarfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.store.read.lookup import QUERY_MAX
from ariane.store.read.result import ReadStatus
from ariane.store.settings import StoreSettings
from ariane.testing import FakeClock
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.record.layout import BLANK_MAGIC
from ariane.wire.record.read import RecordView, verify
from tests.store.consume_queue.test_queues_golden import expected_queues
from tests.store.stores import HOST, draft, entries, put
from tests.wire.golden import FILE_BYTES, golden_store

ARCHIVES = Path(__file__).parent.parent / "golden"
COMPRESSED = 0x1
EVER = 2**62


@pytest.fixture(params=["clean", "killed"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(name: str, tmp_path: Path) -> Path:
    return extracted(name, tmp_path)


def extracted(name: str, directory: Path) -> Path:
    with tarfile.open(ARCHIVES / f"apache-4.9.8-{name}-store.tar.gz") as tar:
        tar.extractall(directory, filter="data")
    return directory / "store"


def opened(root: Path) -> MessageStore:
    settings = StoreSettings(
        root=root, segment_bytes=FILE_BYTES, queue_segment_bytes=2000, index_slots=1000, index_entries=4000
    )
    return MessageStore.open(settings, FakeClock(1_794_800_000_000), HOST)


def assert_is(record: memoryview | None, message: dict[str, Any]) -> None:
    """The record is the message that Java's client saw."""
    assert record is not None
    view = verify(record)
    assert isinstance(view, RecordView)
    body = view.body(record)
    body = zlib.decompress(body) if view.sys_flag & COMPRESSED else body
    assert hashlib.sha256(body).hexdigest() == message["bodySha256"]
    facts = view.topic, view.queue_id, view.queue_offset, view.physical_offset, view.size, view.store_timestamp_ms
    names = "topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "storeTimestamp"
    assert facts == tuple(message[name] for name in names)


def check_every_message(store: MessageStore, messages: tuple[dict[str, Any], ...]) -> None:
    assert len(messages) > 1500
    for message in messages:
        result = store.reader.read(message["topic"], message["queueId"], message["queueOffset"], 1)
        assert result.status is ReadStatus.FOUND
        assert_is(result.slices[0], message)
        assert_is(store.lookup.record_at(decode_offset_message_id(message["offsetMsgId"]).physical_offset), message)


def test_every_message_is_found_by_its_offset_and_its_id(name: str, root: Path) -> None:
    store = opened(root)
    check_every_message(store, golden_store(name).messages)
    store.close()


def by_key_word(name: str) -> dict[tuple[str, str], list[int]]:
    """The physical offsets of the messages that have a key, oldest first."""
    places: dict[tuple[str, str], list[int]] = {}
    for message in sorted(golden_store(name).messages, key=lambda message: message["physicalOffset"]):
        properties = message["properties"]
        for word in {*properties.get("KEYS", "").split(), properties.get("UNIQ_KEY")} - {None}:
            places.setdefault((message["topic"], word), []).append(message["physicalOffset"])
    return places


def test_every_message_is_found_by_each_of_its_keys(name: str, root: Path) -> None:
    store = opened(root)
    places = by_key_word(name)
    for (topic, word), offsets in places.items():
        found = [verify(record) for record in store.lookup.by_key(topic, word, QUERY_MAX, 0, EVER)]
        physical = [view.physical_offset for view in found if isinstance(view, RecordView)]
        assert physical == sorted(physical, reverse=True)
        assert set(offsets[-QUERY_MAX:]) <= set(physical), (topic, word)
    assert len(places) > 2500
    store.close()


def test_every_message_is_found_by_its_time(name: str, root: Path) -> None:
    store = opened(root)
    for message in golden_store(name).messages:
        topic, queue_id, stored_ms = message["topic"], message["queueId"], message["storeTimestamp"]
        offset = store.lookup.offset_by_time(topic, queue_id, stored_ms)
        assert offset <= message["queueOffset"]
        queue = store.components.queues.get(topic, queue_id)
        assert queue is not None
        assert store.lookup.store_time(queue, offset) == stored_ms
        assert offset == 0 or (store.lookup.store_time(queue, offset - 1) or 0) < stored_ms
    store.close()


def test_queues_are_apaches(name: str, root: Path) -> None:
    store = opened(root)
    assert {(queue.topic, queue.queue_id): entries(queue) for queue in store.components.queues} == expected_queues(name)
    store.close()


# --- what we leave behind ---------------------------------------------------------------------------------------------


def sizes(directory: Path) -> Counter[int]:
    return Counter(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def check_apaches_rules(root: Path) -> None:
    layout = Layout.under(root)
    assert set(sizes(layout.commit_log)) == {FILE_BYTES}
    assert set(sizes(layout.consume_queues)) == {2000}
    assert set(sizes(layout.index)) == {40 + 1000 * 4 + 4000 * 20}
    assert layout.checkpoint.stat().st_size == 4096
    assert min(struct.unpack_from(">qqq", layout.checkpoint.read_bytes())) > 1_794_777_979_000
    assert not layout.abort.exists()
    assert layout.lock.read_bytes() == b"lock"
    for path in sorted(layout.commit_log.iterdir())[:-1]:
        check_ends_in_a_blank(path.read_bytes())


def check_ends_in_a_blank(data: bytes) -> None:
    position = 0
    while isinstance(view := verify(data, position), RecordView):
        position += view.size
    assert struct.unpack_from(">iI", data, position) == (len(data) - position, BLANK_MAGIC)


def test_apache_could_go_on_after_us(name: str, root: Path) -> None:
    for _ in range(2):
        store = opened(root)
        put(store, *[draft(bytes(5000), topic="GoldenNormal", queue_id=n % 4, key=f"ours-{n}") for n in range(120)])
        store.close()
        check_apaches_rules(root)


def test_opening_and_closing_a_clean_store_changes_no_message_and_no_entry(tmp_path: Path) -> None:
    root = extracted("clean", tmp_path)
    before = content(root)
    for _ in range(2):
        store = opened(root)
        store.close()
    assert content(root) == before


def content(root: Path) -> dict[str, bytes]:
    rooms = ("commitlog", "consumequeue", "index", "config")
    files = (path for room in rooms for path in (root / room).rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_new_messages_continue_the_offsets_of_every_queue(name: str, root: Path) -> None:
    store = opened(root)
    ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.components.queues}
    for round_ in range(2):
        for (topic, queue_id), end in ends.items():
            (appended,) = put(store, draft(b"ours", topic=topic, queue_id=queue_id, key=f"ours-{round_}"))
            assert appended.queue_offset == end + round_
        store.close()
        store = opened(root)
    check_every_message(store, golden_store(name).messages)
    for (topic, queue_id), end in ends.items():
        assert len(store.reader.read(topic, queue_id, end, 32).slices) == 2
        assert len(store.lookup.by_key(topic, "ours-1", 64, 0, EVER)) >= 1
    store.close()
