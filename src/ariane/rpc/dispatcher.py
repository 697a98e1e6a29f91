"""Command to struct to handler to answer."""

from collections.abc import Awaitable, Callable
from typing import Any

from ariane.rpc.failures import failure, unsupported
from ariane.rpc.handlers import Call, Deferred, Encoded, HandlerResult, HandlerTable, encode_result
from ariane.transport.connection import Connection, FastPath, ReceiveResult
from ariane.wire.exchange import read_request
from ariane.wire.fields import Request, Response
from ariane.wire.frame import Command

Guard = Callable[[Connection, Command, Request[Any]], None]


class Dispatcher:
    """What a connection calls with each request; give `receive` to a server or a pool, and `fast_path` to a server."""

    def __init__(self, table: HandlerTable, guard: Guard | None = None) -> None:
        """`guard` sees every request that has a handler before the handler does; what it raises is the answer."""
        self._table = table
        self._guard = guard

    @property
    def fast_path(self) -> FastPath | None:
        """The short way for frames. There is none past a guard, which wants to see each request."""
        return self._table.fast_path if self._guard is None else None

    def receive(self, connection: Connection, command: Command) -> ReceiveResult:
        route = self._table.get(command.code)
        if route is None:
            return encode_result(command, unsupported(command.code))
        try:
            request = read_request(route.declaration, command)
            if self._guard is not None:
                self._guard(connection, command, request)
            outcome = route.handler(request, Call(connection, command))
        except Exception as error:
            return encode_result(command, failure(connection, command, error))
        if isinstance(outcome, (Response, Encoded, Deferred, bytes)):
            return encode_result(command, outcome)
        return self._finish(connection, command, outcome)

    async def _finish(
        self, connection: Connection, command: Command, pending: Awaitable[HandlerResult]
    ) -> bytes | None:
        try:
            outcome = await pending
        except Exception as error:
            outcome = failure(connection, command, error)
        return encode_result(command, outcome)
