"""Calls of functions that users gave us: a coroutine function on the event loop, any other in a thread."""

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
        """What it returns; what it raises is raised here."""
        if is_async(function):
            return await function(*arguments)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="ariane-consume")
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool, context.run, function, *arguments)

    def close(self) -> None:
        """A thread that is still in a call is left alone: Python cannot stop it."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def is_async(function: Callable[..., Any]) -> bool:
    """Also for an object whose `__call__` is a coroutine function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _rest(work: Coroutine[Any, Any, object], waits_for: object) -> Generator[Any, Any, object]:
    try:
        yield waits_for
    except BaseException as error:  # a cancellation is for `work` to see, and perhaps to live through
        try:
            waits_for = work.throw(error)
        except StopIteration as end:
            return end.value
        return (yield from _rest(work, waits_for))
    return (yield from work.__await__())


@coroutine
def go_on(work: Coroutine[Any, Any, object], waits_for: object) -> Generator[Any, Any, object]:
    """Awaits the rest of `work`, whose first step, `work.send(None)`, ended with a wait for `waits_for`.

    It must go on in the task that took the first step: what the step began, a time limit perhaps, belongs to that task.
    """
    return (yield from _rest(work, waits_for))
