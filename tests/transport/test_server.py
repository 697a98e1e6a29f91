"""The server: protocol violations, timeouts, connection limits, back-pressure, and draining on close."""

import asyncio
import logging
import socket
import struct
from contextlib import AsyncExitStack

import pytest

from ariane.errors import ListenFailed
from ariane.model.address import Address
from ariane.testing import FakeClock
from ariane.transport.connection import Connection, ReceiveResult
from ariane.transport.listener import set_options
from ariane.transport.server import Server
from ariane.transport.settings import TlsSettings, TransportSettings
from ariane.wire.frame import Command
from tests.transport.peers import (
    assert_client_is_served,
    connected,
    echo,
    request_frame,
    response_to,
    serving,
    until,
)

DEEP_HEADER = b'{"code":105,"extFields":' + b"[" * 30_000 + b"]" * 30_000 + b"}"
VIOLATIONS = {
    "frame of 16 MiB + 1": struct.pack(">iI", 16 * 1024 * 1024 - 3, 10),
    "negative length": struct.pack(">iI", -5, 10),
    "length below 4": struct.pack(">iI", 3, 0),
    "header longer than the frame": struct.pack(">iI", 20, 17),
    "unknown serialisation": struct.pack(">iI", 6, 9 << 24 | 2) + b"{}",
    "header that is not JSON": struct.pack(">iI", 9, 5) + b"hello",
    "deeply nested header": struct.pack(">iI", 4 + len(DEEP_HEADER), len(DEEP_HEADER)) + DEEP_HEADER,
    "200,000-deep header": struct.pack(">iI", 200_004, 200_000) + b"[" * 200_000,
    "400,000-deep header": struct.pack(">iI", 400_004, 400_000) + b"[" * 400_000,
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a TLS hello at a plain server": bytes.fromhex("16030100c5010000c10303"),
}


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as server, connected(server) as client:
        await client.send(b"".join(request_frame(opaque=n, body=b"%d" % n) for n in range(1, 101)))
        responses = [await client.read() for _ in range(100)]
        assert [(response.opaque, response.body) for response in responses] == [(n, b"%d" % n) for n in range(1, 101)]


