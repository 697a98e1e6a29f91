"""Generates a synchronous wrapper class from an asynchronous class; no member is written twice.

    coroutine functions         block until their result is there
    async with, async for       become `with` and `for`; asynchronous generators become generators
    asyncio futures             become concurrent.futures.Future
    other methods, properties   run on the event loop, because their object is used there
    objects reached through it  (an admin's areas, a callback's context) get a wrapper of their own

`SyncRuntime` is what a wrapper runs on: the event loop's thread (client/loop_thread.py) while it is open, and threads
for functions of the user, which may therefore block.
"""

import asyncio
import atexit
import functools
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from types import FunctionType, TracebackType
from typing import Any, ClassVar, Self

from ariane.client.core.user_calls import UserCalls
from ariane.client.loop_thread import SHARED, LoopThread, in_calling_thread
from ariane.errors import ClientClosed

log = logging.getLogger(__name__)

# Functions that are passed as arguments, by the name of the argument. Any other (a queue selector) is quick and pure,
# and is called on the loop. A `handler` needs no adaptation: consumers call plain functions in threads anyway.
_IN_CALLING_THREAD = frozenset({"execute"})
"""A local transaction runs in the thread that sends: database connections belong to threads."""
_IN_A_THREAD = frozenset({"check", "on_error"})
"""Awaited by the client."""
_CALLBACKS = frozenset({"callback", "listener"})
"""Not awaited; called one after the other in one thread."""

_THREADS = 20

_TO_CLOSE: dict[object, Callable[[], None]] = {}


