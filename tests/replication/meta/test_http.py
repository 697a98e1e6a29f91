"""Responses of HTTP: those that are whole, those that are not, those that are too large."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ariane.model.address import Address
from ariane.replication.meta.http import BODY_BYTES_MAX, HttpConnection, Response, ResponseError


@asynccontextmanager
async def scripted(*responses: bytes) -> AsyncIterator[HttpConnection]:
    """A server that answers each request with the next of these bytes, and closes behind the last."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for response in responses:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(response)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        connection = await HttpConnection.open(Address("127.0.0.1", server.sockets[0].getsockname()[1]), None)
        try:
            yield connection
        finally:
            connection.close()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("bytes_", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b""),
        (CHUNKED + b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", b"abc"),
        (CHUNKED + b"3\r\nabc\r\n0\r\nGrpc-Status: 5\r\nGrpc-Message: no\r\n\r\n", b"abc"),
    ],
)
async def test_a_response_is_read_whole_and_the_connection_kept(bytes_: bytes, body: bytes) -> None:
    async with scripted(bytes_, bytes_) as connection:
        for _ in range(2):
            assert await connection.request("POST", "/", b"{}") == Response(200, body)
            assert connection.is_open


async def test_a_connection_that_the_server_will_close_is_not_used_again() -> None:
    async with scripted(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno") as connection:
        assert await connection.request("GET", "/") == Response(404, b"no")
        assert not connection.is_open


@pytest.mark.parametrize(
    "bytes_",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n0123456789",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1),
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 100 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 20_000 + b"\r\n\r\n",
        CHUNKED + b"3\r\nab",
        CHUNKED + b"3\r\nabc0\r\n\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"ffffffff\r\n",
        CHUNKED + (b"100000\r\n" + b"a" * 0x100000 + b"\r\n") * 5,
    ],
)
async def test_what_is_no_response_closes_the_connection(bytes_: bytes) -> None:
    async with scripted(bytes_) as connection:
        with pytest.raises(ResponseError):
            await connection.request("POST", "/", b"{}")
        assert not connection.is_open


async def test_a_stream_is_split_into_lines_however_it_is_cut_into_chunks() -> None:
    cuts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (b'{"a"', b':1}\n{"b":2}\n', b'{"c":3}'))
    async with scripted(CHUNKED + cuts + b"0\r\n\r\n") as connection:
        assert [line async for line in connection.stream("/", b"{}")] == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


async def test_a_stream_that_ends_inside_a_chunk_is_an_error_after_its_whole_lines() -> None:
    lines: list[bytes] = []
    async with scripted(CHUNKED + b"4\r\n{}\n{\r\n9\r\n") as connection:
        with pytest.raises(ResponseError):
            await _collect(connection, lines)
    assert lines == [b"{}"]


async def _collect(connection: HttpConnection, lines: list[bytes]) -> None:
    async for line in connection.stream("/", b"{}"):
        lines.append(line)