@pytest.mark.parametrize("violation", VIOLATIONS.values(), ids=VIOLATIONS.keys())
async def test_a_protocol_violation_closes_the_connection_with_one_log_line(
    violation: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server, connected(server) as client:
        with caplog.at_level(logging.INFO):
            await client.send(violation)
            await client.wait_closed_by_peer()
        await assert_client_is_served(server)
        (record,) = [record for record in caplog.records if getattr(record, "peer", None) == client.name]
        assert record.levelno == logging.WARNING
        assert vars(record)["reason"]


async def test_requests_before_a_violation_are_answered() -> None:
    async with serving() as server, connected(server) as client:
        await client.send(request_frame(opaque=5) + VIOLATIONS["negative length"])
        assert (await client.read()).opaque == 5
        await client.wait_closed_by_peer()


async def test_a_header_of_one_byte_a_second_times_out_while_others_are_served() -> None:
    clock = FakeClock()
    async with serving(clock=clock) as server, connected(server) as slow:
        for byte in request_frame()[:20]:
            await slow.send(bytes([byte]))
            await clock.advance(1)
            await assert_client_is_served(server)
            if slow.reader.at_eof():
                break
        await slow.wait_closed_by_peer()


async def test_a_peer_has_ten_seconds_for_each_frame() -> None:
    clock = FakeClock()
    async with serving(clock=clock) as server, connected(server) as client:
        await client.send(request_frame(opaque=1))
        await client.read()
        await client.send(request_frame(opaque=2)[:10])
        await clock.advance(9)
        assert server.connections == 1
        await clock.advance(2)
        await client.wait_closed_by_peer()


async def test_a_silent_connection_is_closed_after_the_first_frame_time() -> None:
    clock = FakeClock()
    async with serving(clock=clock) as server, connected(server) as half_open:
        await until(lambda: server.connections == 1)
        await assert_client_is_served(server)
        await clock.advance(6)
        await half_open.wait_closed_by_peer()
        await until(lambda: server.connections == 0)


async def test_an_idle_connection_is_closed_after_120_seconds() -> None:
    clock = FakeClock()
    async with serving(clock=clock) as server, connected(server) as client:
        await client.send(request_frame())
        await client.read()
        await clock.advance(119)
        assert server.connections == 1
        await clock.advance(2)
        await client.wait_closed_by_peer()


async def test_a_flood_of_silent_connections_cannot_keep_a_real_client_out() -> None:
    async with serving(connections_max=20, connections_per_address_max=20) as server, AsyncExitStack() as stack:
        old = await stack.enter_async_context(connected(server))
        await old.send(request_frame(opaque=1))
        await old.read()
        for _ in range(60):
            await stack.enter_async_context(connected(server))
        await until(lambda: server.connections == 20)
        await assert_client_is_served(server)
        await old.send(request_frame(opaque=2))
        assert (await old.read()).opaque == 2


async def test_a_new_connection_is_refused_only_when_every_open_one_has_sent_a_frame() -> None:
    async with serving(connections_max=2, connections_per_address_max=2) as server, AsyncExitStack() as stack:
        for opaque in (1, 2):
            peer = await stack.enter_async_context(connected(server))
            await peer.send(request_frame(opaque=opaque))
            await peer.read()
        async with connected(server) as late:
            await late.wait_closed_by_peer()
        assert server.connections == 2


async def test_one_address_cannot_use_up_all_connections() -> None:
    async with serving(connections_max=50, connections_per_address_max=5) as server, AsyncExitStack() as stack:
        for _ in range(5):
            greedy = await stack.enter_async_context(connected(server, from_host="127.0.0.2"))
            await greedy.send(request_frame())
            await greedy.read()
        sixth = await stack.enter_async_context(connected(server, from_host="127.0.0.2"))
        await sixth.wait_closed_by_peer()
        await assert_client_is_served(server)


async def test_one_address_gets_half_of_all_connections_by_default(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with serving(clock=clock, connections_max=5) as server, AsyncExitStack() as stack:
        for _ in range(3):
            peer = await stack.enter_async_context(connected(server, from_host="127.0.0.2"))
            await peer.send(request_frame())
            await peer.read()
        fourth = await stack.enter_async_context(connected(server, from_host="127.0.0.2"))
        await fourth.wait_closed_by_peer()
        await assert_client_is_served(server)
        await clock.advance(1)
    refusals = [record.__dict__ for record in caplog.records if "refused" in record.msg]
    assert [(fields["limit"], fields["refused"]) for fields in refusals] == [("connections_per_address_max (3)", 1)]


async def test_requests_beyond_the_in_flight_limit_wait() -> None:
    release = asyncio.Event()
    started: list[int] = []

    def receive(connection: Connection, command: Command) -> ReceiveResult:
        async def later() -> bytes:
            await release.wait()
            return response_to(command)

        started.append(command.opaque)
        return later()

    async with serving(receive, in_flight_max=4) as server, connected(server) as client:
        await client.send(b"".join(request_frame(opaque=n) for n in range(1, 11)))
        await until(lambda: len(started) == 4)
        await assert_nothing_more(started)
        release.set()
        assert {(await client.read()).opaque for _ in range(10)} == set(range(1, 11))


async def assert_nothing_more(started: list[int]) -> None:
    before = len(started)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(started) == before


async def test_reading_pauses_for_a_peer_that_does_not_read_its_responses() -> None:
    taken = 0
    response = bytes(64 * 1024)

    def receive(connection: Connection, command: Command) -> ReceiveResult:
        nonlocal taken
        if command.body == b"client":
            return echo(connection, command)
        taken += 1
        return response_to(command, response)

    async with serving(receive, write_buffer_bytes_max=1024 * 1024) as server, connected(server) as client:
        client.writer.write(request_frame() * 20_000)  # asks for 1.3 GB
        await until(lambda: taken > 0)
        await assert_client_is_served(server)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert taken * len(response) < 64 * 1024 * 1024  # the buffers of both kernels' ends and ours, not 1.3 GB
        client.writer.transport.abort()


async def test_closing_lets_requests_in_flight_finish_and_accepts_no_new_ones() -> None:
    release, started, received = asyncio.Event(), asyncio.Event(), 0

    def receive(connection: Connection, command: Command) -> ReceiveResult:
        async def later() -> bytes:
            started.set()
            await release.wait()
            return response_to(command)

        nonlocal received
        received += 1
        return later()

    server_open = asyncio.Event()

    async def run_server() -> None:
        async with serving(receive) as server:
            addresses.append(server)
            server_open.set()
            await stop.wait()

    stop = asyncio.Event()
    addresses: list[Server] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(run_server())
        await server_open.wait()
        async with connected(addresses[0]) as client:
            await client.send(request_frame(opaque=3))
            await started.wait()
            stop.set()
            await asyncio.sleep(0.01)
            await client.send(request_frame(opaque=4))
            release.set()
            assert (await client.read()).opaque == 3
            await client.wait_closed_by_peer()
    assert received == 1


async def test_closing_does_not_wait_for_a_peer_that_does_not_read() -> None:
    def receive(connection: Connection, command: Command) -> ReceiveResult:
        return response_to(command, bytes(8 * 1024 * 1024))

    async with asyncio.timeout(5), serving(receive, drain_timeout_s=0.1) as server:
        _, writer = await asyncio.open_connection(server.address.host, server.address.port)
        writer.write(request_frame())
        await until(lambda: server.connections == 1)
        await asyncio.sleep(0.05)
    writer.close()


async def test_a_port_in_use_is_one_sentence_with_a_hint() -> None:
    async with serving() as server:
        message = r"cannot listen on 127\.0\.0\.1:\d+.*Stop the server that holds the port.*--listen HOST:PORT"
        with pytest.raises(ListenFailed, match=message):
            async with Server.open(server.address, echo, TransportSettings(), TlsSettings(), FakeClock()):
                pass


@pytest.mark.parametrize("host", ["192.0.2.200", "no-such-host.invalid"])
async def test_an_address_of_another_machine_has_another_hint_than_a_port_in_use(host: str) -> None:
    with pytest.raises(ListenFailed, match=r"It has to be an address of this machine.*--listen HOST:PORT"):
        async with Server.open(Address(host, 0), echo, TransportSettings(), TlsSettings(), FakeClock()):
            pass


def test_the_kernel_probes_for_peers_that_vanished() -> None:
    with socket.socket() as peer:
        set_options(peer, keepalive_idle_s=61)
        assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 61
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
