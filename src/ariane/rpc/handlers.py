"""Handlers: which method answers which request.

A handler group is an object whose methods carry `@handles(SomeRequest)`. A handler returns its answer, or awaits first:
one that does not await is answered in the same turn of the loop, without a task.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ariane.transport.connection import Connection
from ariane.wire.command import Command
from ariane.wire.declare import Declaration, declaration_of
from ariane.wire.fields import Answer, Request


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks: the connection, and the command as it came."""

    connection: Connection
    command: Command


@dataclass(frozen=True, slots=True)
class Encoded:
    """An answer whose body is already bytes: encoded once, sent to many."""

    answer: Answer
    body: bytes


Outcome = Answer | Encoded
Handler = Callable[[Any, Call], Outcome | Awaitable[Outcome]]
H = TypeVar("H", bound=Callable[..., Any])

_MARK = "__handles__"


def handles(request: type[Request[Any]]) -> Callable[[H], H]:
    """Marks a method of a handler group as the handler of `request`."""

    def mark(method: H) -> H:
        setattr(method, _MARK, declaration_of(request))
        return method

    return mark


@dataclass(frozen=True, slots=True)
class Route:
    declaration: Declaration
    handler: Handler


class HandlerTable:
    """Code to handler, built once at start."""

    def __init__(self, routes: dict[int, Route]) -> None:
        self._routes = routes
        self.get = routes.get

    @classmethod
    def of(cls, *groups: object) -> "HandlerTable":
        routes: dict[int, Route] = {}
        for route in (route for group in groups for route in _routes_of(group)):
            if route.declaration.code in routes:
                raise ValueError(f"{route.declaration.code.name} has two handlers")
            routes[route.declaration.code] = route
        return cls(routes)

    def codes(self) -> set[int]:
        return set(self._routes)


def _routes_of(group: object) -> Iterator[Route]:
    for name, function in inspect.getmembers(type(group), inspect.isfunction):
        declaration = getattr(function, _MARK, None)
        if declaration is not None:
            yield Route(declaration, getattr(group, name))
