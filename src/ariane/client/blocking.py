"""A synchronous face for an asynchronous class, made from the class itself: no name is written twice.

    coroutine functions         block until their result is there
    async with, async for       become `with` and `for`; asynchronous generators become generators
    asyncio futures             become concurrent.futures.Future
    other methods, properties   run on the event loop, where the object they change is at home
    objects reached through it  (an admin's areas, a callback's context) get a face of their own

Functions that the user gives us run in threads (client/face_life.py), so they may block.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine, Generator, Iterable
from types import FunctionType, TracebackType
from typing import Any, ClassVar, Self

from ariane.client.face_life import FaceLife, close_at_exit, closed

FACES: dict[type, type["Face"]] = {}
_END = object()


def blocking(kind: type, parts: Iterable[type] = ()) -> type["Face"]:
    """The face of `kind`. `parts` are classes that it hands out, beside those that its annotations name."""
    if kind not in FACES:
        first = OpenFace if hasattr(kind, "__aenter__") else Face
        base = next((FACES[one] for one in kind.__mro__ if one in FACES), first)
        names = {"__doc__": kind.__doc__, "__module__": "ariane.sync", "__qualname__": kind.__name__, "_kind": kind}
        FACES[kind] = type(kind.__name__, (base,), _members(kind) | names)
        for part in (*parts, *_handed_out(kind)):
            blocking(part)
    return FACES[kind]


class Face:
    """Wraps one object; made by `blocking`, or by the face that hands it out."""

    _kind: ClassVar[type]
    _real: Any
    _life: FaceLife

    def _wrap(self, real: Any, life: FaceLife) -> Self:
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


class OpenFace(Face):
    """One that users make, open and close."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        kind: Any = type(self)._kind
        life = FaceLife(self._outward)
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
    return isinstance(member, property | FunctionType) and not name.startswith("_") and not hasattr(OpenFace, name)


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


def _read(member: property, face: Face) -> Any:
    assert member.fget is not None
    return face._life.here(functools.partial(member.fget, face._real))


def _coroutine(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(face: Face, *arguments: Any, **named: Any) -> Any:
        given, named = face._life.inward(method, (face._real, *arguments), named)
        return face._life.run(method(*given, **named))

    return call


def _function(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(face: Face, *arguments: Any, **named: Any) -> Any:
        given, named = face._life.inward(method, (face._real, *arguments), named)
        return face._life.here(lambda: method(*given, **named))

    return call


def _generator(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def iterate(face: Face, *arguments: Any, **named: Any) -> Generator[Any, None, None]:
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
    def advance(face: Face) -> Any:
        try:
            return face._life.run(method(face._real))
        except StopAsyncIteration:
            raise StopIteration from None

    return advance


async def _step(values: Any) -> Any:
    return await anext(values, _END)


def _itself(face: Face) -> Face:
    return face
