"""Bytes that have left the page cache, read by a thread before the event loop looks at them.

A page fault stops the thread that has it until the disk answers: 10 ms on a disk that turns, and on the event loop
every connection would wait for it. So whoever may meet old bytes warms them first:

    yield from queue.warm(offset, count)             entries of a queue
    yield from commit_log.warm(places)               records
    yield from commit_log.warm_records(offsets)      records of unknown size
    yield from store.derived.warming()               pages of queues and index that a round writes to

When all is in memory these yield nothing, and cost a system call or none; see steps.py for what drives them.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from ariane.store.disk import Disk, File

LOOKED_AT_BYTES_MAX = 64 * 1024
"""Whether more than this is in memory is not even asked: a thread reads it, which takes its time in any case."""

_AHEAD_BYTES = 20 * 1024
"""What is brought in with an entry: the thousand behind it, which a reader wants next."""

_SIZE_BYTES = 4

Place = tuple[int, int]
"""Of a record: its physical offset and its size."""


class ColdBytes(NamedTuple):
    """Bytes of the log that may have to be fetched. The file is found on the loop, where the list of files changes."""

    file: File
    position: int
    size: int


# --- for the loop -----------------------------------------------------------------------------------------------------


def joined(places: Sequence[Place]) -> Iterator[Place]:
    """Records that follow each other as one place: those of a batch are read at once."""
    begin = end = 0
    for offset, size in places:
        if offset == end and end + size - begin <= LOOKED_AT_BYTES_MAX:
            end += size
        else:
            if end > begin:
                yield begin, end - begin
            begin, end = offset, offset + size
    if end > begin:
        yield begin, end - begin


def are_cached(part: ColdBytes) -> bool:
    """Whether a look at all of these bytes would not wait for the disk."""
    return part.size <= LOOKED_AT_BYTES_MAX and part.file.read_cached(part.size, part.position) is not None


def is_record_cached(part: ColdBytes) -> bool:
    """The same for a record that begins there; `size` is the longest that is believed."""
    head = part.file.read_cached(_SIZE_BYTES, part.position)
    if head is None:
        return False
    size = int.from_bytes(head, "big")
    return size > part.size or are_cached(part._replace(size=size))


# --- for a thread -----------------------------------------------------------------------------------------------------


def fetch(cold: Sequence[ColdBytes]) -> None:
    """Reads it into the page cache."""
    for part in cold:
        _read_ahead(part)


def fetch_records(cold: Sequence[ColdBytes]) -> None:
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
        file.read(max(size, _AHEAD_BYTES), position)


def _read_ahead(part: ColdBytes) -> bytes:
    """A sector that cannot be read is an OSError here; touching it through the mapping would be a SIGBUS."""
    try:
        return part.file.read(part.size, part.position)
    except OSError as error:
        if error.errno != errno.EBADF:  # retention has just closed the file: a slice holds its mapping
            raise
        return b""
