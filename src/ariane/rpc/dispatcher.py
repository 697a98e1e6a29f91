"""The dispatcher: from a command to its request struct, to its handler, to the response."""

from collections.abc import Awaitable, Callable
from typing import Any

from ariane.lifecycle import in_thread
from ariane.logs import RepeatedWarnings
from ariane.rpc import failures
from ariane.rpc.failures import excessive, failure, unsupported
from ariane.rpc.handlers import Call, Deferred, Encoded, HandlerResult, HandlerTable, Route, encode_result
from ariane.transport.connection import Connection, FastPath, ReceiveResult
from ariane.wire.exchange import is_slow_to_read, read_request
from ariane.wire.fast.fields import FrameCheck
from ariane.wire.fields import Request, Response
from ariane.wire.frame import Command

Guard = Callable[[Connection, Command, Request[Any]], None]
FrameGuard = Callable[[Connection, Request[Any], bytes, bytes], bool]
"""The guard of the fast path: the request, its whole header, its body. False leaves the frame to the general path."""
FrameLeft = Callable[[Connection], None]
"""Called when the fast path leaves the frame that passed its guard last: the general path's guard sees it next."""

_PREFIX_BYTES = 8


class Dispatcher:
    """What a connection calls with each request; give `receive` to a server or a pool, and `fast_path` to a server."""

    def __init__(
        self,
        table: HandlerTable,
        guard: Guard | None = None,
        frame_guard: FrameGuard | None = None,
        frame_left: FrameLeft | None = None,
    ) -> None:
        """`guard` sees every request that has a handler before the handler does; what it raises is the response.

        `frame_guard` decides the same for frames on the fast path. A guard without it switches the fast path off.
        """
        self._table = table
        self._guard = guard
        self._frame_guard = frame_guard
        self._frame_left = frame_left
        self._warnings = RepeatedWarnings(failures.log)

    @property
    def fast_path(self) -> FastPath | None:
        """The handlers' fast paths for frames, as one; None when there are none."""
        fast_paths, guard, left = self._table.fast_paths, self._frame_guard, self._frame_left
        if not fast_paths or (self._guard is not None and guard is None):
            return None

        def take(connection: Connection, data: bytes, position: int, check: FrameCheck | None = None) -> int:
            """Each is tried in turn until one takes something; the connection comes again for what follows."""
            for fast_path in fast_paths:
                end = fast_path(connection, data, position, check)
                if end > position:
                    return end
            return position

        def guarded(connection: Connection, data: bytes, position: int) -> int:
            admitted = position  # where the frames end that passed the guard

            def check(request: Request[Any], header: bytes, body: bytes) -> bool:
                nonlocal admitted
                assert guard is not None
                if not guard(connection, request, header, body):
                    return False
                admitted += _PREFIX_BYTES + len(header) + len(body)
                return True

            end = take(connection, data, position, check)
            if end < admitted and left is not None:
                left(connection)
            return end

        return take if guard is None else guarded

    def receive(self, connection: Connection, command: Command) -> ReceiveResult:
        route = self._table.get(command.code)
        if route is None:
            return encode_result(command, unsupported(command.code))
        if command.excess is not None:
            return encode_result(command, excessive(connection, command, self._warnings))
        if is_slow_to_read(route.declaration, command):
            return self._finish(connection, command, self._read_and_handle(route, connection, command))
        try:
            outcome = self._handle(route, connection, command, read_request(route.declaration, command))
        except Exception as error:
            return encode_result(command, failure(connection, command, error, self._warnings))
        if isinstance(outcome, (Response, Encoded, Deferred, bytes)):
            return encode_result(command, outcome)
        return self._finish(connection, command, outcome)

    def _handle(
        self, route: Route, connection: Connection, command: Command, request: Request[Any]
    ) -> HandlerResult | Awaitable[HandlerResult]:
        if self._guard is not None:
            self._guard(connection, command, request)
        return route.handler(request, Call(connection, command))

    async def _read_and_handle(self, route: Route, connection: Connection, command: Command) -> HandlerResult:
        with connection.holding(len(command.body)):
            request = await in_thread(read_request, route.declaration, command)
        outcome = self._handle(route, connection, command, request)
        return outcome if isinstance(outcome, (Response, Encoded, Deferred, bytes)) else await outcome

    async def _finish(
        self, connection: Connection, command: Command, pending: Awaitable[HandlerResult]
    ) -> bytes | None:
        try:
            outcome = await pending
        except Exception as error:
            outcome = failure(connection, command, error, self._warnings)
        return encode_result(command, outcome)
