"""Typed client calls: `response = await caller.call(address, GetMaxOffset("orders", 0))`.

The connection matches a response with its request, by opaque number (transport/pending_calls.py).
"""

import asyncio
from typing import Any, TypeVar

from ariane.rpc.signing import Signer
from ariane.transport.connection import Connection
from ariane.transport.pool import Pool
from ariane.wire.codes import Serialization
from ariane.wire.exchange import read_response, request_command
from ariane.wire.fields import Request, Response
from ariane.wire.frame import Command, encode_frame

A = TypeVar("A", bound=Response)

_SIGNINGS_MAX = 3
"""Unsigned; then as the server needs it; and once more if the clocks differ."""


class Caller:
    def __init__(
        self, pool: Pool, serialization: Serialization = Serialization.JSON, signer: Signer | None = None
    ) -> None:
        """With a `signer` calls are signed as each server needs it; one-way requests are not."""
        self._pool = pool
        self._serialization = serialization
        self._signer = signer

    async def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        """The response; RequestFailed when the peer refuses, TransportError when it cannot be reached or does not
        respond."""
        command = request_command(request, opaque=0, serialization=self._serialization)
        if self._signer is None:
            return read_response(request, await self._pool.call(address, command, timeout_s))
        timeout_s = self._pool.call_timeout_s if timeout_s is None else timeout_s
        return read_response(request, await call_signed(self._pool, self._signer, address, command, timeout_s))

    async def oneway(self, address: str, request: Request[Any]) -> None:
        """Sends a one-way request: the peer does not respond, so failures go unnoticed."""
        await self._pool.send(
            address, request_command(request, opaque=0, oneway=True, serialization=self._serialization)
        )


async def call_signed(pool: Pool, signer: Signer, address: str, command: Command, timeout_s: float) -> Command:
    """Signs as the server needs it: the response to the first request on a connection tells, and refuses it."""
    now = asyncio.get_running_loop().time
    deadline = now() + timeout_s
    connection = pool.ready(address) or await pool.connection(address, timeout_s)
    for _ in range(_SIGNINGS_MAX):
        signer.sign(command, connection)
        response = await connection.call(command, max(0.0, deadline - now()))
        if not signer.learn(connection, command, response):
            break
    return response


async def call_peer(connection: Connection, request: Request[A], timeout_s: float) -> A:
    """A call to the client that opened this connection, as a broker makes them."""
    return read_response(request, await connection.call(request_command(request, opaque=0), timeout_s))


def notify_peer(connection: Connection, request: Request[Any]) -> None:
    """A one-way call to the client that opened this connection; dropped when it is gone."""
    connection.write(peer_notice(request))


def peer_notice(request: Request[Any]) -> bytes:
    """The frame of a one-way call, to be written to many clients."""
    return encode_frame(request_command(request, opaque=0, oneway=True))
