"""A TCP proxy that forwards RocketMQ frames and records a copy of each."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from interop.processes import LOOPBACK
from scripts.golden.frames import Direction, Header, Peer, Recorded, parse_header

# (language, version) of a request -> the program that sent it. Programs never share a connection or a version.
ClientNames = Mapping[tuple[str, int], str]
# Changes a frame on its way to the server; the recorded copy is the original.
Rewrite = Callable[[Header, bytes], bytes]


def unchanged(header: Header, frame: bytes) -> bytes:
    return frame


@dataclass(slots=True)
class Connection:
    """The state that both directions of one connection share."""

    client: str = "unknown"
    # The two directions number their requests independently.
    codes: dict[tuple[Direction, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingProxy:
    peer: Peer
    server_name: str
    upstream_port: int
    client_names: ClientNames
    rewrite: Rewrite
    recorded: list[Recorded]

    @contextlib.asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, LOOPBACK, port)
        try:
            yield
        finally:
            # Not wait_closed: connections end when the programs at both ends do.
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(LOOPBACK, self.upstream_port)
        except OSError:
            writer.close()
            return
        shared = Connection()
        await asyncio.gather(
            self._pump(reader, up_writer, "client_to_server", shared),
            self._pump(up_reader, writer, "server_to_client", shared),
        )

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, direction: Direction, shared: Connection
    ) -> None:
        try:
            while True:
                length = await source.readexactly(4)
                frame = length + await source.readexactly(int.from_bytes(length))
                header = parse_header(frame)
                self._record(header, frame, direction, shared)
                target.write(self.rewrite(header, frame) if direction == "client_to_server" else frame)
                await target.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            target.close()

    def _record(self, header: Header, frame: bytes, direction: Direction, shared: Connection) -> None:
        answers_code = None
        if header.kind == "resp":
            opposite: Direction = "server_to_client" if direction == "client_to_server" else "client_to_server"
            answers_code = shared.codes.pop((opposite, header.opaque), None)
            if answers_code is None:
                return
        else:
            shared.codes[direction, header.opaque] = header.code
            if direction == "client_to_server":
                shared.client = self.client_names.get((header.language, header.version), "unknown")
        self.recorded.append(
            Recorded(
                client=shared.client,
                server=self.server_name,
                direction=direction,
                peer=self.peer,
                header=header,
                answers_code=answers_code,
                frame=frame,
            )
        )
