"""Exceptions to response codes, for all handlers."""

import logging
from typing import Any

from msgspec import field

from ariane.errors import ArianeError, RequestFailed, SignatureRequired
from ariane.logs import RepeatedWarnings
from ariane.transport.connection import Connection
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.fields import Response
from ariane.wire.frame import Command
from ariane.wire.signature import CHALLENGE, SERVER_TIME

log = logging.getLogger(__name__)

_REFUSED = "request refused"


class Challenge(Response, frozen=True, kw_only=True):
    """A refusal with what the client needs for a signature of version 2 (rpc/signature_checks.py)."""

    challenge: str = field(name=CHALLENGE)
    time_ms: int = field(name=SERVER_TIME)


def failure(
    connection: Connection, command: Command, error: Exception, warnings: RepeatedWarnings | None = None
) -> Response:
    """The response to `error`. A bug is logged with its traceback, which the response does not contain.

    `warnings` are those of the server: a client may send the same bad request for ever.
    """
    if isinstance(error, SignatureRequired):
        return Challenge(code=error.code, remark=error.remark, challenge=error.challenge, time_ms=error.time_ms)
    if isinstance(error, RequestFailed):
        return Response(code=error.code, remark=error.remark)
    context: dict[str, Any] = {"peer": connection.peer, "request": request_name(command.code)}
    if isinstance(error, ArianeError):
        context |= {"error": type(error).__name__, "reason": str(error)}
        _warn(connection, command, context, warnings)
        return Response(code=ResponseCode.SYSTEM_ERROR, remark=str(error))
    # A bug: the log gets the traceback, the peer only what helps to find it there.
    log.error("request failed", extra=context, exc_info=error)
    return Response(
        code=ResponseCode.SYSTEM_ERROR,
        remark=f"internal error ({type(error).__name__}) at {request_name(command.code)}; see the server's log",
    )


_SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})


def excessive(connection: Connection, command: Command, warnings: RepeatedWarnings) -> Response:
    """The response to a request whose header exceeds a limit. For a send this code says: do not try again."""
    context = {"peer": connection.peer, "request": request_name(command.code), "reason": command.excess}
    _warn(connection, command, context, warnings)
    code = ResponseCode.MESSAGE_ILLEGAL if command.code in _SENDS else ResponseCode.SYSTEM_ERROR
    return Response(code=code, remark=command.excess)


def _warn(connection: Connection, command: Command, context: dict[str, Any], warnings: RepeatedWarnings | None) -> None:
    if warnings is None:
        log.warning(_REFUSED, extra=context)
        return
    host = connection.peer.rpartition(":")[0]  # without the port: some clients open a connection for each request
    warnings.warning(_REFUSED, (host, command.code, context.get("error")), context)


def unsupported(code: int) -> Response:
    return Response(
        code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"request {request_name(code)} is not served here"
    )


def request_name(code: int) -> str:
    try:
        return f"{RequestCode(code).name} ({code})"
    except ValueError:
        return str(code)
