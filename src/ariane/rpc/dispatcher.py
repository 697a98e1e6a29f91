"""Command to struct to handler to answer: the one place where exceptions become response codes."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ariane.errors import ArianeError, RequestFailed
from ariane.rpc.handlers import Call, Encoded, HandlerTable, Later, Outcome, encode_outcome
from ariane.transport.connection import Connection, Reply
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.command import Command
from ariane.wire.exchange import read_request
from ariane.wire.fields import Answer, Request

log = logging.getLogger(__name__)

Guard = Callable[[Connection, Command, Request[Any]], None]


class Dispatcher:
    """What a connection calls with each request; give `dispatcher.receive` to a server or a pool."""

    def __init__(self, table: HandlerTable, guard: Guard | None = None) -> None:
        """`guard` sees every request that has a handler before the handler does; what it raises is the answer."""
        self._table = table
        self._guard = guard

    def receive(self, connection: Connection, command: Command) -> Reply:
        route = self._table.get(command.code)
        if route is None:
            return encode_outcome(command, _unsupported(command.code))
        try:
            ask = read_request(route.declaration, command)
            if self._guard is not None:
                self._guard(connection, command, ask)
            outcome = route.handler(ask, Call(connection, command))
        except Exception as error:
            return encode_outcome(command, self._failure(connection, command, error))
        if isinstance(outcome, (Answer, Encoded, Later)):
            return encode_outcome(command, outcome)
        return self._finish(connection, command, outcome)

    async def _finish(self, connection: Connection, command: Command, pending: Awaitable[Outcome]) -> bytes | None:
        try:
            outcome = await pending
        except Exception as error:
            outcome = self._failure(connection, command, error)
        return encode_outcome(command, outcome)

    def _failure(self, connection: Connection, command: Command, error: Exception) -> Answer:
        if isinstance(error, RequestFailed):
            return Answer(code=error.code, remark=error.remark)
        context: dict[str, Any] = {"peer": connection.peer, "request": _name(command.code)}
        if isinstance(error, ArianeError):
            log.warning("request refused", extra=context | {"error": type(error).__name__, "reason": str(error)})
            return Answer(code=ResponseCode.SYSTEM_ERROR, remark=str(error))
        # A mistake of ours: the log gets the traceback, the peer only what helps to find it there.
        log.error("request failed", extra=context, exc_info=error)
        return Answer(
            code=ResponseCode.SYSTEM_ERROR,
            remark=f"internal error ({type(error).__name__}) at {_name(command.code)}; see the server's log",
        )


def _unsupported(code: int) -> Answer:
    return Answer(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"request {_name(code)} is not served here")


def _name(code: int) -> str:
    try:
        return f"{RequestCode(code).name} ({code})"
    except ValueError:
        return str(code)
