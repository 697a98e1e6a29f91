"""Peers of a replication port that speak its protocols byte by byte."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ariane.replication.frames import MAGIC, FrameDecoder, Kind, hello_bytes
from ariane.replication.hello import Hello, Welcome, decoded, new_challenge, slave_proof
from ariane.replication.master import Master
from tests.replication.golden_ha import FILE_BYTES
from tests.transport.peers import PATIENCE_S


@asynccontextmanager
async def peer_of(master: Master) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(master.address.host, master.address.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the master closes the connection; what it sent before is read."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while await reader.read(65_536):
                pass
        except ConnectionError:
            pass
    return True


async def frames_until(
    reader: asyncio.StreamReader, end: int, *, native: bool = False
) -> list[tuple[Kind, int, bytes]]:
    decoder, frames = FrameDecoder(native=native), list[tuple[Kind, int, bytes]]()
    async with asyncio.timeout(PATIENCE_S):
        while not frames or frames[-1][1] + len(frames[-1][2]) < end:
            data = await reader.read(len(decoder.get_buffer()))
            assert data, "closed"
            decoder.add(data)
            while (frame := decoder.next_frame()) is not None:
                frames.append((frame.kind, frame.offset, bytes(frame.body)))
    return frames


async def introduce(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, member: int = 1) -> None:
    """As an empty slave of Ariane, until it is welcome."""
    hello = Hello(
        cluster="DefaultCluster", group="broker-a", member=member, file_size=FILE_BYTES, min=0, end=0, tail=(0, 0),
        challenge=new_challenge(),
    ).to_bytes()  # fmt: skip
    writer.write(MAGIC + hello_bytes(hello))
    challenge, _ = [await introduction(reader), await introduction(reader)]
    writer.write(hello_bytes(slave_proof(None, hello, challenge)))
    assert decoded(Welcome, await introduction(reader)).refused is None


async def introduction(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
