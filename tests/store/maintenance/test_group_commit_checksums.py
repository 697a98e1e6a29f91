"""The flush thread checksums the log after its syncs: soon, but only after waiting appends are completed."""

import asyncio
import threading
from pathlib import Path

import pytest

from ariane.clock import Clock
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.maintenance.group_commit import GroupCommit
from ariane.store.message_store import MessageStore
from ariane.store.offline.verify import verify_store
from ariane.store.service import StoreService
from tests.store.block_checksums import check_block_checksums, is_covered
from tests.store.stores import HOST, draft, put, small
from tests.transport.peers import until


async def test_a_running_store_checksums_what_it_syncs_to_the_last_byte(tmp_path: Path) -> None:
    async with StoreService.open(small(tmp_path), Clock(), HOST) as service:
        await service.append([draft(bytes(700)) for _ in range(20)])
        end = service.store.components.commit_log.max_offset
        await until(lambda: check_block_checksums(RealDisk(), root=tmp_path).summary.summed_bytes >= end)
        assert verify_store(RealDisk(), Layout.under(tmp_path)).is_sound
    assert is_covered(RealDisk(), end, tmp_path)


async def test_who_waits_for_a_sync_does_not_wait_for_checksums(tmp_path: Path) -> None:
    store = MessageStore.open(small(tmp_path), Clock(), HOST)
    may_end = threading.Event()

    def endless(durable_to: int) -> bool:
        return not may_end.wait(0.001)

    async with GroupCommit.running(store.flusher, store.settings, endless) as group_commit:
        for _ in range(3):
            (appended,) = put(store, draft(bytes(700)))
            durable = group_commit.wait_durable(appended.end)
            async with asyncio.timeout(30):
                await durable
        may_end.set()
    store.close()


async def test_a_first_step_that_takes_long_does_not_keep_the_acknowledgement(tmp_path: Path) -> None:
    store = MessageStore.open(small(tmp_path), Clock(), HOST)
    began, may_end = threading.Event(), threading.Event()

    def slow(durable_to: int) -> bool:
        began.set()
        assert may_end.wait(30)
        return False

    async with GroupCommit.running(store.flusher, store.settings, slow) as group_commit:
        (appended,) = put(store, draft(bytes(700)))
        durable = group_commit.wait_durable(appended.end)
        async with asyncio.timeout(30):
            await durable
        assert await asyncio.to_thread(began.wait, 30)
        may_end.set()
    store.close()


async def test_many_syncs_share_a_step_and_the_last_one_needs_no_sync_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ariane.store.maintenance.group_commit._CHECKSUM_INTERVAL_S", 0.5)
    store = MessageStore.open(small(tmp_path), Clock(), HOST)
    durable_offsets: list[int] = []

    def sum_nothing(durable_to: int) -> bool:
        durable_offsets.append(durable_to)
        return False

    async with GroupCommit.running(store.flusher, store.settings, sum_nothing) as group_commit:
        for _ in range(50):
            (appended,) = put(store, draft(bytes(10)))
            durable = group_commit.wait_durable(appended.end)
            await durable
        await until(lambda: durable_offsets[-1:] == [appended.end])
    assert len(durable_offsets) < 50
    store.close()
