"""HTTP server of GET /metrics: one request and response per connection.

Scrapers are untrusted: 5 s and 8 KiB per request, at most 8 concurrent requests, and an HTTP error status for anything
else. Requests do not block the event loop: values are collected in small steps, and a thread formats the text.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import NamedTuple

from ariane.broker.components import Components
from ariane.broker.metrics.collect import MetricsCollector
from ariane.broker.metrics.exposition import CONTENT_TYPE
from ariane.broker.settings import BrokerSettings, MetricsExporter
from ariane.errors import ArianeError, ListenFailed
from ariane.lifecycle import TaskSet, background
from ariane.model.address import Address
from ariane.replication.role import Replication
from ariane.transport.listener import listen

log = logging.getLogger(__name__)

PATH = "/metrics"
REQUEST_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 8
_REQUEST_TIMEOUT_S = 5.0
_RESPONSE_TIMEOUT_S = 60.0
_BACKLOG = 16
_CHUNKS_UNREAD_MAX = 8
_END = b"\r\n\r\n"
_TEXT = "text/plain; charset=utf-8"
_RESOURCE_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class HttpResponse(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT

    def encode(self) -> bytes:
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + self.body


@contextmanager
def metrics_listener(settings: BrokerSettings) -> Iterator[socket.socket | None]:
    """Binds the port, if metrics are enabled, before the store is opened: a port in use is reported immediately."""
    if settings.metrics_exporter is MetricsExporter.DISABLE:
        yield None
        return
    address = Address(settings.metrics_host or settings.host, settings.metrics_port)
    try:
        listener = listen(address, _BACKLOG)
    except ListenFailed as error:
        reason = str(error).partition(". ")[0]
        raise ListenFailed(
            f"{reason} for metrics. Set metricsPromExporterHost and metricsPromExporterPort to a free address of this "
            "machine, port 0 for any, or metricsExporterType to DISABLE."
        ) from error
    with listener:
        yield listener


class MetricsServer:
    """Create it with `open`, which runs it for the length of the body."""

    def __init__(self, listener: socket.socket, components: Components, replication: Replication) -> None:
        self._listener = listener
        self._collector = MetricsCollector(components, replication)
        self._tasks = TaskSet()
        self.address = Address(*listener.getsockname()[:2])

    @classmethod
    @asynccontextmanager
    async def open(
        cls, listener: socket.socket | None, components: Components, replication: Replication
    ) -> AsyncIterator["MetricsServer | None"]:
        """None without a listener: metrics are disabled."""
        if listener is None:
            yield None
            return
        server = cls(listener, components, replication)
        log.info("metrics served", extra={"url": f"http://{server.address}{PATH}"})
        try:
            async with background(server._accept_connections):
                yield server
        finally:
            server._tasks.cancel()
            await server._tasks.wait()

    async def _accept_connections(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                if error.errno in _RESOURCE_EXHAUSTED:
                    await asyncio.sleep(0.1)
                elif error.errno != errno.ECONNABORTED:
                    raise
                continue
            if len(self._tasks) < CONNECTIONS_MAX:
                self._tasks.spawn(self._serve(connection))
            else:
                connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.setblocking(False)
            try:
                async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                    request = await _request(connection)
                async with asyncio.timeout(_RESPONSE_TIMEOUT_S):
                    response = await self._respond(request)
                    await asyncio.get_running_loop().sock_sendall(connection, response.encode())
                if response.status is not HTTPStatus.OK:
                    async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                        await _drain(connection)
            except (OSError, TimeoutError) as error:
                log.debug("metrics request failed", extra={"reason": str(error) or "too slow"})

    async def _respond(self, request: bytes) -> HttpResponse:
        if not request.endswith(_END):
            too_long = len(request) >= REQUEST_BYTES_MAX
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if too_long else HTTPStatus.BAD_REQUEST
            return HttpResponse(
                status, f"expected one GET {PATH} request of at most {REQUEST_BYTES_MAX} bytes\n".encode()
            )
        words = request.decode("latin-1").split("\r\n")[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return HttpResponse(HTTPStatus.BAD_REQUEST, b"expected HTTP/1.1\n")
        if words[0] != "GET":
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET is supported\n")
        if words[1].partition("?")[0] != PATH:
            return HttpResponse(HTTPStatus.NOT_FOUND, f"only {PATH} is supported\n".encode())
        return await self._metrics()

    async def _metrics(self) -> HttpResponse:
        try:
            exposition = await self._collector.collect()
            return HttpResponse(HTTPStatus.OK, await asyncio.to_thread(exposition.text), CONTENT_TYPE)
        except (ArianeError, OSError) as error:  # an unreadable disk; the cause is logged elsewhere
            log.warning("metrics not collected", extra={"reason": str(error)})
            return HttpResponse(
                HTTPStatus.INTERNAL_SERVER_ERROR, b"metrics cannot be collected: see the log of the broker\n"
            )


async def _request(connection: socket.socket) -> bytes:
    """Reads up to the empty line, the end of the stream, or the limit. A body is not read: GET has none."""
    loop = asyncio.get_running_loop()
    request = b""
    while len(request) < REQUEST_BYTES_MAX:
        chunk = await loop.sock_recv(connection, REQUEST_BYTES_MAX - len(request))
        request += chunk
        if not chunk:
            break
        if _END in request:
            return request[: request.index(_END) + len(_END)]
    return request


async def _drain(connection: socket.socket) -> None:
    """Reads and discards for a while: closing a socket with unread bytes would discard the response."""
    connection.shutdown(socket.SHUT_WR)
    for _ in range(_CHUNKS_UNREAD_MAX):
        if not await asyncio.get_running_loop().sock_recv(connection, REQUEST_BYTES_MAX):
            return
