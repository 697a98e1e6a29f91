"""A synchronous face for an asynchronous class, made from the class itself: no name is written twice.

    coroutine functions         block until their result is there
    async with, async for       become `with` and `for`; asynchronous generators become generators
    asyncio futures             become concurrent.futures.Future
    other methods, properties   run on the event loop, where the object they change is at home
    objects reached through it  (an admin's areas, a callback's context) get a face of their own

Functions that the user gives us run in threads, so they may block, and may use the client they were called by.
"""

import asyncio
import atexit
import functools
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import FunctionType, TracebackType
from typing import Any, ClassVar, Self

from ariane.client.loop_thread import SHARED, LoopThread, in_calling_thread
from ariane.client.user_calls import UserCalls
from ariane.errors import ClientClosed

log = logging.getLogger(__name__)

# What becomes of a function that is given under one of these names. Any other (a selector of queues) is quick and pure,
# and is called on the loop. A `handler` needs nothing: consumers call plain functions in threads anyway.
_IN_CALLING_THREAD = frozenset({"execute"})
"""A local transaction runs in the thread that sends: connections of databases belong to threads."""
_IN_A_THREAD = frozenset({"check", "on_error"})
"""The client awaits these."""
_TOLD = frozenset({"callback", "listener"})
"""Nobody waits for these; they are called one after the other."""

_THREADS = 20

FACES: dict[type, type["Face"]] = {}
_OPEN: set["Face"] = set()


def blocking(kind: type, parts: Iterable[type] = ()) -> type["Face"]:
    """The face of `kind`. `parts` are classes that it hands out, beside those that its annotations name."""
    if kind not in FACES:
        base = next((FACES[one] for one in kind.__mro__ if one in FACES), Face)
        members = {name: _member(member) for name, member in _public_members(kind).items()}
        names = {"__doc__": kind.__doc__, "__module__": "ariane.sync", "__qualname__": kind.__name__, "_kind": kind}
        FACES[kind] = type(kind.__name__, (base,), {**members, **names})
        handed_out = [one for one in vars(kind).get("__annotations__", {}).values() if _can_have_face(one)]
        for part in (*parts, *handed_out):
            blocking(part)
    return FACES[kind]


