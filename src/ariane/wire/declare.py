"""The one table of requests: code, request struct, answer struct, and who serves it.

Server, client, documentation and tests all read this table; a struct that is not declared cannot be sent or served.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, TypeVar, get_args, get_origin

from ariane.wire.codes import RequestCode
from ariane.wire.fields import Answer, Request

R = TypeVar("R", bound=Request[Any])


class ServedBy(Flag):
    NAMESERVER = auto()
    BROKER = auto()
    CLIENT = auto()
    """The broker asks and a client answers, on the connection that the client opened."""


@dataclass(frozen=True, slots=True)
class Declaration:
    code: RequestCode
    request: type[Request[Any]]
    answer: type[Answer]
    served_by: ServedBy


REQUESTS: dict[int, Declaration] = {}
_BY_STRUCT: dict[type[Request[Any]], Declaration] = {}


def request(code: RequestCode, *, served_by: ServedBy) -> Callable[[type[R]], type[R]]:
    """Declares the struct below it as the request `code`; the answer is the X of its base `Request[X]`."""

    def declare(struct: type[R]) -> type[R]:
        if code in REQUESTS:
            raise ValueError(f"{code.name} is declared twice: {REQUESTS[code].request.__name__}, {struct.__name__}")
        REQUESTS[code] = _BY_STRUCT[struct] = Declaration(code, struct, _answer_of(struct), served_by)
        return struct

    return declare


def declaration_of(struct: type[Request[Any]]) -> Declaration:
    return _BY_STRUCT[struct]


def _answer_of(struct: type[Request[Any]]) -> type[Answer]:
    for ancestor in struct.__mro__:
        for base in getattr(ancestor, "__orig_bases__", ()):
            if get_origin(base) is Request:
                (answer,) = get_args(base)
                if isinstance(answer, type) and issubclass(answer, Answer):
                    return answer
    raise TypeError(f"{struct.__name__} must derive from Request[SomeAnswer]")
