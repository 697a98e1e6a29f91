"""Values that wait until the log has come so far: what is not in the log may rest on what is. No I/O."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Held(Generic[T]):
    """Values of a master, each with an end of its log, until our log has come there. Two are held at most: the first,
    and all later ones as one. So a slave that is always a little behind takes over one after the other."""

    def __init__(self, merge: Callable[[T, T], T]) -> None:
        """`merge` makes one of an older value and a newer one."""
        self._merge = merge
        self._held: list[tuple[int, T]] = []

    def __len__(self) -> int:
        return len(self._held)

    def put(self, log_end: int, value: T) -> None:
        first, later = self._held[:1], self._held[1:]
        for _, older in later:
            value = self._merge(older, value)
        self._held = [*first, (log_end, value)]

    def is_reached(self, position: int) -> bool:
        return bool(self._held) and self._held[0][0] <= position

    def take(self, position: int) -> T | None:
        """What `position` has reached, as one value; it is not held any more."""
        reached = [value for log_end, value in self._held if log_end <= position]
        self._held = [held for held in self._held if held[0] > position]
        if not reached:
            return None
        result = reached[0]
        for newer in reached[1:]:
            result = self._merge(result, newer)
        return result
