"""What a synchronous face runs on: the event loop's thread while it is open, and threads for the user's functions."""

import asyncio
import atexit
import functools
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from types import FunctionType
from typing import Any

from ariane.client.loop_thread import SHARED, LoopThread, in_calling_thread
from ariane.client.user_calls import UserCalls
from ariane.errors import ClientClosed

log = logging.getLogger(__name__)

# What becomes of a function that is given under one of these names. Any other (a selector of queues) is quick and pure,
# and is called on the loop. A `handler` needs nothing: consumers call plain functions in threads anyway.
_IN_CALLING_THREAD = frozenset({"execute"})
"""A local transaction runs in the thread that sends: connections to databases belong to threads."""
_IN_A_THREAD = frozenset({"check", "on_error"})
"""The client awaits these."""
_TOLD = frozenset({"callback", "listener"})
"""Nobody waits for these; they are called one after the other."""

_THREADS = 20

_TO_CLOSE: dict[object, Callable[[], None]] = {}


class FaceLife:
    """Shared by a face and the faces that it hands out. `outward` gives objects among results their faces."""

    def __init__(self, outward: Callable[[Any], Any]) -> None:
        self._face = outward
        self._thread: LoopThread | None = None
        self._user = UserCalls(_THREADS)
        self._teller: ThreadPoolExecutor | None = None
        self._ending = threading.Lock()

    @property
    def is_open(self) -> bool:
        return self._thread is not None and self._thread.is_ours

    def begin(self) -> None:
        if self._thread is not None:
            raise ClientClosed("this client was started before: make a new one")
        self._thread = SHARED.take()

    def end(self) -> None:
        """Once, whoever comes first: two threads may close a client."""
        with self._ending:
            if self._thread is None:
                return
            self._thread = None
        self._user.close()
        if self._teller is not None:
            self._teller.shutdown(wait=False)
        SHARED.give_back()

    # --- calls ------------------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """On the loop, while this thread waits."""
        thread = self._thread
        if thread is None:
            work.close()
            raise ClientClosed("this client is not open: use `with`, or call start() and, at the end, close()")
        if not thread.is_ours:
            work.close()
            raise ClientClosed("this client belongs to the process that forked: make a new client in the child")
        return thread.run(work, self.outward)

    def here(self, work: Callable[[], Any]) -> Any:
        """On the loop if there is one. An object that is not open is nobody's but the caller's."""
        return self.outward(work()) if self._thread is None else self.run(_later(work))

    # --- what comes out ---------------------------------------------------------------------------------------------

    def outward(self, value: Any) -> Any:
        """A result as a synchronous program can use it."""
        if isinstance(value, asyncio.Future):
            return _concurrent(value)
        return self._decorator(value) if isinstance(value, FunctionType) else self._face(value)

    def _decorator(self, decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Of a method such as `on`, which takes the function below it."""

        def take(function: Any) -> Any:
            decorate(function if inspect.iscoroutinefunction(function) else self._seeing_faces(function))
            return function

        return take

    def _seeing_faces(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return function(*map(self._face, arguments))

        return call

    # --- what goes in -----------------------------------------------------------------------------------------------

    def inward(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, with the functions among them made fit for being called from the loop."""
        names = _positional_names(function)[: len(arguments)]
        given = tuple(self._fit(name, value) for name, value in zip_longest(names, arguments, fillvalue=""))
        return given, {name: self._fit(name, value) for name, value in named.items()}

    def _fit(self, name: str, value: Any) -> Any:
        if not callable(value) or inspect.iscoroutinefunction(value):
            return value
        if name in _IN_CALLING_THREAD:
            return functools.partial(in_calling_thread, value)
        if name in _IN_A_THREAD:
            return functools.partial(self._user.call, value)
        return functools.partial(self._tell, value) if name in _TOLD else value

    def _tell(self, function: Callable[..., Any], *arguments: Any) -> None:
        if self._teller is None:
            self._teller = ThreadPoolExecutor(1, thread_name_prefix="ariane-tell")
        self._teller.submit(_logged, function, arguments)


async def _later(work: Callable[[], Any]) -> Any:
    return work()


def _logged(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        function(*arguments)
    except Exception:  # the edge of a user's function
        log.exception("a callback failed")


@functools.cache
def _positional_names(function: Any) -> tuple[str, ...]:
    code = function.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    return names


def _concurrent(future: "asyncio.Future[Any]") -> "Future[Any]":
    """The same result for threads. It cannot be cancelled: what was asked for is on its way."""
    result: Future[Any] = Future()
    result.set_running_or_notify_cancel()

    def settle(done: "asyncio.Future[Any]") -> None:
        if done.cancelled():
            result.set_exception(ClientClosed("the client was closed while this waited"))
        elif (error := done.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(done.result())

    future.add_done_callback(settle)
    return result


# --- the end of the process -----------------------------------------------------------------------------------------


def close_at_exit(owner: object, close: Callable[[], None]) -> None:
    """Has `close` called before the interpreter ends, if nobody has done so by then."""
    _register_at_exit()
    _TO_CLOSE[owner] = close


def closed(owner: object) -> None:
    _TO_CLOSE.pop(owner, None)


@functools.cache
def _register_at_exit() -> None:
    """Before the threads of pools go, as far as Python lets us: consumers finish what they have in hand with them.

    By the time of `atexit` no pool takes work any more, and every message in hand would count as failed.
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    register(_close_all)


def _close_all() -> None:
    for owner, close in list(_TO_CLOSE.items()):
        try:
            close()
        except Exception:
            log.exception("not closed cleanly", extra={"client": repr(owner)})
