"""Work on the event loop that meets the disk on its way: a generator, which yields what has to be waited for.

    def found(self, offset):              on the loop:     await off_the_loop(reader.found(offset))
        yield partial(file.read, ...)     in a tool:       at_once(reader.found(offset))
        return self.look(offset)

Whoever drives the steps runs each errand: in a thread while the loop serves others, or here and now. The steps
themselves always run where the store changes, so they need no locks; but what they knew before a yield may have changed
behind it. None is no errand: it lets others have their turn.
"""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from typing import Generic, TypeVar

T = TypeVar("T")

Errand = Callable[[], object]
Steps = Generator[Errand | None, None, T]

_ERRANDS_MAX = 8


class _Walk(Generic[T]):
    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.errand: Errand | None = None
        self.result: T

    def goes_on(self, failure: Exception | None) -> bool:
        """Whether there is another errand; `failure` is what came of the last one."""
        try:
            self.errand = next(self._steps) if failure is None else self._steps.throw(failure)
        except StopIteration as done:
            self.result = done.value
            return False
        return True


def at_once(steps: Steps[T]) -> T:
    """What the steps come to. Blocks: for a start, for tools and for tests."""
    walk, failure = _Walk(steps), None
    while walk.goes_on(failure):
        failure = None if walk.errand is None else _failure_of(walk.errand)
    return walk.result


async def off_the_loop(steps: Steps[T], executor: Executor | None = None) -> T:
    """The same, with each errand done by a thread. Without an errand it does not suspend."""
    walk, failure = _Walk(steps), None
    loop = asyncio.get_running_loop()
    while walk.goes_on(failure):
        if walk.errand is None:
            failure = None
            await asyncio.sleep(0)
        else:
            failure = await loop.run_in_executor(executor, _failure_of, walk.errand)
    return walk.result


def unless_blocked(steps: Steps[T]) -> T | None:
    """What the steps come to, when there is no errand; otherwise they are given up, and it is None."""
    walk = _Walk(steps)
    return None if walk.goes_on(None) else walk.result


def until_warm(cold: Callable[[], Errand | None]) -> Steps[None]:
    """Has done what `cold` tells, until that is nothing: while an errand is run, more may have come to touch old bytes.

    Gives up where that does not end, as on a machine without any memory left: to wait is better than never to get on.
    """
    for _ in range(_ERRANDS_MAX):
        errand = cold()
        if errand is None:
            return
        yield errand


def _failure_of(errand: Errand) -> Exception | None:
    try:
        errand()
    except Exception as error:
        return error
    return None
