"""Consume queues for tests: ten entries a file, so that every edge comes soon."""

import os
from pathlib import Path

from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.disk import Disk, RealDisk
from ariane.store.layout import Layout
from ariane.store.settings import StoreSettings

PER_FILE = 10
FILE_BYTES = PER_FILE * ENTRY_BYTES
RECORD_BYTES = 100

Entry = tuple[int, int, int]

_opened: list[ConsumeQueues] = []


def open_queues(
    root: Path, disk: Disk | None = None, *, file_bytes: int = FILE_BYTES, open_files_max: int = 4
) -> ConsumeQueues:
    """Closed by themselves at the end of a test."""
    settings = StoreSettings(queue_segment_bytes=file_bytes)
    queues = ConsumeQueues.open(disk or RealDisk(), Layout.under(root), settings, open_files_max=open_files_max)
    _opened.append(queues)
    return queues


def close_queues() -> None:
    """For a test of many examples: after each of them."""
    while _opened:
        _opened.pop().close()


def open_queue(root: Path, disk: Disk | None = None) -> ConsumeQueue:
    return open_queues(root, disk).get_or_create("orders", 0)


def directory(root: Path, topic: str = "orders", queue_id: int = 0) -> Path:
    return Layout.under(root).queue(topic, queue_id)


def file_names(root: Path) -> list[int]:
    """The first entry of each file of the queue `orders/0`."""
    return [int(name) // ENTRY_BYTES for name in RealDisk().names(directory(root))]


def entry(number: int) -> Entry:
    """The entry of the record at `number` times 100."""
    return number * RECORD_BYTES, RECORD_BYTES, number


def fill(queue: ConsumeQueue, count: int) -> None:
    """Entries whose number is their offset."""
    for number in range(queue.max_offset, queue.max_offset + count):
        queue.append(*entry(number))


def read(queue: ConsumeQueue) -> list[Entry]:
    """Everything between min_offset and max_offset."""
    return list(ENTRY.iter_unpack(queue.entries(queue.min_offset, queue.max_offset - queue.min_offset)))


def numbers(queue: ConsumeQueue) -> list[int]:
    """The tags codes of all entries, which `fill` makes the offsets."""
    return [tags_code for _, _, tags_code in read(queue)]


def bounds(queue: ConsumeQueue) -> tuple[int, int, int]:
    return queue.min_offset, queue.max_offset, queue.max_physical


def is_dirty(queue: ConsumeQueue) -> bool:
    """Whether it has entries that are not in its files."""
    return any(queue in queues.dirty for queues in _opened)


def open_descriptors(root: Path) -> int:
    """How many descriptors this process has on files under `root`."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith(f"{root}/")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return count
