"""Event-loop work that may block on the disk: generators (`IoSteps`) that yield the blocking calls, and their drivers.

    def find_steps(self, offset):         on the loop:     await run_in_executor(reader.find_steps(offset))
        yield partial(file.read, ...)     in a tool:       run_sync(reader.find_steps(offset))
        return self.look(offset)

The driver executes each yielded blocking call, either in a thread pool (server) or inline (tools, tests). The generator
itself always runs where the store is changed, so it needs no locks; but what it knew before a `yield` may have changed
after it. Yielding None is not a call: it lets other tasks of the event loop run. A method whose name ends in `_steps`
returns such a generator; the method without the suffix does the same and blocks.

Most of these calls read *cold* pages, that is, bytes that have left the page cache. A page fault stops its thread until
the disk answers: 10 ms on a spinning disk, and on the event loop every connection would wait for it. So code that may
touch old bytes warms the page cache first:

    yield from queue.warm(offset, count)             entries of a queue
    yield from commit_log.warm(locations)            records
    yield from commit_log.warm_records(offsets)      records of unknown size
    yield from store.derived.warm_steps()            pages of queues and index that a maintenance pass writes to

When everything is cached these yield nothing, and cost one system call or none.
"""

import asyncio
import errno
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing, suppress
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from ariane.store.disk import Disk, File

T = TypeVar("T")

BlockingCall = Callable[[], object]
IoSteps = Generator[BlockingCall | None, None, T]
"""Yields blocking calls, or None to let other tasks run; returns a T."""

_CALLS_MAX = 8


class _StepDriver(Generic[T]):
    def __init__(self, steps: IoSteps[T]) -> None:
        self._steps = steps
        self.call: BlockingCall | None = None
        self.result: T

    def advance(self, error_before: Exception | None) -> bool:
        """Whether there is another call to execute; `error_before` is what the previous call raised, if anything."""
        try:
            self.call = next(self._steps) if error_before is None else self._steps.throw(error_before)
        except StopIteration as done:
            self.result = done.value
            return False
        return True


def run_sync(steps: IoSteps[T]) -> T:
    """Runs the steps to their result and executes their calls inline. Blocks: for start-up, tools and tests."""
    driver, error_before = _StepDriver(steps), None
    while driver.advance(error_before):
        error_before = None if driver.call is None else _error_of(driver.call)
    return driver.result


async def run_in_executor(steps: IoSteps[T], executor: Executor | None = None) -> T:
    """Runs the steps to their result and executes each call in a thread. Does not suspend if there is no call."""
    driver, error_before = _StepDriver(steps), None
    loop = asyncio.get_running_loop()
    while driver.advance(error_before):
        if driver.call is None:
            error_before = None
            await asyncio.sleep(0)
        else:
            error_before = await loop.run_in_executor(executor, _error_of, driver.call)
    return driver.result


def run_if_cached(steps: IoSteps[T]) -> T | None:
    """The result of the steps if they need no blocking call; otherwise None, and the steps are abandoned."""
    driver = _StepDriver(steps)
    return None if driver.advance(None) else driver.result


def until_cached(cold_fetch: Callable[[], BlockingCall | None]) -> IoSteps[None]:
    """Yields the calls of `cold_fetch()` until it returns None; new cold pages can appear while a call is executed.

    Stops after a few calls, as on a machine without free memory: to block is then better than never to make progress.
    """
    for _ in range(_CALLS_MAX):
        call = cold_fetch()
        if call is None:
            return
        yield call


def _error_of(call: BlockingCall) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


# --- cold pages ---

CACHE_PROBE_BYTES_MAX = 64 * 1024
"""Longer ranges are not probed in the page cache but always read by a thread, which takes its time in any case."""

_READ_AHEAD_BYTES = 20 * 1024
"""Read together with a queue entry: the thousand entries after it, which a consumer pulls next."""

_SIZE_BYTES = 4

RecordLocation = tuple[int, int]
"""Physical offset and size of a record."""


class UncachedBytes(NamedTuple):
    """A byte range of the log that may be cold. The file is looked up on the event loop, which owns the file list."""

    file: File
    position: int
    size: int


# --- on the event loop ------------------------------------------------------------------------------------------------


def merge_adjacent(places: Sequence[RecordLocation]) -> Iterator[RecordLocation]:
    """Adjacent records as one location, so that the records of a batch are read at once."""
    begin = end = 0
    for offset, size in places:
        if offset == end and end + size - begin <= CACHE_PROBE_BYTES_MAX:
            end += size
        else:
            if end > begin:
                yield begin, end - begin
            begin, end = offset, offset + size
    if end > begin:
        yield begin, end - begin


def are_cached(part: UncachedBytes) -> bool:
    """Whether all of these bytes are in the page cache, so that reading them does not block."""
    return part.size <= CACHE_PROBE_BYTES_MAX and part.file.read_cached(part.size, part.position) is not None


def is_record_cached(part: UncachedBytes) -> bool:
    """The same for the record that begins there; `size` is the largest plausible size."""
    head = part.file.read_cached(_SIZE_BYTES, part.position)
    if head is None:
        return False
    size = int.from_bytes(head, "big")
    return size > part.size or are_cached(part._replace(size=size))


# --- in a thread ------------------------------------------------------------------------------------------------------


def fetch(cold: Sequence[UncachedBytes]) -> None:
    """Reads these bytes into the page cache."""
    for part in cold:
        read_bytes(part)


def fetch_records(cold: Sequence[UncachedBytes]) -> None:
    """The same for records, whose first field is their size; `size` is the largest plausible one."""
    for part in cold:
        size = int.from_bytes(read_bytes(part._replace(size=_SIZE_BYTES)), "big")
        if size <= part.size:
            read_bytes(part._replace(size=size))


def fetch_entries(disk: Disk, path: str, position: int, size: int) -> None:
    """The same for a file of a queue.

    Opens its own descriptor, since the queue's may be closed at any time to make room for another. An error here is
    ignored: it happens again when the queue reads the entries, and is raised there.
    """
    with suppress(OSError), closing(disk.open(Path(path), writable=False)) as file:
        file.read(max(size, _READ_AHEAD_BYTES), position)


def read_bytes(part: UncachedBytes) -> bytes:
    """Nothing if the file is closed. An unreadable sector is an OSError; through the mapping it would be a SIGBUS."""
    try:
        return part.file.read(part.size, part.position)
    except OSError as error:
        if error.errno != errno.EBADF:  # retention has just closed the file; readers' slices keep its mapping
            raise
        return b""
