"""The connection pool: sharing, timeouts, reconnection, limits, and calls from the server to the client."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from ariane.clock import Clock
from ariane.errors import CallTimeout, ConnectFailed, ConnectionLost, TooManyInFlight
from ariane.model.address import Address
from ariane.transport.connection import Connection, ReceiveResult
from ariane.transport.pool import Pool
from ariane.transport.server import Server
from ariane.transport.settings import TlsSettings, TransportSettings
from ariane.wire.frame import Command
from tests.transport.peers import echo, response_to, serving, until

SETTINGS = TransportSettings()


def no_requests(connection: Connection, command: Command) -> ReceiveResult:
    raise AssertionError(f"the client must get no requests here: {command}")


def request(body: bytes = b"") -> Command:
    return Command(code=105, body=body)


async def test_concurrent_callers_share_one_connection_and_get_their_own_responses() -> None:
    async with serving() as server, Pool.open(SETTINGS, Clock(), no_requests) as pool:
        bodies = [b"%d" % n for n in range(200)]
        responses = await asyncio.gather(*(pool.call(str(server.address), request(body)) for body in bodies))
        assert [response.body for response in responses] == bodies
        assert server.connections == 1


async def test_responses_out_of_order_reach_their_callers() -> None:
    held: list[Command] = []

    def receive(connection: Connection, command: Command) -> ReceiveResult:
        held.append(command)
        return b"".join(response_to(late) for late in reversed(held)) if len(held) == 3 else None

    async with serving(receive) as server, Pool.open(SETTINGS, Clock(), no_requests) as pool:
        responses = await asyncio.gather(
            *(pool.call(str(server.address), request(body)) for body in (b"a", b"b", b"c"))
        )
        assert [response.body for response in responses] == [b"a", b"b", b"c"]


async def test_a_timeout_cleans_up_and_a_late_response_is_dropped() -> None:
    late: list[tuple[Connection, Command]] = []

    def receive(connection: Connection, command: Command) -> ReceiveResult:
        if command.body == b"slow":
            late.append((connection, command))
            return None
        return response_to(command)

    async with serving(receive) as server, Pool.open(SETTINGS, Clock(), no_requests) as pool:
        address = str(server.address)
        with pytest.raises(CallTimeout, match="outcome is unknown"):
            await pool.call(address, request(b"slow"), timeout_s=0.05)
        connection = await pool.connection(address)
        assert connection.calls_in_flight == 0
        peer, command = late[0]
        peer.write(response_to(command))
        assert (await pool.call(address, request(b"next"))).body == b"next"
        assert await pool.connection(address) is connection


async def test_a_cancelled_call_leaves_nothing_behind() -> None:
    async with serving(lambda connection, command: None) as server, Pool.open(SETTINGS, Clock(), no_requests) as pool:
        call = asyncio.ensure_future(pool.call(str(server.address), request()))
        connection = await pool.connection(str(server.address))
        await until(lambda: connection.calls_in_flight == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert connection.calls_in_flight == 0


async def test_callers_fail_immediately_when_the_connection_is_lost() -> None:
    def hang_up(connection: Connection, command: Command) -> ReceiveResult:
        connection.abort()
        return None

    async with serving(hang_up) as server, Pool.open(SETTINGS, Clock(), no_requests) as pool:
        with pytest.raises(ConnectionLost):
            await pool.call(str(server.address), request())


async def test_a_restarted_server_is_reached_again() -> None:
    async with AsyncExitStack() as first, Pool.open(SETTINGS, Clock(), no_requests) as pool:
        server = await first.enter_async_context(serving())
        address = server.address
        await pool.call(str(address), request())
        await first.aclose()
        async with Server.open(address, echo, SETTINGS, TlsSettings(), Clock()):
            await until_answered(pool, address)


async def until_answered(pool: Pool, address: Address) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                await pool.call(str(address), request())
            except (ConnectFailed, ConnectionLost):
                await asyncio.sleep(0.01)
            else:
                return


async def test_attempts_to_a_dead_address_back_off() -> None:
    attempts = 0

    class CountingPool(Pool):
        async def _connect(self, address: str) -> Connection:
            nonlocal attempts
            attempts += 1
            return await super()._connect(address)

    async with serving() as server:
        dead = str(server.address)
    pool = CountingPool(SETTINGS, Clock(), no_requests)
    errors = []
    for _ in range(50):
        with pytest.raises(ConnectFailed) as caught:
            await pool.call(dead, request())
        errors.append(str(caught.value))
        await asyncio.sleep(0.004)
    assert 2 <= attempts < 10  # 0.2 s hold three pauses: 0.05, 0.1, 0.2
    assert "cannot connect" in errors[0]
    assert any("the next attempt is due in" in error for error in errors)


async def test_more_calls_than_allowed_fail_immediately() -> None:
    settings = TransportSettings(calls_max=2)
    async with serving(lambda connection, command: None) as server, Pool.open(settings, Clock(), no_requests) as pool:
        address = str(server.address)
        waiting = [asyncio.ensure_future(pool.call(address, request())) for _ in range(2)]
        connection = await pool.connection(address)
        await until(lambda: connection.calls_in_flight == 2)
        with pytest.raises(TooManyInFlight):
            await pool.call(address, request())
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_server_can_call_the_client_over_the_clients_connection() -> None:
    def call_back(connection: Connection, command: Command) -> ReceiveResult:
        async def relay() -> bytes:
            response = await connection.call(request(b"from the server"), 5)
            return response_to(command, response.body)

        return relay()

    async with serving(call_back) as server, Pool.open(SETTINGS, Clock(), echo) as pool:
        assert (await pool.call(str(server.address), request(b"?"))).body == b"from the server"


async def test_trap_20_opaque_numbers_start_at_one_and_wrap_within_int32() -> None:
    seen: list[int] = []

    def receive(connection: Connection, command: Command) -> ReceiveResult:
        seen.append(command.opaque)
        return response_to(command)

    async with serving(receive) as server, Pool.open(SETTINGS, Clock(), no_requests) as pool:
        address = str(server.address)
        await pool.call(address, request())
        (await pool.connection(address))._opaque = 2**31 - 2
        await pool.call(address, request())
        await pool.call(address, request())
        assert seen == [1, 2**31 - 1, 1]


async def test_trap_20_a_response_to_a_oneway_call_without_the_bit_is_dropped() -> None:
    async with serving() as server, Pool.open(SETTINGS, Clock(), no_requests) as pool:
        address = str(server.address)
        await pool.send(address, request(b"one way, without the flag: the server answers"))
        assert (await pool.call(address, request(b"next"))).body == b"next"
