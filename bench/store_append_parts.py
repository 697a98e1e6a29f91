"""The parts of an append one by one: CPU us a message, each called alone with warm caches."""

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

from ariane.store.disk import RealDisk
from ariane.store.dispatch import Keyed
from ariane.store.draft import Appended, Draft, record_bytes
from ariane.store.index_entries import key_rows
from ariane.store.index_file import IndexFile, Shape
from ariane.store.index_header import Header
from ariane.store.message_store import MessageStore
from ariane.store.settings import StoreSettings
from ariane.wire.record import pack_record
from bench.store_setup import HOST, drafts, opened
from bench.timing import us_per_call

INDEX_BATCH = 4096  # about what one tick of the index finds at full load
INDEX_BATCHES = 16

Part = tuple[str, Callable[[], object], int]
"""A name, a call, and how many messages one call handles."""


def costs(directory: Path, body_bytes: int) -> dict[str, float]:
    with opened(directory) as store:
        return {name: us_per_call(call) / messages for name, call, messages in _parts(store, directory, body_bytes)}


def _parts(store: MessageStore, directory: Path, body_bytes: int) -> Iterator[Part]:
    draft, *_ = messages = drafts(INDEX_BATCH * INDEX_BATCHES, body_bytes)
    topic = draft.topic.encode()
    queues = store.parts.queues
    queue = queues.get_or_create(draft.topic, draft.queue_id)
    yield "record_bytes", lambda: record_bytes(draft, len(topic), len(HOST)), 1
    yield "queue look-up", lambda: queues.get_or_create(draft.topic, draft.queue_id), 1
    yield "pack_record", lambda: _pack(draft, topic), 1
    yield "queue entry", lambda: queue.append(1, body_bytes, draft.tags_code), 1
    yield "index: note the key", lambda: Keyed(1, 1, draft.topic, draft.keys), 1
    yield f"index: put {INDEX_BATCH:,} at once", _put(directory / "index-file", messages), INDEX_BATCH
    yield "outcome", lambda: Appended(1, 1, body_bytes, 1), 1


def _pack(draft: Draft, topic: bytes) -> bytes:
    return pack_record(
        topic=topic,
        body=draft.body,
        properties=draft.properties,
        queue_id=draft.queue_id,
        flag=draft.flag,
        queue_offset=1,
        physical_offset=1,
        sys_flag=draft.sys_flag,
        born_timestamp_ms=draft.born_timestamp_ms,
        born_host=draft.born_host,
        store_timestamp_ms=1,
        store_host=HOST,
        reconsume_times=draft.reconsume_times,
        prepared_transaction_offset=draft.prepared_transaction_offset,
    )


def _put(path: Path, messages: list[Draft]) -> Callable[[], None]:
    """As `Index.put` does, but round and round over the same offsets."""
    settings = StoreSettings()
    shape = Shape(settings.index_slots, settings.index_entries)
    file = IndexFile.create(RealDisk(), path, shape, Header.following(0, 0))
    keyed = [Keyed(number, 1, draft.topic, draft.keys) for number, draft in enumerate(messages)]
    following = cycle([keyed[begin : begin + INDEX_BATCH] for begin in range(0, len(keyed), INDEX_BATCH)])

    def put() -> None:
        file.publish(file.stage(key_rows(next(following), -1)))

    return put
