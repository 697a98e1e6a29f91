"""Typed client calls: `response = await caller.call(address, GetMaxOffset("orders", 0))`."""

from typing import Any, TypeVar

from ariane.transport.connection import Connection
from ariane.transport.pool import Pool
from ariane.wire.codes import Serialization
from ariane.wire.exchange import read_response, request_command
from ariane.wire.fields import Request, Response
from ariane.wire.frame import encode_frame

A = TypeVar("A", bound=Response)


class Caller:
    def __init__(self, pool: Pool, serialization: Serialization = Serialization.JSON) -> None:
        self._pool = pool
        self._serialization = serialization

    async def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        """The response; RequestFailed when the peer refuses, TransportError when it cannot be reached or does not
        respond."""
        command = request_command(request, opaque=0, serialization=self._serialization)
        return read_response(request, await self._pool.call(address, command, timeout_s))

    async def oneway(self, address: str, request: Request[Any]) -> None:
        """Sends a one-way request: the peer does not respond, so failures go unnoticed."""
        await self._pool.send(
            address, request_command(request, opaque=0, oneway=True, serialization=self._serialization)
        )


async def call_peer(connection: Connection, request: Request[A], timeout_s: float) -> A:
    """A call to the client that opened this connection, as a broker makes them."""
    return read_response(request, await connection.call(request_command(request, opaque=0), timeout_s))


def notify_peer(connection: Connection, request: Request[Any]) -> None:
    """A one-way call to the client that opened this connection; dropped when it is gone."""
    connection.write(encode_frame(request_command(request, opaque=0, oneway=True)))
