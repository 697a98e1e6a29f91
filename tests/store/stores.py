"""Small stores for tests: tiny files, so that every edge comes soon."""

from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from ariane.clock import Clock
from ariane.model.message import HostPort
from ariane.store.append.batch import BatchKeys, DraftBatch
from ariane.store.append.draft import Appended, Draft
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.disk import Disk
from ariane.store.message_store import MessageStore
from ariane.store.settings import FlushDiskType, StoreSettings
from ariane.testing import FakeClock
from ariane.wire.hashes import tags_code
from ariane.wire.host import encode_host
from ariane.wire.properties import encode_properties
from ariane.wire.record.read import RecordView, verify
from tests.simulation.simulated_disk import SimulatedDisk

ROOT = Path("/store")
HOST = encode_host(HostPort(IPv4Address("127.0.0.1"), 10911))
BOOT = "boot-1"


def small(root: Path = ROOT, **changes: object) -> StoreSettings:
    sizes = {
        "segment_bytes": 8192, "queue_segment_bytes": 200, "index_slots": 16, "index_entries": 64,
        "sum_block_bytes": 1000,
    }  # fmt: skip
    return StoreSettings(root=root, **{"flush_disk_type": FlushDiskType.SYNC, **sizes, **changes})  # type: ignore[arg-type]


def opened(disk: Disk, clock: Clock | None = None, boot: str = BOOT, **changes: object) -> MessageStore:
    return MessageStore.open(small(ROOT, **changes), clock or FakeClock(), HOST, disk=disk, boot=boot)


def opened_gated(disk: Disk, clock: Clock | None = None, boot: str = BOOT, **changes: object) -> MessageStore:
    """Whose messages are visible when they are confirmed; no epoch has begun."""
    return MessageStore.open(small(ROOT, **changes), clock or FakeClock(), HOST, disk=disk, boot=boot, gated=True)


def draft(body: bytes, topic: str = "orders", queue_id: int = 0, key: str = "", tag: str = "", **more: int) -> Draft:
    properties = {name: value for name, value in (("KEYS", key), ("TAGS", tag)) if value}
    return Draft(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=encode_properties(properties),
        born_timestamp_ms=1,
        born_host=HOST,
        tags_code=tags_code(tag or None),
        keys=(key,) if key else (),
        **more,
    )


def batch_of(*contents: bytes, **changes: object) -> DraftBatch:
    """A batch of messages with two keys each."""
    texts = [encode_properties({"UNIQ_KEY": f"U{n}", "KEYS": f"k{n}"}) for n in range(len(contents))]
    fields: dict[str, Any] = {
        "topic": "orders",
        "queue_id": 0,
        "bodies": list(contents),
        "properties": texts,
        "flags": list(range(len(contents))),
        "tags_codes": [n % 3 for n in range(len(contents))],
        "keys": BatchKeys([key for n in range(len(contents)) for key in (f"U{n}", f"k{n}")], 2),
        "born_timestamp_ms": 1,
        "born_host": HOST,
        **changes,
    }
    return DraftBatch(**fields)


def put(store: MessageStore, *drafts: Draft) -> list[Appended]:
    outcomes = store.append(drafts)
    assert all(isinstance(outcome, Appended) for outcome in outcomes), outcomes
    return [outcome for outcome in outcomes if isinstance(outcome, Appended)]


def records(store: MessageStore) -> Iterator[RecordView]:
    """Every record of the log, in order."""
    log = store.components.commit_log
    position = log.min_offset
    while position < log.max_offset:
        segment = log.segments.find(position)
        assert segment is not None
        verdict = verify(segment.file.view(), position - segment.base)
        if isinstance(verdict, RecordView):
            assert verdict.physical_offset == position
            yield verdict
        position += verdict.size
        assert verdict.size


def entries(queue: ConsumeQueue) -> list[tuple[int, int, int]]:
    count = queue.max_offset - queue.min_offset
    return list(ENTRY.iter_unpack(queue.entries(queue.min_offset, count))) if count else []


def bodies(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """What a consumer reads from the queue's beginning to its end."""
    found: list[bytes] = []
    queue = store.components.queues.get(topic, queue_id)
    offset = queue.min_offset if queue is not None else 0
    while True:
        result = store.reader.read(topic, queue_id, offset, 32)
        if not result.slices:
            return found
        for record in result.slices:
            view = verify(record)
            assert isinstance(view, RecordView)
            found.append(view.body(record))
        offset = result.next_offset


def shortened() -> MessageStore:
    """A queue of four, one a file, whose first two messages are deleted."""
    clock = FakeClock()
    store = opened(SimulatedDisk(clock), clock)
    put(store, *[draft(bytes(5000)) for _ in range(3)])
    clock._elapsed_s += 73 * 3600
    put(store, draft(bytes(5000)))
    store.make_durable()
    assert store.clean(manual=True).files == 2
    return store