class SyncRuntime:
    """Shared by a wrapper and the wrappers of objects that it returns. `wrap` wraps an object that needs a wrapper."""

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        self._wrap = wrap
        self._thread: LoopThread | None = None
        self._user = UserCalls(_THREADS)
        self._callback_executor: ThreadPoolExecutor | None = None
        self._closing = threading.Lock()

    @property
    def is_open(self) -> bool:
        return self._thread is not None and self._thread.is_in_this_process

    def open(self) -> None:
        if self._thread is not None:
            raise ClientClosed("this client was started before: make a new one")
        self._thread = SHARED.acquire()

    def close(self) -> None:
        """Has an effect once: two threads may close a client."""
        with self._closing:
            if self._thread is None:
                return
            self._thread = None
        self._user.close()
        if self._callback_executor is not None:
            self._callback_executor.shutdown(wait=False)
        SHARED.release()

    # --- calls ------------------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs `work` on the loop, while this thread waits."""
        thread = self._thread
        if thread is None:
            work.close()
            raise ClientClosed("this client is not open: use `with`, or call start() and, at the end, close()")
        if not thread.is_in_this_process:
            work.close()
            raise ClientClosed("this client belongs to the process that forked: make a new client in the child")
        return thread.run(work, self.wrap_result)

    def run_on_loop(self, work: Callable[[], Any]) -> Any:
        """Calls `work` on the loop if the client is open; otherwise directly: only the caller uses the object then."""
        return self.wrap_result(work()) if self._thread is None else self.run(_as_coroutine(work))

    # --- results ----------------------------------------------------------------------------------------------------

    def wrap_result(self, value: Any) -> Any:
        """A result in a form for synchronous programs."""
        if isinstance(value, asyncio.Future):
            return _concurrent(value)
        return self._decorator(value) if isinstance(value, FunctionType) else self._wrap(value)

    def _decorator(self, decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """For a method such as `on`, which returns a decorator."""

        def decorate_adapted(function: Any) -> Any:
            decorate(function if inspect.iscoroutinefunction(function) else self._with_wrapped_arguments(function))
            return function

        return decorate_adapted

    def _with_wrapped_arguments(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return function(*map(self._wrap, arguments))

        return call

    # --- arguments --------------------------------------------------------------------------------------------------

    def adapt_arguments(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, with functions among them adapted so that they can be called from the loop."""
        names = _positional_names(function)[: len(arguments)]
        adapted = tuple(self._adapt(name, value) for name, value in zip_longest(names, arguments, fillvalue=""))
        return adapted, {name: self._adapt(name, value) for name, value in named.items()}

    def _adapt(self, name: str, value: Any) -> Any:
        if not callable(value) or inspect.iscoroutinefunction(value):
            return value
        if name in _IN_CALLING_THREAD:
            return functools.partial(in_calling_thread, value)
        if name in _IN_A_THREAD:
            return functools.partial(self._user.call, value)
        return functools.partial(self._submit_callback, value) if name in _CALLBACKS else value

    def _submit_callback(self, function: Callable[..., Any], *arguments: Any) -> None:
        if self._callback_executor is None:
            self._callback_executor = ThreadPoolExecutor(1, thread_name_prefix="ariane-callback")
        self._callback_executor.submit(_logged, function, arguments)


async def _as_coroutine(work: Callable[[], Any]) -> Any:
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
    """The same result for threads. It cannot be cancelled: the request has been sent."""
    result: Future[Any] = Future()
    result.set_running_or_notify_cancel()

    def complete(done: "asyncio.Future[Any]") -> None:
        if done.cancelled():
            result.set_exception(ClientClosed("the client was closed while this waited"))
        elif (error := done.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(done.result())

    future.add_done_callback(complete)
    return result


# --- process exit ---------------------------------------------------------------------------------------------------


def close_at_exit(owner: object, close: Callable[[], None]) -> None:
    """Calls `close` before the interpreter exits, unless `forget_at_exit` is called before."""
    _register_at_exit()
    _TO_CLOSE[owner] = close


def forget_at_exit(owner: object) -> None:
    _TO_CLOSE.pop(owner, None)


@functools.cache
def _register_at_exit() -> None:
    """Before thread pools shut down, if Python allows that: consumers need them to finish their pending messages.

    When `atexit` functions run, pools accept no work any more, and every pending message would count as failed.
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    register(_close_all)


def _close_all() -> None:
    for owner, close in list(_TO_CLOSE.items()):
        try:
            close()
        except Exception:
            log.exception("not closed cleanly", extra={"client": repr(owner)})


# --- wrapper classes ------------------------------------------------------------------------------------------------

WRAPPERS: dict[type, type["SyncWrapper"]] = {}
_END = object()


def sync_wrapper(kind: type, returned: Iterable[type] = ()) -> type["SyncWrapper"]:
    """The wrapper class of `kind`. `returned`: classes of objects that it returns, besides those in its annotations."""
    if kind not in WRAPPERS:
        first = OpenSyncWrapper if hasattr(kind, "__aenter__") else SyncWrapper
        base = next((WRAPPERS[base] for base in kind.__mro__ if base in WRAPPERS), first)
        names = {"__doc__": kind.__doc__, "__module__": "ariane.sync", "__qualname__": kind.__name__, "_kind": kind}
        WRAPPERS[kind] = type(kind.__name__, (base,), _members(kind) | names)
        for other in (*returned, *_annotated_classes(kind)):
            sync_wrapper(other)
    return WRAPPERS[kind]


class SyncWrapper:
    """Wraps one object. Subclasses are made by `sync_wrapper`."""

    _kind: ClassVar[type]
    _real: Any
    _runtime: SyncRuntime

    def _attach(self, real: Any, runtime: SyncRuntime) -> Self:
        self.__dict__.update(_real=real, _runtime=runtime)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._runtime.run_on_loop(lambda: getattr(self._real, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)

    def __repr__(self) -> str:
        return f"<ariane.sync wrapper of {self._real!r}>"


class OpenSyncWrapper(SyncWrapper):
    """The wrapper of a class that users create, open and close."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        kind: Any = type(self)._kind
        runtime = SyncRuntime(self._wrapped)
        (_, *adapted), named = runtime.adapt_arguments(kind.__init__, (None, *arguments), named)
        self._attach(kind(*adapted, **named), runtime)

    def start(self) -> None:
        self._runtime.open()
        close_at_exit(self, self.close)
        try:
            self._runtime.run(self._real.start())
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        self._close_with(self._real.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_with(lambda: self._real.__aexit__(kind, error, trace))

    def _close_with(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._runtime.is_open:
            return  # never started, already closed, or a copy in a forked child, which the parent will close
        try:
            self._runtime.run(work())
        finally:
            self._end()

    def _end(self) -> None:
        forget_at_exit(self)
        self._runtime.close()

    def _wrapped(self, value: Any) -> Any:
        """This wrapper for its own object, a new wrapper for another object, and a value that needs none unchanged."""
        if value is self._real:
            return self
        kind = WRAPPERS.get(type(value))
        return value if kind is None else object.__new__(kind)._attach(value, self._runtime)


# --- members --------------------------------------------------------------------------------------------------------


def _members(kind: type) -> dict[str, Any]:
    originals = {name: member for owner in own_classes(kind) for name, member in vars(owner).items()}
    members = {name: _member(member) for name, member in originals.items() if _is_wrapped(name, member)}
    if "__anext__" in originals:
        members |= {"__iter__": _itself, "__next__": _next_of(originals["__anext__"])}
    return members


def own_classes(kind: type) -> list[type]:
    """The classes, bases first, whose members the wrapper of `kind` does not inherit from another wrapper."""
    base = next((base for base in kind.__mro__[1:] if base in WRAPPERS), object)
    return [cls for cls in reversed(kind.__mro__) if cls not in base.__mro__ and cls.__module__.startswith("ariane.")]


def _is_wrapped(name: str, member: Any) -> bool:
    return (
        isinstance(member, property | FunctionType) and not name.startswith("_") and not hasattr(OpenSyncWrapper, name)
    )


def _annotated_classes(kind: type) -> list[type]:
    """Classes in the annotations of `kind`: the areas of an admin."""
    annotated = vars(kind).get("__annotations__", {}).values()
    return [cls for cls in annotated if isinstance(cls, type) and cls.__module__.startswith("ariane.client.admin.")]


def _member(member: Any) -> Any:
    if isinstance(member, property):
        return property(functools.partial(_read, member), doc=member.__doc__)
    if inspect.isasyncgenfunction(member):
        return _generator(member)
    return _coroutine(member) if inspect.iscoroutinefunction(member) else _function(member)


def _read(member: property, wrapper: SyncWrapper) -> Any:
    assert member.fget is not None
    return wrapper._runtime.run_on_loop(functools.partial(member.fget, wrapper._real))


def _coroutine(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(wrapper: SyncWrapper, *arguments: Any, **named: Any) -> Any:
        adapted, named = wrapper._runtime.adapt_arguments(method, (wrapper._real, *arguments), named)
        return wrapper._runtime.run(method(*adapted, **named))

    return call


def _function(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(wrapper: SyncWrapper, *arguments: Any, **named: Any) -> Any:
        adapted, named = wrapper._runtime.adapt_arguments(method, (wrapper._real, *arguments), named)
        return wrapper._runtime.run_on_loop(lambda: method(*adapted, **named))

    return call


def _generator(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def iterate(wrapper: SyncWrapper, *arguments: Any, **named: Any) -> Generator[Any, None, None]:
        adapted, named = wrapper._runtime.adapt_arguments(method, (wrapper._real, *arguments), named)
        values = method(*adapted, **named)
        try:
            while (value := wrapper._runtime.run(_step(values))) is not _END:
                yield value
        finally:
            if wrapper._runtime.is_open:
                wrapper._runtime.run(values.aclose())

    return iterate


def _next_of(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    def advance(wrapper: SyncWrapper) -> Any:
        try:
            return wrapper._runtime.run(method(wrapper._real))
        except StopAsyncIteration:
            raise StopIteration from None

    return advance


async def _step(values: Any) -> Any:
    return await anext(values, _END)


def _itself(wrapper: SyncWrapper) -> SyncWrapper:
    return wrapper
