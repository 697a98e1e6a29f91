"""RPC calls with a pre-encoded request frame: no Command is built for the request.

Between sending the frame and the response there is one future and one await.
"""

from asyncio import CancelledError, Future
from collections.abc import Coroutine
from typing import Any

from ariane.transport.connection import Connection
from ariane.wire.exchange import declaration_of, read_response_to
from ariane.wire.fields import Request
from ariane.wire.frame import Command


def call_with_frame(
    connection: Connection, kind: type[Request[Any]], opaque: int, frame: bytes, timeout_s: float
) -> Coroutine[Any, Any, Any]:
    """The response to a request of this kind, or the errors of `Instance.call`. The connection must be open."""
    return _response(connection, kind, opaque, connection.start_call(opaque, frame, timeout_s), timeout_s)


class PipelinedCall:
    """A call that is sent ahead: its response is awaited later, or not at all."""

    __slots__ = ("_connection", "_kind", "_opaque", "_timeout_s", "_waiter")

    def __init__(
        self, connection: Connection, kind: type[Request[Any]], opaque: int, frame: bytes, timeout_s: float
    ) -> None:
        self._connection, self._kind, self._opaque, self._timeout_s = connection, kind, opaque, timeout_s
        self._waiter = connection.start_call(opaque, frame, timeout_s)

    def response(self) -> Coroutine[Any, Any, Any]:
        """To be awaited once; as that of `call_with_frame`."""
        return _response(self._connection, self._kind, self._opaque, self._waiter, self._timeout_s)

    def forget(self) -> None:
        """The response will not be awaited."""
        self._connection.abandon_call(self._opaque, self._waiter)


async def _response(
    connection: Connection, kind: type[Request[Any]], opaque: int, waiter: "Future[Command]", timeout_s: float
) -> Any:
    try:
        return read_response_to(kind, await waiter)
    except TimeoutError:
        raise connection.timeout_error(declaration_of(kind).code, timeout_s) from None
    except CancelledError:
        connection.abandon_call(opaque, waiter)
        raise
