"""Bytes that have left the page cache, read by a thread before the event loop looks at them through the mapping.

A page fault stops the thread that has it until the disk answers: 10 ms on a disk that turns, and on the event loop
every connection would wait for it.
"""

import asyncio
import errno
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from ariane.store.disk import Disk, File
from ariane.store.message_store import MessageStore
from ariane.store.query import Place
from ariane.store.queue_entry import ENTRY_BYTES
from ariane.store.queue_files import ColdEntry
from ariane.store.segments import Segments

_ENTRIES_BYTES = 1024 * ENTRY_BYTES
"""What is brought in with an entry: more than one read looks at."""


def fetch(segments: Segments, places: Iterable[Place]) -> None:
    """Reads what stands there into the page cache. For a thread."""
    for physical, size in places:
        segment = segments.find(physical)
        if segment is not None:
            _read_ahead(segment.file, size, physical - segment.base)


def _read_ahead(file: File, size: int, position: int) -> None:
    """A sector that cannot be read is an OSError here; touching it through the mapping would be a SIGBUS."""
    try:
        file.read(size, position)
    except OSError as error:
        if error.errno != errno.EBADF:  # retention has just closed the file: the slice holds its mapping
            raise


def fetch_entry(disk: Disk, entry: ColdEntry) -> None:
    """Through a descriptor of the thread's own, since the queue's may be closed at any time to make room for another.

    What goes wrong here goes wrong again when the queue reads it, which tells.
    """
    with suppress(OSError), closing(disk.open(Path(entry.path), writable=False)) as file:
        file.read(_ENTRIES_BYTES, entry.position)


async def offset_by_time(store: MessageStore, topic: str, queue_id: int, timestamp_ms: int) -> int:
    """As `Reader.offset_by_time`, which looks at a score of records in an old queue that nobody has read for days."""
    search = store.reader.search_by_time(topic, queue_id, timestamp_ms)
    try:
        while True:
            place = next(search)
            if isinstance(place, ColdEntry):
                await asyncio.to_thread(fetch_entry, store.parts.disk, place)
            elif not store.is_cached([place]):
                await asyncio.to_thread(fetch, store.parts.commit_log.segments, [place])
    except StopIteration as found:
        return int(found.value)
