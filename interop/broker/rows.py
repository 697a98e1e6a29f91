"""Checks by the row of the table that they fill, in definition order."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Context = TypeVar("Context")


class Rows(dict[str, Callable[[Context], Awaitable[object]]], Generic[Context]):
    def row(
        self, name: str
    ) -> Callable[[Callable[[Context], Awaitable[object]]], Callable[[Context], Awaitable[object]]]:
        def register(check: Callable[[Context], Awaitable[object]]) -> Callable[[Context], Awaitable[object]]:
            self[name] = check
            return check

        return register
