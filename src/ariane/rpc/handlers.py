"""Request handlers: which method serves which request.

A handler group is an object whose methods carry `@handles(SomeRequest)`. A handler returns its response, or is a
coroutine: one that does not await is answered in the same event-loop iteration, without a task. It may also return
`DEFERRED` and keep its `Call`: a long-polling pull then costs neither a task nor a slot among the requests in flight,
and is answered by `call.respond(...)` when its message arrives.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from ariane.errors import WireError
from ariane.lifecycle import in_thread
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import Declaration, declaration_of, response_command
from ariane.wire.fast.fields import FrameCheck
from ariane.wire.fields import Request, Response
from ariane.wire.frame import Command, encode_frame
from ariane.wire.json.body import JsonBody

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A response whose body is already bytes: encoded once, sent to many."""

    response: Response
    body: bytes


async def encoded_by_thread(response: Response, body: Callable[[], JsonBody]) -> Encoded:
    """For a body of perhaps a hundred thousand rows: a thread makes and encodes it, so the event loop goes on."""
    return Encoded(response, await in_thread(lambda: body().to_bytes()))


class Deferred(Enum):
    DEFERRED = "later"


DEFERRED: Final = Deferred.DEFERRED
"""What a handler returns that has no response now, and perhaps never: a one-way END_TRANSACTION gets none."""

HandlerResult = Response | Encoded | Deferred | bytes
"""Bytes are the whole frame, for handlers that encode their most common responses themselves."""


class Call(NamedTuple):
    """Where a request came from: the connection, and the command as it came."""

    connection: Connection
    command: Command

    def respond(self, outcome: Response | Encoded | bytes) -> None:
        """The response to a request whose handler returned `DEFERRED`; dropped when the peer is gone."""
        data = encode_result(self.command, outcome)
        if data is not None:
            self.connection.write(data)


def encode_result(command: Command, outcome: HandlerResult) -> bytes | None:
    """The response frame to `command`; None when it wants none, or not yet."""
    if command.is_oneway or isinstance(outcome, Deferred):
        return None
    if isinstance(outcome, bytes):
        return outcome
    response, body = (outcome.response, outcome.body) if isinstance(outcome, Encoded) else (outcome, None)
    try:
        return encode_frame(response_command(command, response, body))
    except WireError as error:  # the response exceeds a limit, for example a body above 16 MiB
        log.error("answer cannot be sent", extra={"code": command.code, "reason": str(error)})  # noqa: TRY400
        return encode_frame(response_command(command, Response(code=ResponseCode.SYSTEM_ERROR, remark=str(error))))


Handler = Callable[[Any, Call], HandlerResult | Awaitable[HandlerResult]]
H = TypeVar("H", bound=Callable[..., Any])

_MARK = "__handles__"


def handles(request: type[Request[Any]]) -> Callable[[H], H]:
    """Marks a method of a handler group as the handler of `request`."""

    def mark(method: H) -> H:
        setattr(method, _MARK, declaration_of(request))
        return method

    return mark


GroupFastPath = Callable[[Connection, bytes, int, FrameCheck | None], int]
"""As `FastPath` (transport/connection.py), and with the check of access control for each frame."""


@runtime_checkable
class HasFastPath(Protocol):
    """A handler group that handles common frames without the table."""

    fast_path: GroupFastPath


@dataclass(frozen=True, slots=True)
class Route:
    declaration: Declaration
    handler: Handler


class HandlerTable:
    """Code to handler, built once at start."""

    def __init__(self, routes: dict[int, Route], fast_paths: Sequence[GroupFastPath] = ()) -> None:
        """`fast_paths` handle frames without the table."""
        self._routes = routes
        self.fast_paths = tuple(fast_paths)
        self.get = routes.get

    @classmethod
    def of(cls, *groups: object) -> "HandlerTable":
        routes: dict[int, Route] = {}
        for route in (route for group in groups for route in _routes_of(group)):
            if route.declaration.code in routes:
                raise ValueError(f"{route.declaration.code.name} has two handlers")
            routes[route.declaration.code] = route
        return cls(routes, [group.fast_path for group in groups if isinstance(group, HasFastPath)])

    def codes(self) -> set[int]:
        return set(self._routes)


def _routes_of(group: object) -> Iterator[Route]:
    for name, function in inspect.getmembers(type(group), inspect.isfunction):
        if hasattr(function, _MARK):
            yield Route(getattr(function, _MARK), getattr(group, name))
