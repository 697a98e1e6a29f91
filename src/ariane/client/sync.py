"""A synchronous face for an asynchronous class, made from the class itself: no name is written twice.

    coroutine functions         block until their result is there
    async with, async for       become `with` and `for`; asynchronous generators become generators
    asyncio futures             become concurrent.futures.Future
    other methods, properties   run on the event loop, where the object they change is at home
    objects reached through it  (an admin's areas, a callback's context) get a face of their own

Functions that the user gives us run in threads (client/sync.py), so they may block.
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

# --- face_life ---
#
# What a synchronous face runs on: the event loop's thread while it is open, and threads for the user's functions.

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


class SyncRuntime:
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


# ---

FACES: dict[type, type["SyncWrapper"]] = {}
_END = object()


def sync_wrapper(kind: type, parts: Iterable[type] = ()) -> type["SyncWrapper"]:
    """The face of `kind`. `parts` are classes that it hands out, beside those that its annotations name."""
    if kind not in FACES:
        first = OpenSyncWrapper if hasattr(kind, "__aenter__") else SyncWrapper
        base = next((FACES[one] for one in kind.__mro__ if one in FACES), first)
        names = {"__doc__": kind.__doc__, "__module__": "ariane.sync", "__qualname__": kind.__name__, "_kind": kind}
        FACES[kind] = type(kind.__name__, (base,), _members(kind) | names)
        for part in (*parts, *_handed_out(kind)):
            sync_wrapper(part)
    return FACES[kind]


class SyncWrapper:
    """Wraps one object; made by `blocking`, or by the face that hands it out."""

    _kind: ClassVar[type]
    _real: Any
    _life: SyncRuntime

    def _wrap(self, real: Any, life: SyncRuntime) -> Self:
        self.__dict__.update(_real=real, _life=life)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._life.here(lambda: getattr(self._real, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)

    def __repr__(self) -> str:
        return f"<ariane.sync face of {self._real!r}>"


class OpenSyncWrapper(SyncWrapper):
    """One that users make, open and close."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        kind: Any = type(self)._kind
        life = SyncRuntime(self._outward)
        (_, *given), named = life.inward(kind.__init__, (None, *arguments), named)
        self._wrap(kind(*given, **named), life)

    def start(self) -> None:
        self._life.begin()
        close_at_exit(self, self.close)
        try:
            self._life.run(self._real.start())
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        self._leave(self._real.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(lambda: self._real.__aexit__(kind, error, trace))

    def _leave(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._life.is_open:
            return  # never started, closed before, or the copy in a forked child, which its parent will close
        try:
            self._life.run(work())
        finally:
            self._end()

    def _end(self) -> None:
        closed(self)
        self._life.end()

    def _outward(self, value: Any) -> Any:
        """The user's own face for the object behind it, a new one for another object, and what needs none as it is."""
        if value is self._real:
            return self
        kind = FACES.get(type(value))
        return value if kind is None else object.__new__(kind)._wrap(value, self._life)


# --- members --------------------------------------------------------------------------------------------------------


def _members(kind: type) -> dict[str, Any]:
    found = {name: member for one in own_classes(kind) for name, member in vars(one).items()}
    members = {name: _member(member) for name, member in found.items() if _is_wrapped(name, member)}
    if "__anext__" in found:
        members |= {"__iter__": _itself, "__next__": _next_of(found["__anext__"])}
    return members


def own_classes(kind: type) -> list[type]:
    """The classes, bases first, whose members the face of `kind` does not inherit from another face."""
    base = next((one for one in kind.__mro__[1:] if one in FACES), object)
    return [one for one in reversed(kind.__mro__) if one not in base.__mro__ and one.__module__.startswith("ariane.")]


def _is_wrapped(name: str, member: Any) -> bool:
    return (
        isinstance(member, property | FunctionType) and not name.startswith("_") and not hasattr(OpenSyncWrapper, name)
    )


def _handed_out(kind: type) -> list[type]:
    """Classes of ours that the annotations of `kind` name: the areas of an admin."""
    named = vars(kind).get("__annotations__", {}).values()
    return [one for one in named if isinstance(one, type) and one.__module__.startswith("ariane.client.admin.")]


def _member(member: Any) -> Any:
    if isinstance(member, property):
        return property(functools.partial(_read, member), doc=member.__doc__)
    if inspect.isasyncgenfunction(member):
        return _generator(member)
    return _coroutine(member) if inspect.iscoroutinefunction(member) else _function(member)


def _read(member: property, face: SyncWrapper) -> Any:
    assert member.fget is not None
    return face._life.here(functools.partial(member.fget, face._real))


def _coroutine(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(face: SyncWrapper, *arguments: Any, **named: Any) -> Any:
        given, named = face._life.inward(method, (face._real, *arguments), named)
        return face._life.run(method(*given, **named))

    return call


def _function(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(face: SyncWrapper, *arguments: Any, **named: Any) -> Any:
        given, named = face._life.inward(method, (face._real, *arguments), named)
        return face._life.here(lambda: method(*given, **named))

    return call


def _generator(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def iterate(face: SyncWrapper, *arguments: Any, **named: Any) -> Generator[Any, None, None]:
        given, named = face._life.inward(method, (face._real, *arguments), named)
        values = method(*given, **named)
        try:
            while (value := face._life.run(_step(values))) is not _END:
                yield value
        finally:
            if face._life.is_open:
                face._life.run(values.aclose())

    return iterate


def _next_of(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    def advance(face: SyncWrapper) -> Any:
        try:
            return face._life.run(method(face._real))
        except StopAsyncIteration:
            raise StopIteration from None

    return advance


async def _step(values: Any) -> Any:
    return await anext(values, _END)


def _itself(face: SyncWrapper) -> SyncWrapper:
    return face
