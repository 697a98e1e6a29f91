"""The parts of an append one by one: CPU us a message, each called alone with warm caches."""

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

from ariane.store.append.draft import Appended, Draft
from ariane.store.disk import RealDisk
from ariane.store.index.entries import Header
from ariane.store.index.file import IndexCapacity, IndexFile
from ariane.store.index.pending_keys import PendingKeys
from ariane.store.message_store import MessageStore
from ariane.store.settings import StoreSettings
from ariane.wire.hashes import crc32
from ariane.wire.record.layout import HEAD_V4, MAGIC_V1, SHORT
from bench.store_setup import CHUNK, HOST, drafts, opened
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
    by_topic = store.components.queues.by_topic
    queue = store.components.queues.get_or_create(draft.topic, draft.queue_id)
    pieces = [_head(draft), draft.body, queue.topic_part, SHORT.pack(len(draft.properties)), draft.properties]
    yield "queue look-up", lambda: by_topic.get(draft.topic, {}).get(draft.queue_id), 1
    yield "head with checksum", lambda: _head(draft), 1
    yield "join of a chunk, a 64th", lambda: b"".join(pieces * CHUNK), CHUNK
    yield "queue entry", lambda: queue.append(1, body_bytes, draft.tags_code), 1
    yield f"index: put {INDEX_BATCH:,} at once", _put(directory / "index-file", messages), INDEX_BATCH
    yield "outcome", lambda: Appended(1, 1, body_bytes, 1), 1


def _head(draft: Draft) -> bytes:
    return HEAD_V4.pack(
        len(draft.body),
        MAGIC_V1,
        crc32(draft.body),
        draft.queue_id,
        draft.flag,
        1,
        1,
        draft.sys_flag,
        draft.born_timestamp_ms,
        draft.born_host,
        1,
        HOST,
        draft.reconsume_times,
        draft.prepared_transaction_offset,
        len(draft.body),
    )


def _put(path: Path, messages: list[Draft]) -> Callable[[], None]:
    """As `Index.put_columns` does, but round and round over the same offsets."""
    settings = StoreSettings()
    shape = IndexCapacity(settings.index_slots, settings.index_entries)
    file = IndexFile.create(RealDisk(), path, shape, Header.following(0, 0))
    keyed = [(number, 1, draft.topic, draft.keys) for number, draft in enumerate(messages)]
    parts = [keyed[begin : begin + INDEX_BATCH] for begin in range(0, len(keyed), INDEX_BATCH)]
    following = cycle([PendingKeys.of(part) for part in parts])

    def put() -> None:
        file.publish(file.write_entries(next(following).rows(-1)))

    return put
