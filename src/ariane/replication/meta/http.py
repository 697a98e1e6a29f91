"""Just enough HTTP/1.1 for etcd's JSON gateway: POST and GET over one kept connection, bounded, on asyncio's streams.

A response may have a length or come in chunks; a watch is a response in chunks that does not end. What is not such a
response raises MetaUnavailable or MetaOutcomeUnknown by the caller's choice: here it is a ResponseError.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import NamedTuple

from ariane.model.address import Address

HEAD_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 4 * 1024 * 1024
LINE_BYTES_MAX = 2 * 1024 * 1024
"""Of one message of a watch. etcd takes requests of up to 1.5 MiB."""
_HEADERS_MAX = 64


class ResponseError(Exception):
    """The connection ended, or what came is no response. The connection cannot be used any more."""


class Response(NamedTuple):
    status: int
    body: bytes


class _Head(NamedTuple):
    status: int
    length: int | None
    """None when it comes in chunks."""
    keeps_open: bool


class HttpConnection:
    """One request at a time. After any error, and after a cancelled call, it is closed."""

    def __init__(self, peer: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._peer = peer
        self._reader = reader
        self._writer = writer
        self.is_open = True

    @classmethod
    async def open(cls, peer: Address, context: ssl.SSLContext | None) -> "HttpConnection":
        """OSError when it cannot be."""
        reader, writer = await asyncio.open_connection(peer.host, peer.port, ssl=context, limit=LINE_BYTES_MAX)
        return cls(peer, reader, writer)

    def close(self) -> None:
        self.is_open = False
        self._writer.transport.abort()

    async def request(self, method: str, path: str, body: bytes = b"", token: str | None = None) -> Response:
        keeps_open = False
        try:
            head = await self._send(method, path, body, token)
            parts = []
            size = 0
            async for part in self._body(head):
                size += len(part)
                if size > BODY_BYTES_MAX:
                    raise ResponseError(f"a response of more than {BODY_BYTES_MAX} bytes")
                parts.append(part)
            keeps_open = head.keeps_open
            return Response(head.status, b"".join(parts))
        finally:
            if not keeps_open:
                self.close()

    async def stream(self, path: str, body: bytes, token: str | None = None) -> AsyncIterator[bytes]:
        """The lines of a response that goes on; ResponseError with the text when it is an error. Ends with the
        stream. Close the connection afterwards."""
        head = await self._send("POST", path, body, token)
        rest = b""
        async for part in self._body(head):
            rest += part
            if len(rest) > LINE_BYTES_MAX:
                raise ResponseError(f"a message of more than {LINE_BYTES_MAX} bytes")
            *lines, rest = rest.split(b"\n")
            for line in lines:
                if line.strip():
                    yield line
        if rest.strip():
            yield rest

    # --- the parts of a response ---

    async def _send(self, method: str, path: str, body: bytes, token: str | None) -> _Head:
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self._peer}",
            f"Content-Length: {len(body)}",
            "Content-Type: application/json",
        ]
        if token is not None:
            lines.append(f"Authorization: {token}")
        try:
            self._writer.write("\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body)
            await self._writer.drain()
        except OSError as error:
            raise ResponseError(str(error)) from error
        return await self._head()

    async def _head(self) -> _Head:
        words = (await self._line()).split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise ResponseError("not an HTTP response")
        status, length, in_chunks = int(words[1]), 0, False
        keeps_open = words[0] == b"HTTP/1.1"
        for _ in range(_HEADERS_MAX):
            line = await self._line()
            if not line:
                return _Head(status, None if in_chunks else length, keeps_open)
            name, _, value = line.partition(b":")
            name, value = name.strip().lower(), value.strip().lower()
            if name == b"content-length":
                length = _number(value, 10)
            elif name == b"transfer-encoding":
                in_chunks = value == b"chunked"
            elif name == b"connection" and value == b"close":
                keeps_open = False
        raise ResponseError(f"a response with more than {_HEADERS_MAX} headers")

    async def _body(self, head: _Head) -> AsyncIterator[bytes]:
        if head.length is not None:
            if head.length > BODY_BYTES_MAX:
                raise ResponseError(f"a response of {head.length} bytes, at most {BODY_BYTES_MAX} are taken")
            yield await self._exactly(head.length)
            return
        while size := await self._chunk_size():
            yield await self._exactly(size)
            if await self._line():
                raise ResponseError("a chunk that does not end where it should")
        for _ in range(_HEADERS_MAX):  # fields of a trailer, as etcd 3.4 sends with errors
            if not await self._line():
                return
        raise ResponseError(f"a response with more than {_HEADERS_MAX} fields behind its body")

    async def _chunk_size(self) -> int:
        line = await self._line()
        if not line:
            raise ResponseError("the stream ended inside a chunk")
        size = _number(line.partition(b";")[0].strip(), 16)
        if size > BODY_BYTES_MAX:
            raise ResponseError(f"a chunk of {size} bytes, at most {BODY_BYTES_MAX} are taken")
        return size

    async def _exactly(self, size: int) -> bytes:
        try:
            return await self._reader.readexactly(size)
        except (OSError, EOFError) as error:
            raise ResponseError(f"the connection ended inside a response: {error}") from error

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readuntil(b"\n")
        except (OSError, EOFError) as error:
            raise ResponseError(f"the connection ended: {error}") from error
        except asyncio.LimitOverrunError:
            raise ResponseError("a line without end") from None
        if len(line) > HEAD_BYTES_MAX:
            raise ResponseError(f"a line of {len(line)} bytes, at most {HEAD_BYTES_MAX} are taken")
        return line.rstrip(b"\r\n")


def _number(text: bytes, base: int) -> int:
    """Digits only: int() would take signs, spaces and underscores."""
    digits = b"0123456789abcdef"[:base]
    if not text or len(text) > 16 or any(byte not in digits for byte in text.lower()):
        raise ResponseError(f"{text[:20]!r} is not a length")
    return int(text, base)
