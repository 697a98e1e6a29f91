"""Sends with SYNC_FLUSH: all connections of an event-loop iteration share a sync, on the loop or by the thread."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from ariane.errors import RequestFailed
from ariane.rpc.caller import Caller
from ariane.store.maintenance.sync_policy import SYNCS_MIN
from ariane.store.settings import FlushDiskType
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.send import SendResponse
from tests.broker.blocked_sync import EVENT_LOOP, FLUSH_THREAD, SyncGate
from tests.broker.in_process_broker import InProcessBroker, a_send, in_process_broker, turns
from tests.nameserver.servers import caller
from tests.transport.peers import until

CLIENTS = 8


@asynccontextmanager
async def clients(broker: InProcessBroker) -> AsyncIterator[list[Caller]]:
    """Each has its own connection, which is open."""
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(caller()) for _ in range(CLIENTS)]
        for one in callers:
            await one.call(broker.address, a_send(properties={"WAIT": "false"}), 10)
        yield callers


async def send_each(broker: InProcessBroker, callers: list[Caller]) -> list[SendResponse | BaseException]:
    sends = (one.call(broker.address, a_send(), 10) for one in callers)
    return await asyncio.gather(*sends, return_exceptions=True)


@asynccontextmanager
async def syncing_on_loop(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    """By a clock that stands still, every sync is short."""
    async with in_process_broker(tmp_path, FakeClock(), flush=FlushDiskType.SYNC) as broker:
        while not broker.store.flusher.policy.on_loop:
            await broker.call(a_send())
        assert broker.store.flusher.policy.thread_syncs <= SYNCS_MIN + 1
        yield broker


async def test_short_syncs_are_done_on_the_loop_once_for_all_who_came_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = SyncGate(monkeypatch)
    async with syncing_on_loop(tmp_path) as broker, clients(broker) as callers:
        gate.syncers.clear()
        responses = await send_each(broker, callers)
        assert all(isinstance(response, SendResponse) for response in responses)
        assert broker.store.flusher.unflushed_bytes == 0
        assert set(gate.syncers) == {EVENT_LOOP}
        assert len(gate.syncers) <= CLIENTS
        assert broker.writer.waiting == 0
        assert broker.writer.counters.sync_s.count >= CLIENTS


async def test_a_failed_sync_on_the_loop_is_an_error_for_all_and_the_store_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = SyncGate(monkeypatch)
    async with syncing_on_loop(tmp_path) as broker, clients(broker) as callers:
        gate.syncers.clear()
        gate.fail(EVENT_LOOP)
        responses = await send_each(broker, callers)
        assert gate.syncers == [EVENT_LOOP]
        for response in responses:
            assert isinstance(response, RequestFailed)
            assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.store.write_error is not None


async def test_a_producer_that_does_not_wait_gets_its_response_without_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = SyncGate(monkeypatch)
    async with syncing_on_loop(tmp_path) as broker:
        gate.syncers.clear()
        await broker.call(a_send(properties={"WAIT": "false"}))
        assert gate.syncers == []
        assert broker.store.flusher.unflushed_bytes > 0


async def test_sends_of_all_connections_wait_for_one_sync_by_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = SyncGate(monkeypatch)
    async with in_process_broker(tmp_path, flush=FlushDiskType.SYNC) as broker, clients(broker) as callers:
        gate.syncers.clear()
        with gate.held():
            first = asyncio.ensure_future(broker.call(a_send()))
            await until(lambda: len(gate.syncers) == 1)
            others = asyncio.ensure_future(send_each(broker, callers))
            await until(lambda: broker.writer.waiting == 1 + CLIENTS)
            await turns()
            assert not first.done()
            assert not others.done()
        await first
        assert all(isinstance(response, SendResponse) for response in await others)
        assert gate.syncers == [FLUSH_THREAD] * 2
        assert broker.writer.waiting == 0


async def test_a_server_that_stops_lets_sends_that_wait_for_a_sync_be_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = SyncGate(monkeypatch)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(caller())
        async with in_process_broker(tmp_path, flush=FlushDiskType.SYNC) as broker:
            await one.call(broker.address, a_send(), 10)
            held = gate.held()
            held.__enter__()
            send = asyncio.ensure_future(one.call(broker.address, a_send(), 10))
            await until(lambda: broker.writer.waiting == 1)
            asyncio.get_running_loop().call_later(0.05, held.__exit__, None, None, None)
        assert (await send).code == ResponseCode.SUCCESS
