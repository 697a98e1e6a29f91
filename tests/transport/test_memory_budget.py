"""The memory of all connections together: who is closed when it is used up, and who is not."""

import logging
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import pytest

from ariane.clock import Clock
from ariane.transport.connection import Connection, ReceiveResult
from ariane.transport.memory_budget import MemoryBudget
from ariane.transport.server import Server
from ariane.transport.settings import TlsSettings, TransportSettings
from ariane.wire.frame import Command
from tests.transport.peers import LOOPBACK, RawClient, connected, echo, request_frame, response_to, until

MiB = 1024 * 1024
BUDGET = 32 * MiB


class Peer:
    """A holder without a socket."""

    def __init__(self, name: str, budget: MemoryBudget, *, proven: bool = True) -> None:
        self.peer = name
        self.has_received_frame = proven
        self.budget = budget
        self.aborted = False

    def hold(self, size: int, now: float) -> None:
        self.budget.set_held(self, size, now)

    def measure(self) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


def test_the_largest_of_equal_age_is_closed() -> None:
    budget = MemoryBudget(100)
    small, large = Peer("small", budget), Peer("large", budget)
    small.hold(30, 0)
    large.hold(60, 0)
    assert (budget.held, budget.closed) == (90, 0)
    small.hold(45, 0)
    assert (small.aborted, large.aborted) == (False, True)
    assert (budget.held, budget.closed) == (45, 1)


def test_a_frame_that_is_kept_half_sent_goes_before_a_large_one_that_has_just_begun() -> None:
    budget = MemoryBudget(100)
    slow, quick = Peer("slow", budget), Peer("quick", budget)
    slow.hold(30, 0)
    quick.hold(80, 5)
    assert (slow.aborted, quick.aborted) == (True, False)


def test_who_never_sent_a_whole_frame_goes_first() -> None:
    budget = MemoryBudget(100)
    client, stranger = Peer("client", budget), Peer("stranger", budget, proven=False)
    client.hold(60, 0)
    stranger.hold(50, 0)
    assert (client.aborted, stranger.aborted) == (False, True)


def test_what_is_given_back_makes_room() -> None:
    budget = MemoryBudget(100)
    peer = Peer("a", budget)
    peer.hold(100, 0)
    peer.hold(0, 1)
    peer.hold(100, 2)
    assert not peer.aborted
    assert not budget.has_room(1)


def test_parked_requests_count_and_are_not_closed() -> None:
    budget = MemoryBudget(100)
    budget.reserve(80)
    peer = Peer("a", budget)
    peer.hold(30, 0)
    assert peer.aborted
    assert budget.used == 80
    budget.release(80)
    assert budget.used == 0


def test_parked_requests_leave_room_for_frames() -> None:
    """Those who park requests hold no bytes that could be closed; others would be closed in their place."""
    budget = MemoryBudget(100)
    while budget.has_room(5):
        budget.reserve(5)
    peer = Peer("a", budget)
    peer.hold(25, 0)
    assert not peer.aborted
    assert budget.reserved == 75


async def send_half(client: RawClient, size: int) -> None:
    """The beginning of a frame of twice the size."""
    frame = request_frame(body=bytes(2 * size))
    client.writer.write(frame[:size])
    with suppress(ConnectionError):  # the server has closed it, as it may
        await client.writer.drain()


async def test_half_sent_frames_of_strangers_do_not_fill_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    budget = MemoryBudget(BUDGET)
    most = 0
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(
            Server.open(LOOPBACK, echo, TransportSettings(), TlsSettings(), Clock(), memory=budget)
        )
        honest = await stack.enter_async_context(connected(served))
        with caplog.at_level(logging.WARNING, "ariane.transport.memory_budget"):
            for number in range(40):
                stranger = await stack.enter_async_context(connected(served))
                await send_half(stranger, 2 * MiB)
                await honest.send(request_frame(opaque=number + 1, body=bytes(1000)))
                assert (await honest.read()).opaque == number + 1
                most = max(most, budget.used)
        assert most <= BUDGET
        assert budget.closed >= 20
        assert "memory_bytes_max" in caplog.text
    await until(lambda: budget.used == 0)


async def test_a_client_that_reads_nothing_is_closed_for_one_that_does() -> None:
    """The unread responses of many clients count together, however little each has."""

    def large(connection: Connection, command: Command) -> ReceiveResult:
        return response_to(command, bytes(MiB))

    budget = MemoryBudget(BUDGET)
    settings = replace(TransportSettings(), write_buffer_bytes_max=4 * MiB)
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(
            Server.open(LOOPBACK, large, settings, TlsSettings(), Clock(), memory=budget)
        )
        for _ in range(30):
            deaf = await stack.enter_async_context(connected(served))
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await deaf.send(b"".join(request_frame(opaque=number) for number in range(1, 9)))
        await until(lambda: budget.closed > 0)
        assert budget.used <= BUDGET
        honest = await stack.enter_async_context(connected(served))
        for number in range(1, 6):
            await honest.send(request_frame(opaque=number))
            assert len((await honest.read()).body) == MiB


async def test_the_memory_of_what_was_read_is_free_again() -> None:
    def large(connection: Connection, command: Command) -> ReceiveResult:
        return response_to(command, bytes(8 * MiB))

    budget = MemoryBudget(BUDGET)
    async with (
        Server.open(LOOPBACK, large, TransportSettings(), TlsSettings(), Clock(), memory=budget) as served,
        connected(served) as client,
    ):
        for number in range(1, 11):
            await client.send(request_frame(opaque=number))
            assert len((await client.read()).body) == 8 * MiB
        await until(lambda: budget.used == 0)  # measured now and then
        assert budget.closed == 0
