"""A call whose frame its caller has written: one future, and one await between the two."""

from asyncio import CancelledError
from typing import Any

from ariane.transport.connection import Connection
from ariane.wire.declare import declaration_of
from ariane.wire.exchange import read_answer_to
from ariane.wire.fields import Request


async def short_call(
    connection: Connection, kind: type[Request[Any]], opaque: int, frame: bytes, timeout_s: float
) -> Any:
    """The answer to a request of this kind, or the errors of `Instance.call`. The connection must take requests."""
    waiter = connection.ask(opaque, frame, timeout_s)
    try:
        return read_answer_to(kind, await waiter)
    except TimeoutError:
        raise connection.no_answer(declaration_of(kind).code, timeout_s) from None
    except CancelledError:
        connection.forget(opaque, waiter)
        raise
