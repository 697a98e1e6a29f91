"""What a sender waits for where messages have to be confirmed: that, and a sync of the disk, in either order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.send.flow_control import FlowControl
from ariane.broker.settings import BrokerSettings
from ariane.broker.writer import MessageWriter, store_error_response
from ariane.errors import OutcomeUnknown, RequestFailed, StoreError, StoreReadOnly
from ariane.store.append.draft import Appended
from ariane.store.consume_queue.gate import Gate
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType, StoreSettings
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from tests.broker.blocked_sync import SyncGate
from tests.broker.in_process_broker import STORE_HOST
from tests.broker.test_writer import message


@asynccontextmanager
async def gated_writer(
    tmp_path: Path, flush: FlushDiskType = FlushDiskType.ASYNC, **store: Any
) -> AsyncIterator[tuple[MessageWriter, Gate]]:
    sizes = {"segment_bytes": 1 << 20, "queue_segment_bytes": 20_000, "index_slots": 500, "index_entries": 2000}
    stored = StoreSettings(root=tmp_path / "store", flush_disk_type=flush, **{**sizes, **store})
    settings, clock = BrokerSettings(store=stored), FakeClock()
    async with StoreService.open(stored, clock, STORE_HOST, gated=True) as service:
        gate = service.store.gate
        assert gate is not None
        gate.begin_epoch(1)
        yield MessageWriter(service, settings, clock), gate


async def test_a_message_is_settled_when_it_is_confirmed(tmp_path: Path) -> None:
    async with gated_writer(tmp_path) as (writer, gate):
        first, second = writer.put(message()), writer.put(message())
        waiting = [asyncio.ensure_future(writer.settled(appended)) for appended in (first, second)]
        await asyncio.sleep(0)
        assert (writer.must_wait, writer.waiting, writer.is_safe(first)) == (True, 2, False)
        assert not writer.sync_here(1), "a sync alone settles nothing"
        gate.confirm(first.end, epoch=1)
        assert await waiting[0] is ResponseCode.SUCCESS
        assert (writer.waiting, writer.is_safe(first), writer.is_safe(second)) == (1, True, False)
        gate.confirm(second.end, epoch=1)
        assert await waiting[1] is ResponseCode.SUCCESS
        assert await writer.settled([]) is ResponseCode.SUCCESS


async def test_half_of_a_batch_is_not_a_settled_batch(tmp_path: Path) -> None:
    async with gated_writer(tmp_path) as (writer, gate):
        batch = writer.put_together([message(), message(), message()])
        waiting = asyncio.ensure_future(writer.settled(batch))
        await asyncio.sleep(0)
        gate.confirm(batch[1].end, epoch=1)
        await asyncio.sleep(0)
        assert not waiting.done()
        gate.confirm(batch[2].end, epoch=1)
        assert await waiting is ResponseCode.SUCCESS


@pytest.mark.parametrize("confirmed_first", [True, False])
async def test_with_sync_flush_it_waits_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, confirmed_first: bool
) -> None:
    sync = SyncGate(monkeypatch)
    async with gated_writer(tmp_path, FlushDiskType.SYNC) as (writer, gate):
        with sync.held():
            appended, waiting = await _waiting(writer)
            if confirmed_first:
                gate.confirm(appended.end, epoch=1)
            await asyncio.sleep(0)
            assert not waiting.done()
        if not confirmed_first:
            await writer.store.flusher.wait_durable(appended.end)
            assert not waiting.done()
            gate.confirm(appended.end, epoch=1)
        assert await waiting is ResponseCode.SUCCESS
        assert writer.is_safe(appended)


async def _waiting(writer: MessageWriter) -> "tuple[Appended, asyncio.Future[ResponseCode]]":
    appended = writer.put(message())
    waiting = asyncio.ensure_future(writer.settled(appended))
    await asyncio.sleep(0)
    return appended, waiting


async def test_a_message_that_is_not_confirmed_in_time_is_stored_here_only(tmp_path: Path) -> None:
    async with gated_writer(tmp_path, sync_flush_timeout_ms=1) as (writer, gate):
        appended = writer.put(message())
        assert await writer.settled(appended) is ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert await writer.settled(appended, wait=False) is ResponseCode.SUCCESS
        assert writer.waiting == 0
        second = writer.put(message())
        assert await writer.settled(second) is ResponseCode.FLUSH_SLAVE_TIMEOUT, "the timer is set again"
        gate.confirm(second.end, epoch=1)
        assert await writer.settled(second) is ResponseCode.SUCCESS


async def test_what_the_group_lacks_counts_more_than_a_late_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = SyncGate(monkeypatch)
    async with gated_writer(tmp_path, FlushDiskType.SYNC, sync_flush_timeout_ms=1) as (writer, gate):
        with sync.held():
            _, waiting = await _waiting(writer)
            assert await waiting is ResponseCode.FLUSH_SLAVE_TIMEOUT
            appended, waiting = await _waiting(writer)
            gate.confirm(appended.end, epoch=1)
            assert await waiting is ResponseCode.FLUSH_DISK_TIMEOUT


async def test_the_end_of_the_role_ends_the_wait_of_all_at_once_whatever_the_disk_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, outcomes = SyncGate(monkeypatch), list[ResponseCode | StoreError]()
    async with gated_writer(tmp_path, FlushDiskType.SYNC) as (writer, gate):
        with sync.held():
            ends = [writer.put(message()).end for _ in range(3)]
            for end in ends:
                writer.when_settled(1, outcomes.append, end)
            gate.end_epoch()
            assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown] * 3
        await writer.store.flusher.wait_durable(ends[-1])
        assert len(outcomes) == 3, "each is answered once"
        assert (writer.waiting, gate.waiters.deadline) == (0, None)
        with pytest.raises(OutcomeUnknown):
            await writer.settled(writer.put(message()))


async def test_a_failed_sync_ends_the_wait_before_a_confirmation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = SyncGate(monkeypatch)
    async with gated_writer(tmp_path, FlushDiskType.SYNC) as (writer, _):
        sync.fail()
        with pytest.raises(StoreReadOnly):
            await writer.settled(writer.put(message()))


async def test_a_role_that_ends_and_a_sync_that_fails_after_it_are_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, outcomes = SyncGate(monkeypatch), list[ResponseCode | StoreError]()
    async with gated_writer(tmp_path, FlushDiskType.SYNC) as (writer, gate):
        sync.fail()
        with sync.held():
            end = writer.put(message()).end
            writer.when_settled(1, outcomes.append, end)
            gate.end_epoch()
        with pytest.raises(StoreReadOnly):
            await writer.store.flusher.wait_durable(end)
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown]


async def test_messages_that_wait_for_a_confirmation_count_in_flow_control_by_number_only(tmp_path: Path) -> None:
    async with gated_writer(tmp_path) as (writer, gate):
        flow = FlowControl(writer.store, writer, BrokerSettings(store=writer.store.settings), waiting_max=200)
        end = writer.put(message()).end
        writer.when_settled(199, lambda _: None, end)
        flow.admit()
        assert writer.longest_wait_ms == 0
        writer.when_settled(1, lambda _: None, end)
        with pytest.raises(RequestFailed, match="OVERLOAD"):
            flow.admit()
        gate.confirm(end, epoch=1)
        flow.admit()


async def test_suspended_writes_are_refused_with_a_reason_and_before_the_append(tmp_path: Path) -> None:
    async with gated_writer(tmp_path) as (writer, _):
        flow = FlowControl(writer.store, writer, BrokerSettings(store=writer.store.settings))
        writer.store.suspend_writes("another broker is the master")
        end = writer.store.components.commit_log.max_offset
        for refuse in (flow.admit, writer.check_accepting):
            with pytest.raises(RequestFailed, match="another broker is the master") as caught:
                refuse()
            assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        with pytest.raises(StoreError) as refused:
            writer.put(message())
        assert store_error_response(refused.value, writer.store).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert writer.store.components.commit_log.max_offset == end
        writer.store.suspend_writes(None)
        flow.admit()
        writer.check_accepting()
        writer.put(message())
