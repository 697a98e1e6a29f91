"""Requests of one event-loop iteration leave in one write."""

import asyncio

from ariane.clock import Clock
from ariane.transport.connection import Connection
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.frame import Command
from tests.transport.peers import PATIENCE_S, serving


class ChunkRecorder(asyncio.Protocol):
    """Records each chunk that arrives, and answers nothing."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self.closed.set()


async def test_requests_of_one_iteration_all_arrive_and_a_close_loses_none() -> None:
    recorder = ChunkRecorder()
    server = await asyncio.get_running_loop().create_server(lambda: recorder, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    async with server, Pool.open(TransportSettings(), Clock(), lambda _connection, _command: None) as pool:
        connection: Connection = await pool.connection(f"{host}:{port}")
        for number in range(3):
            await connection.send(Command(code=number, body=b"request-%d;" % number))
        connection.close()
        async with asyncio.timeout(PATIENCE_S):
            await recorder.closed.wait()
    arrived = b"".join(recorder.chunks)
    assert [arrived.count(b"request-%d;" % number) for number in range(3)] == [1, 1, 1]
    assert arrived.index(b"request-0") < arrived.index(b"request-1") < arrived.index(b"request-2")


async def test_large_requests_are_sent_before_the_iteration_ends() -> None:
    async with serving() as server, Pool.open(TransportSettings(), Clock(), lambda *_: None) as pool:
        bodies = [b"%d" % number * 300_000 for number in range(10)]
        calls = [pool.call(str(server.address), Command(code=105, body=body), PATIENCE_S) for body in bodies]
        assert [response.body for response in await asyncio.gather(*calls)] == bodies
