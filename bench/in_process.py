"""A whole broker without sockets: what is left is its own code. For bench.send_path, pull_path and transaction_path."""

import asyncio
import tempfile
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from ariane.broker.server import Broker, dispatcher_of, running
from ariane.broker.settings import BrokerSettings
from ariane.clock import Clock
from ariane.errors import sole_cause
from ariane.store.settings import FlushDiskType, StoreSettings
from ariane.transport.connection import Connection
from ariane.transport.settings import TransportSettings


class Nowhere(asyncio.Transport):
    """A transport that keeps what was written to it, or only the last `kept` of it."""

    def __init__(self, kept: int | None = None) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000)})
        self.written: deque[bytes] = deque(maxlen=kept)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: Any) -> None:
        self.written.append(data)


def broker_on(root: Path, accounts: Path | None = None) -> AbstractAsyncContextManager[Broker]:
    """With access control if there is a file of accounts."""
    store = StoreSettings(root=root, flush_disk_type=FlushDiskType.ASYNC)
    access = {} if accounts is None else {"acl_enable": True, "acl_file": accounts}
    return running(BrokerSettings(port=0, store=store, **access), Clock())  # type: ignore[arg-type]


def connection_to(broker: Broker, transport: Nowhere) -> Connection:
    return connections_to(broker, transport, 1)[0]


def connections_to(broker: Broker, transport: Nowhere, count: int) -> list[Connection]:
    """They share their handlers, and with them what is enqueued in one event-loop iteration."""
    dispatcher = dispatcher_of(broker.parts, broker.replication)
    settings, clock = TransportSettings(), Clock()
    connections = [
        Connection(dispatcher.receive, settings, clock, lambda _: None, dispatcher.fast_path) for _ in range(count)
    ]
    for connection in connections:
        connection.connection_made(transport)
    return connections


def on_a_store(measure: Callable[[Path], Coroutine[Any, Any, None]]) -> None:
    """Runs it with the path of a store that is not there yet, and removes the store in the end."""
    with tempfile.TemporaryDirectory() as root:
        try:
            asyncio.run(measure(Path(root) / "store"))
        except ExceptionGroup as error:
            raise sole_cause(error) from None
