"""Command to struct to handler to answer: the one place where exceptions become response codes."""

import logging
from collections.abc import Awaitable
from typing import Any

from ariane.errors import ArianeError, RequestFailed, WireError
from ariane.rpc.handlers import Call, Encoded, HandlerTable, Outcome
from ariane.transport.connection import Connection, Reply
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.command import Command
from ariane.wire.exchange import answer_command, read_request
from ariane.wire.fields import Answer
from ariane.wire.frame import encode_frame

log = logging.getLogger(__name__)


class Dispatcher:
    """What a connection calls with each request; give `dispatcher.receive` to a server or a pool."""

    def __init__(self, table: HandlerTable) -> None:
        self._table = table

    def receive(self, connection: Connection, command: Command) -> Reply:
        route = self._table.get(command.code)
        if route is None:
            return self._reply(command, _unsupported(command.code))
        try:
            ask = read_request(route.declaration, command)
            outcome = route.handler(ask, Call(connection, command))
        except Exception as error:
            return self._reply(command, self._failure(connection, command, error))
        if isinstance(outcome, (Answer, Encoded)):
            return self._reply(command, outcome)
        return self._finish(connection, command, outcome)

    async def _finish(self, connection: Connection, command: Command, pending: Awaitable[Outcome]) -> bytes | None:
        try:
            outcome = await pending
        except Exception as error:
            outcome = self._failure(connection, command, error)
        return self._reply(command, outcome)

    def _reply(self, command: Command, outcome: Outcome) -> bytes | None:
        if command.is_oneway:
            return None
        answer, body = (outcome.answer, outcome.body) if isinstance(outcome, Encoded) else (outcome, None)
        try:
            return encode_frame(answer_command(command, answer, body))
        except WireError as error:  # our own answer breaks a limit, for example a body above 16 MiB
            log.error("answer cannot be sent", extra={"code": command.code, "reason": str(error)})  # noqa: TRY400
            return encode_frame(answer_command(command, Answer(code=ResponseCode.SYSTEM_ERROR, remark=str(error))))

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
