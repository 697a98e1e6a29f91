"""The two ends of the transport tests: a server that echoes, and raw clients that can send any bytes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from ariane.clock import Clock
from ariane.model.address import Address
from ariane.transport.connection import Connection, Receiver, ReceiveResult
from ariane.transport.server import Server
from ariane.transport.settings import TlsSettings, TransportSettings
from ariane.wire.codes import HeaderFlag
from ariane.wire.frame import Command, FrameDecoder, encode_frame

LOOPBACK = Address("127.0.0.1", 0)
PATIENCE_S = 40  # far above what any step needs: a test that waits this long has failed


def request_frame(opaque: int = 1, body: bytes = b"", code: int = 105) -> bytes:
    return encode_frame(Command(code=code, opaque=opaque, body=body))


def response_to(command: Command, body: bytes | None = None) -> bytes:
    flag = HeaderFlag.RESPONSE
    return encode_frame(Command(code=0, opaque=command.opaque, flag=flag, body=command.body if body is None else body))


def echo(connection: Connection, command: Command) -> ReceiveResult:
    return response_to(command)


@asynccontextmanager
async def serving(
    receive: Receiver = echo, clock: Clock | None = None, tls: TlsSettings | None = None, **limits: float
) -> AsyncIterator[Server]:
    settings = replace(TransportSettings(), **limits)  # type: ignore[arg-type]
    async with Server.open(LOOPBACK, receive, settings, tls or TlsSettings(), clock or Clock()) as server:
        yield server


class RawClient:
    """A socket and a frame decoder: sends any bytes, reads whole commands."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read(self) -> Command:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for command in self._decoder:
                    return command
                data = await self.reader.read(65536)
                if not data:
                    raise EOFError
                self._decoder.feed(data)

    async def wait_closed_by_peer(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass

    @property
    def name(self) -> str:
        host, port = self.writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"


@asynccontextmanager
async def connected(server: Server, from_host: str = "127.0.0.1") -> AsyncIterator[RawClient]:
    address = server.address
    reader, writer = await asyncio.open_connection(address.host, address.port, local_addr=(from_host, 0))
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with suppress(OSError):  # the server closed first, as some tests want it to
            await writer.wait_closed()


async def assert_client_is_served(server: Server) -> None:
    async with connected(server) as client:
        await client.send(request_frame(opaque=7, body=b"client"))
        response = await client.read()
        assert (response.opaque, response.body) == (7, b"client")


async def until(condition: Callable[[], object]) -> None:
    """Runs the event loop until `condition()` holds: for what happens in the server and has no event of its own."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
