"""Calls of user functions: a coroutine function runs on the event loop, any other function in a thread pool."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from types import coroutine
from typing import Any


class UserCalls:
    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[..., Any], *arguments: object) -> object:
        """Returns what `function` returns, and raises what it raises."""
        if is_async(function):
            return await function(*arguments)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="ariane-consume")
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool, context.run, function, *arguments)

    def close(self) -> None:
        """Does not wait for a thread that is still in a call: Python cannot stop it."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def is_async(function: Callable[..., Any]) -> bool:
    """True also for an object whose `__call__` is a coroutine function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _resume(work: Coroutine[Any, Any, object], waits_for: object) -> Generator[Any, Any, object]:
    try:
        yield waits_for
    except BaseException as error:  # a cancellation is for `work` to see, and perhaps to handle
        try:
            waits_for = work.throw(error)
        except StopIteration as end:
            return end.value
        return (yield from _resume(work, waits_for))
    return (yield from work.__await__())


@coroutine
def resume(work: Coroutine[Any, Any, object], waits_for: object) -> Generator[Any, Any, object]:
    """Awaits the rest of `work`, whose first step, `work.send(None)`, ended with a wait for `waits_for`.

    It must run in the task that made the first step: what that step began, such as a timeout, belongs to that task.
    """
    return (yield from _resume(work, waits_for))
