"""With ASYNC_FLUSH a message is durable within `flushIntervalCommitLog` and a little, at any rate of messages."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from ariane.clock import Clock
from ariane.store.maintenance.flush import FlushThread
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType
from tests.store.stores import HOST, draft, put, small

INTERVAL_MS = 200
ALLOWED_S = 2.0
"""The promise is the interval and 100 ms; a busy machine gets ten intervals. Apache's rules took ten seconds."""


async def durable_after(store: MessageStore, end: int) -> float:
    """Seconds until everything below `end` has been synced; nobody asks for the sync."""
    began = time.monotonic()
    while store.flusher.flushed_to < end:
        await asyncio.sleep(0.01)
        assert time.monotonic() - began < ALLOWED_S, "acknowledged, and not synced"
    return time.monotonic() - began


@pytest.mark.parametrize("pause_s", [0, 0.05], ids=["one alone", "twenty a second"])
async def test_a_message_is_synced_within_the_interval_at_a_low_rate(tmp_path: Path, pause_s: float) -> None:
    settings = small(tmp_path, flush_disk_type=FlushDiskType.ASYNC, flush_interval_ms=INTERVAL_MS)
    async with StoreService.open(settings, Clock(), HOST) as service:
        waits = []
        for _ in range(12 if pause_s else 1):
            (appended,) = put(service.store, draft(b"one"))
            waits.append(asyncio.create_task(durable_after(service.store, appended.end)))
            await asyncio.sleep(pause_s)
        print("durable after, ms:", [round(1000 * wait) for wait in await asyncio.gather(*waits)])


async def test_checksums_of_the_log_do_not_delay_a_sync_that_is_due(tmp_path: Path) -> None:
    settings = small(tmp_path, flush_disk_type=FlushDiskType.ASYNC, flush_interval_ms=INTERVAL_MS)
    store = MessageStore.open(settings, Clock(), HOST)
    may_end = threading.Event()

    def endless(durable_to: int) -> bool:
        return not may_end.wait(0.001)

    async with FlushThread.running(store.flusher, settings, endless):
        try:
            for _ in range(3):
                (appended,) = put(store, draft(bytes(700)))
                await durable_after(store, appended.end)
        finally:
            may_end.set()
    store.close()
