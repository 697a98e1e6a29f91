"""A process that appends numbered messages and prints which are acknowledged, until it is killed.

    python -m tests.store.writer ROOT SYNC_FLUSH|ASYNC_FLUSH SEED

It prints `from N` when the store is open, then `first last` after each acknowledged chunk. Message n is `body_of(n)` in
queue n % 4, and numbers go to the log in order: so after any crash the store holds the numbers 0 to some m, each once.
"""

import asyncio
import os
import random
import sys
import zlib
from itertools import count
from pathlib import Path

from ariane.clock import Clock
from ariane.store.append.draft import Appended
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType, StoreSettings
from tests.store.stores import HOST, bodies, draft

TOPIC = "numbers"
QUEUES = 4
SENDERS = 3


def settings_of(root: Path, kind: FlushDiskType) -> StoreSettings:
    """Small files and short rounds, so that a kill meets rolls and checkpoints; and nothing is ever deleted."""
    return StoreSettings(
        root=root, flush_disk_type=kind, segment_bytes=256 * 1024, queue_segment_bytes=2000,
        index_slots=1000, index_entries=4000, flush_interval_ms=10,
        queue_flush_interval_ms=20, queue_flush_thorough_interval_ms=70, sync_flush_timeout_ms=60_000,
        sum_block_bytes=4096, clean_forcibly=False, refuse_writes_ratio=1.0, retention_hours=24 * 365,
    )  # fmt: skip


def body_of(number: int) -> bytes:
    """The number, a filling that only this number has, and the checksum of both."""
    content = b"%d:" % number + random.Random(number).randbytes(number * 7919 % 700)
    return content + zlib.crc32(content).to_bytes(4, "big")


def survivors(store: MessageStore) -> int:
    """How many messages a store holds; AssertionError unless they are the first ones, each once and in its place."""
    queues = [bodies(store, TOPIC, queue_id) for queue_id in range(QUEUES)]
    total = sum(map(len, queues))
    for number in range(total):
        queue = queues[number % QUEUES]
        assert number // QUEUES < len(queue), f"message {number} of {total} is missing"
        assert queue[number // QUEUES] == body_of(number), f"another message stands in the place of {number}"
    return total


async def send(service: StoreService, numbers: "count[int]", rng: random.Random) -> None:
    while True:
        chunk = [next(numbers) for _ in range(rng.randint(1, 20))]
        drafts = [draft(body_of(n), topic=TOPIC, queue_id=n % QUEUES, key=f"key{n}") for n in chunk]
        outcomes = await service.append(drafts)
        assert all(isinstance(outcome, Appended) for outcome in outcomes), outcomes
        os.write(1, b"%d %d\n" % (chunk[0], chunk[-1]))
        await asyncio.sleep(0)


async def main(root: Path, kind: FlushDiskType, seed: int) -> None:
    async with StoreService.open(settings_of(root, kind), Clock(), HOST) as service:
        queues = service.store.components.queues.of_topic(TOPIC).values()
        begin = sum(queue.max_offset for queue in queues)
        os.write(1, b"from %d\n" % begin)
        numbers, rng = count(begin), random.Random(seed)
        async with asyncio.TaskGroup() as group:
            for _ in range(SENDERS):
                group.create_task(send(service, numbers, rng))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), FlushDiskType(sys.argv[2]), int(sys.argv[3])))