class Face:
    """Wraps one object. Made by `blocking`."""

    _kind: ClassVar[type]
    _real: Any
    _life: "_Life"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        life = _Life()
        given, named = life.inward(type(self)._kind, (None, *arguments), named)
        self._wrap(type(self)._kind(*given[1:], **named), life)

    def _wrap(self, real: Any, life: "_Life") -> None:
        self.__dict__.update(_real=real, _life=life)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._life.here(lambda: getattr(self._real, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)

    def __repr__(self) -> str:
        return f"<ariane.sync face of {self._real!r}>"

    # --- life, of those that users open -----------------------------------------------------------------------------

    def start(self) -> None:
        self._life.begin(self)
        try:
            self._life.run(self._real.start())
        except BaseException:
            self._life.end(self)
            raise

    def close(self) -> None:
        self._leave(lambda: self._real.close())

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
            self._life.end(self)


class _Life:
    """Where a face and its parts run while it is open."""

    def __init__(self) -> None:
        self._thread: LoopThread | None = None
        self._user = UserCalls(_THREADS)
        self._teller: ThreadPoolExecutor | None = None

    @property
    def is_open(self) -> bool:
        return self._thread is not None and self._thread.is_ours

    def begin(self, face: Face) -> None:
        if self._thread is not None:
            raise ClientClosed("this client was started before: make a new one")
        _close_all_at_exit()
        self._thread = SHARED.take()
        _OPEN.add(face)

    def end(self, face: Face) -> None:
        if face not in _OPEN:
            return  # two threads closed it
        _OPEN.discard(face)
        self._thread = None
        self._user.close()
        if self._teller is not None:
            self._teller.shutdown(wait=False)
        SHARED.give_back()

    # --- calls ------------------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """On the loop, while this thread waits."""
        try:
            thread = self._living()
        except BaseException:
            work.close()
            raise
        return thread.run(self._and_outward(work))

    def here(self, work: Callable[[], Any]) -> Any:
        """On the loop if there is one: objects that are not open yet are nobody else's."""
        if self._thread is None:
            return self.outward(work())
        return self.run(_later(work))

    def _living(self) -> LoopThread:
        if self._thread is None:
            raise ClientClosed("this client is not open: use `with`, or call start() and, at the end, close()")
        if not self._thread.is_ours:
            raise ClientClosed("this client belongs to the process that forked: make a new client in the child")
        return self._thread

    # --- what goes in, and what comes out ---------------------------------------------------------------------------

    def inward(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, with the functions among them made fit for being called from the loop."""
        names = list(inspect.signature(_plain(function)).parameters)
        given = tuple(
            self._fit(name, value) for name, value in zip(_padded(names, arguments), arguments, strict=False)
        )
        return given, {name: self._fit(name, value) for name, value in named.items()}

    def _fit(self, name: str, value: Any) -> Any:
        if isinstance(value, Face):
            return value._real
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

    async def _and_outward(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.outward(await work)

    def outward(self, value: Any) -> Any:
        """A result as a synchronous program can use it."""
        if isinstance(value, asyncio.Future):
            return _concurrent(value)
        if isinstance(value, FunctionType):
            return self._decorator(value)
        return face_of(value, self) if type(value) in FACES else value

    def _decorator(self, decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Of a method such as `on`, that takes the function below it."""

        def take(function: Any) -> Any:
            decorate(function if inspect.iscoroutinefunction(function) else self._shown(function))
            return function

        return take

    def _shown(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return function(*map(self.outward, arguments))

        return call


def face_of(value: Any, life: _Life) -> Face:
    """The face that the user has, or a new one for a part."""
    for face in _OPEN:
        if face._real is value:
            return face
    face = object.__new__(FACES[type(value)])
    face._wrap(value, life)
    return face


# --- members --------------------------------------------------------------------------------------------------------


def _public_members(kind: type) -> dict[str, Any]:
    """What `kind` has beyond what its face gets from its own base."""
    ours = [one for one in reversed(kind.__mro__) if one not in FACES and one.__module__.startswith("ariane.")]
    members = {name: member for one in ours for name, member in vars(one).items()}
    return {name: members[name] for name in members if _is_wrapped(name, members[name])}


def _is_wrapped(name: str, member: Any) -> bool:
    if name in ("__aiter__", "__anext__"):
        return True
    is_member = isinstance(member, property | FunctionType)
    return is_member and not name.startswith("_") and not hasattr(Face, name)


def _member(member: Any) -> Any:
    if isinstance(member, property):
        return property(functools.partial(_read, member), doc=member.__doc__)
    if inspect.isasyncgenfunction(member):
        return _generator(member)
    return _coroutine(member) if inspect.iscoroutinefunction(member) else _function(member)


def _read(member: property, face: Face) -> Any:
    assert member.fget is not None
    return face._life.here(functools.partial(member.fget, face._real))


def _coroutine(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(face: Face, *arguments: Any, **named: Any) -> Any:
        given, named = face._life.inward(method, (face, *arguments), named)
        return face._life.run(method(*given, **named))

    return call


def _function(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(face: Face, *arguments: Any, **named: Any) -> Any:
        given, named = face._life.inward(method, (face, *arguments), named)
        return face._life.here(lambda: method(*given, **named))

    return call


def _generator(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def iterate(face: Face, *arguments: Any, **named: Any) -> Generator[Any, None, None]:
        given, named = face._life.inward(method, (face, *arguments), named)
        values = method(*given, **named)
        try:
            while True:
                try:
                    value = face._life.run(anext(values))
                except StopAsyncIteration:
                    return
                yield value
        finally:
            face._life.run(values.aclose())

    return iterate
