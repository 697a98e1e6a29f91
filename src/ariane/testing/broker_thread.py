"""A nameserver and a broker on an event loop of their own, in a thread of this process."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from ariane.broker.app import Broker, running
from ariane.broker.settings import BrokerSettings
from ariane.clock import Clock
from ariane.errors import sole_cause
from ariane.lifecycle import background
from ariane.model.address import Address
from ariane.nameserver.app import serve
from ariane.nameserver.settings import NameserverSettings
from ariane.transport.settings import TransportSettings

T = TypeVar("T")

_TRANSPORT = TransportSettings(drain_timeout_s=0.05)
"""A test is over when it is over: clients that it did not close are not waited for."""


@dataclass(frozen=True, slots=True)
class Servers:
    namesrv: str
    broker: Broker


class BrokerThread:
    """Made by `running`."""

    def __init__(self) -> None:
        self._stop: Callable[[], object] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: Future[Servers] = Future()
        self._ended: Future[None] = Future()

    @classmethod
    @contextmanager
    def running(cls, settings: BrokerSettings) -> Iterator["BrokerThread"]:
        """Raises what the servers raise: at the start, or later at the end."""
        one = cls()
        thread = threading.Thread(target=one._main, args=(settings,), name="ariane-broker", daemon=True)
        thread.start()
        try:
            one._started.result()
            yield one
        finally:
            one._stop()
            thread.join()
        one._ended.result()

    @property
    def servers(self) -> Servers:
        return self._started.result()

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs `work` beside the broker."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _main(self, settings: BrokerSettings) -> None:
        try:
            asyncio.run(self._serve(settings))
        except Exception as error:  # the edge of the thread: told to whoever started it
            told = sole_cause(error)
            (self._ended if self._started.done() else self._started).set_exception(told)
        if not self._ended.done():
            self._ended.set_result(None)

    async def _serve(self, settings: BrokerSettings) -> None:
        stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        async with _nameserver() as namesrv:
            told = replace(settings, namesrv_addr=str(namesrv), transport=_TRANSPORT)
            async with running(told, Clock()) as broker:
                self._stop = partial(self._loop.call_soon_threadsafe, stop.set)
                self._started.set_result(Servers(str(namesrv), broker))
                await stop.wait()


@asynccontextmanager
async def _nameserver() -> AsyncIterator[Address]:
    address: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
    settings = NameserverSettings(port=0, transport=_TRANSPORT)
    async with background(partial(serve, settings, asyncio.Event(), ready=address.set_result)):
        yield await address
