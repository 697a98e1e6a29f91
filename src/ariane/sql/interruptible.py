"""Long calls into an engine, in a thread of their own, so that Ctrl-C ends them.

Python runs signal handlers between its own steps in the main thread. An engine that computes for minutes takes none.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class Interruptible:
    """All calls run in one thread, one after the other. `interrupt` makes the one that is under way end."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._thread = ThreadPoolExecutor(1, "ariane-sql")

    def call(self, work: Callable[[], T]) -> T:
        under_way = self._thread.submit(work)
        try:
            return under_way.result()
        finally:
            if not under_way.done():  # Ctrl-C: not the call has ended, but the wait for it
                self._interrupt()
                wait([under_way])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:  # it may have come before anybody waited
            self._interrupt()
        self._thread.shutdown()
