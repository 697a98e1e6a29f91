"""What a slave refuses: everything that would write to its log or change its tables, with the codes of Apache's slave.

sends                                     SERVICE_NOT_AVAILABLE: clients try another broker
a message sent back by a consumer         SYSTEM_ERROR
the outcome of a transaction              SLAVE_NOT_AVAILABLE
topics and groups, created or deleted     SYSTEM_ERROR: they come from the master
"""

from typing import Any, NamedTuple

from ariane.errors import RequestFailed
from ariane.rpc.dispatcher import FrameGuard, FrameLeft, Guard
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Request
from ariane.wire.frame import Command
from ariane.wire.requests.groups import DeleteGroup, UpdateGroup
from ariane.wire.requests.send import EndTransaction, ResumeTransactionChecks, Send, SendBack
from ariane.wire.requests.topics import DeleteTopicInBroker, UpdateTopic

_NOT_WRITABLE = "service not available now: this broker is a slave, send to the master"
_NOT_CHANGEABLE = (
    "Can't modify topic or subscription group from slave broker, please execute it from master broker."  # as Apache's
)

_REFUSED: dict[type[Request[Any]], tuple[ResponseCode, str]] = {
    Send: (ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_WRITABLE),
    SendBack: (ResponseCode.SYSTEM_ERROR, f"SERVICE_NOT_AVAILABLE: {_NOT_WRITABLE}"),
    EndTransaction: (ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave: the master decides transactions"),
    ResumeTransactionChecks: (ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_WRITABLE),
    UpdateTopic: (ResponseCode.SYSTEM_ERROR, _NOT_CHANGEABLE),
    DeleteTopicInBroker: (ResponseCode.SYSTEM_ERROR, _NOT_CHANGEABLE),
    UpdateGroup: (ResponseCode.SYSTEM_ERROR, _NOT_CHANGEABLE),
    DeleteGroup: (ResponseCode.SYSTEM_ERROR, _NOT_CHANGEABLE),
}


_REFUSED_KINDS = tuple(_REFUSED)


class Guards(NamedTuple):
    """The guards of a dispatcher (rpc/dispatcher.py)."""

    guard: Guard | None = None
    frame_guard: FrameGuard | None = None
    frame_left: FrameLeft | None = None


def at_slave(guards: Guards) -> Guards:
    """With a slave's refusals behind those of access control; the fast path leaves these to the general path."""

    def guard(connection: Connection, command: Command, request: Request[Any]) -> None:
        if guards.guard is not None:
            guards.guard(connection, command, request)
        for kind, (code, remark) in _REFUSED.items():
            if isinstance(request, kind):
                raise RequestFailed(code, remark)

    def frame_guard(connection: Connection, request: Request[Any], header: bytes, body: bytes) -> bool:
        if isinstance(request, _REFUSED_KINDS):
            return False
        return guards.frame_guard is None or guards.frame_guard(connection, request, header, body)

    return Guards(guard, frame_guard, guards.frame_left)
