"""Work on the event loop that meets the disk on its way: a generator, which yields what has to be waited for.

    def found(self, offset):              on the loop:     await run_in_executor(reader.found(offset))
        yield partial(file.read, ...)     in a tool:       run_sync(reader.found(offset))
        return self.look(offset)

Whoever drives the steps runs each errand: in a thread while the loop serves others, or here and now. The steps
themselves always run where the store changes, so they need no locks; but what they knew before a yield may have changed
behind it. None is no errand: it lets others have their turn.
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

_CALLS_MAX = 8


class _StepDriver(Generic[T]):
    def __init__(self, steps: IoSteps[T]) -> None:
        self._steps = steps
        self.call: BlockingCall | None = None
        self.result: T

    def advance(self, error_before: Exception | None) -> bool:
        """Whether there is another errand; `failure` is what came of the last one."""
        try:
            self.call = next(self._steps) if error_before is None else self._steps.throw(error_before)
        except StopIteration as done:
            self.result = done.value
            return False
        return True


def run_sync(steps: IoSteps[T]) -> T:
    """What the steps come to. Blocks: for a start, for tools and for tests."""
    driver, error_before = _StepDriver(steps), None
    while driver.advance(error_before):
        error_before = None if driver.call is None else _error_of(driver.call)
    return driver.result


async def run_in_executor(steps: IoSteps[T], executor: Executor | None = None) -> T:
    """The same, with each errand done by a thread. Without an errand it does not suspend."""
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
    """What the steps come to, when there is no errand; otherwise they are given up, and it is None."""
    driver = _StepDriver(steps)
    return None if driver.advance(None) else driver.result


def until_cached(cold: Callable[[], BlockingCall | None]) -> IoSteps[None]:
    """Has done what `cold` tells, until that is nothing: while an errand is run, more may have come to touch old bytes.

    Gives up where that does not end, as on a machine without any memory left: to wait is better than never to get on.
    """
    for _ in range(_CALLS_MAX):
        call = cold()
        if call is None:
            return
        yield call


def _error_of(call: BlockingCall) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


# --- cold_reads ---
#
# Bytes that have left the page cache, read by a thread before the event loop looks at them.
#
# A page fault stops the thread that has it until the disk answers: 10 ms on a disk that turns, and on the event loop
# every connection would wait for it. So whoever may meet old bytes warms them first:
#
#     yield from queue.warm(offset, count)             entries of a queue
#     yield from commit_log.warm(places)               records
#     yield from commit_log.warm_records(offsets)      records of unknown size
#     yield from store.derived.warm_steps()               pages of queues and index that a round writes to
#
# When all is in memory these yield nothing, and cost a system call or none; see steps.py for what drives them.

CACHE_PROBE_BYTES_MAX = 64 * 1024
"""Whether more than this is in memory is not even asked: a thread reads it, which takes its time in any case."""

_READ_AHEAD_BYTES = 20 * 1024
"""What is brought in with an entry: the thousand behind it, which a reader wants next."""

_SIZE_BYTES = 4

RecordLocation = tuple[int, int]
"""Of a record: its physical offset and its size."""


class UncachedBytes(NamedTuple):
    """Bytes of the log that may have to be fetched. The file is found on the loop, where the list of files changes."""

    file: File
    position: int
    size: int


# --- for the loop -----------------------------------------------------------------------------------------------------


def merge_adjacent(places: Sequence[RecordLocation]) -> Iterator[RecordLocation]:
    """Records that follow each other as one place: those of a batch are read at once."""
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
    """Whether a look at all of these bytes would not wait for the disk."""
    return part.size <= CACHE_PROBE_BYTES_MAX and part.file.read_cached(part.size, part.position) is not None


def is_record_cached(part: UncachedBytes) -> bool:
    """The same for a record that begins there; `size` is the longest that is believed."""
    head = part.file.read_cached(_SIZE_BYTES, part.position)
    if head is None:
        return False
    size = int.from_bytes(head, "big")
    return size > part.size or are_cached(part._replace(size=size))


# --- for a thread -----------------------------------------------------------------------------------------------------


def fetch(cold: Sequence[UncachedBytes]) -> None:
    """Reads it into the page cache."""
    for part in cold:
        _read_ahead(part)


def fetch_records(cold: Sequence[UncachedBytes]) -> None:
    """The same for records that say themselves how long they are; `size` is the longest that is believed."""
    for part in cold:
        size = int.from_bytes(_read_ahead(part._replace(size=_SIZE_BYTES)), "big")
        if size <= part.size:
            _read_ahead(part._replace(size=size))


def fetch_entries(disk: Disk, path: str, position: int, size: int) -> None:
    """The same for a file of a queue.

    Through a descriptor of the thread's own, since the queue's may be closed at any time to make room for another. What
    goes wrong here goes wrong again when the queue reads it, which tells.
    """
    with suppress(OSError), closing(disk.open(Path(path), writable=False)) as file:
        file.read(max(size, _READ_AHEAD_BYTES), position)


def _read_ahead(part: UncachedBytes) -> bytes:
    """A sector that cannot be read is an OSError here; touching it through the mapping would be a SIGBUS."""
    try:
        return part.file.read(part.size, part.position)
    except OSError as error:
        if error.errno != errno.EBADF:  # retention has just closed the file: a slice holds its mapping
            raise
        return b""
