"""Command to struct to handler to answer."""

from collections.abc import Awaitable, Callable
from typing import Any

from ariane.rpc.failures import failure, unsupported
from ariane.rpc.handlers import Call, Encoded, HandlerTable, Later, Outcome, encode_outcome
from ariane.transport.connection import Connection, Lane, Reply
from ariane.wire.exchange import read_request
from ariane.wire.fields import Answer, Request
from ariane.wire.frame import Command

Guard = Callable[[Connection, Command, Request[Any]], None]


class Dispatcher:
    """What a connection calls with each request; give `receive` to a server or a pool, and `lane` to a server."""

    def __init__(self, table: HandlerTable, guard: Guard | None = None) -> None:
        """`guard` sees every request that has a handler before the handler does; what it raises is the answer."""
        self._table = table
        self._guard = guard

    @property
    def lane(self) -> Lane | None:
        """The short way for frames. There is none past a guard, which wants to see each request."""
        return self._table.lane if self._guard is None else None

    def receive(self, connection: Connection, command: Command) -> Reply:
        route = self._table.get(command.code)
        if route is None:
            return encode_outcome(command, unsupported(command.code))
        try:
            ask = read_request(route.declaration, command)
            if self._guard is not None:
                self._guard(connection, command, ask)
            outcome = route.handler(ask, Call(connection, command))
        except Exception as error:
            return encode_outcome(command, failure(connection, command, error))
        if isinstance(outcome, (Answer, Encoded, Later, bytes)):
            return encode_outcome(command, outcome)
        return self._finish(connection, command, outcome)

    async def _finish(self, connection: Connection, command: Command, pending: Awaitable[Outcome]) -> bytes | None:
        try:
            outcome = await pending
        except Exception as error:
            outcome = failure(connection, command, error)
        return encode_outcome(command, outcome)
