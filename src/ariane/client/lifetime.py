"""`start()`, `close()` and `async with`, for everything that a user opens."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

from ariane.errors import ClientClosed, sole_cause
from ariane.lifecycle import TaskSet

log = logging.getLogger(__name__)

T = TypeVar("T")


class Lifetime(Generic[T]):
    """Holds a context manager open in a task of its own.

    A context manager with background jobs must be left by the task that entered it, but users may well call `start()`
    in one task and `close()` in another; a synchronous program does so with every call.
    """

    def __init__(self, what: str, opener: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._what = what
        self._opener = opener
        self._task = TaskSet()
        self._stop = asyncio.Event()
        self._value: T | None = None
        self._failure: BaseException | None = None
        self._started = False

    @property
    def value(self) -> T:
        """What was opened; ClientClosed before `start()`, after `close()`, and after a failure."""
        if self._value is None:
            raise ClientClosed(f"this {self._what} {self._state()}") from self._failure
        return self._value

    async def start(self) -> T:
        if self._started:
            raise ClientClosed(f"this {self._what} was started before: make a new one")
        self._started = True
        opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._task.spawn(self._hold(opened))
        try:
            return await opened
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def close(self) -> None:
        """Returns when everything is closed. A second call changes nothing."""
        self._stop.set()
        await self._task.wait()

    async def _hold(self, opened: asyncio.Future[T]) -> None:
        try:
            async with self._opener() as value:
                self._value = value
                opened.set_result(value)
                await self._stop.wait()
        except Exception as error:  # the edge of a task: start() raises it, or whoever uses the value next
            self._fail(opened, sole_cause(error))
        finally:
            self._value = None

    def _fail(self, opened: asyncio.Future[T], error: Exception) -> None:
        if not opened.done():
            opened.set_exception(error)
            return
        self._failure = error
        log.error("client stopped by a failure", extra={"client": self._what}, exc_info=error)

    def _state(self) -> str:
        if self._failure is not None:
            return f"stopped by a failure ({self._failure}): make a new one"
        return "is closed: make a new one" if self._started else "is not started: use `async with`, or call start()"
