"""The first entry of a consume queue: after fillers, in an empty queue, and without a search for the queue's end."""

from pathlib import Path

import pytest

from ariane.arrow.log.files import QueueEntries, open_queues
from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES, FILLER
from ariane.store.layout import Layout, offset_name

_FILE_BYTES = 8 * ENTRY_BYTES


def queue_of(root: Path, *files: bytes) -> QueueEntries:
    """A queue in files of eight entries."""
    layout = Layout.under(root)
    directory = layout.queue("orders", 0)
    directory.mkdir(parents=True)
    for number, entries in enumerate(files):
        (directory / offset_name(number * _FILE_BYTES)).write_bytes(entries.ljust(_FILE_BYTES, b"\0"))
    (queue,) = open_queues(layout, ["orders"])
    return queue


def entries(*physical: int) -> bytes:
    return b"".join(ENTRY.pack(offset, 100, 0) for offset in physical)


@pytest.mark.parametrize(
    ("files", "first", "end", "physical"),
    [
        ((entries(500, 600),), 0, 2, 500),
        ((FILLER * 3 + entries(500),), 3, 4, 500),
        ((FILLER * 8, entries(500, 600)), 8, 10, 500),
        ((entries(*range(0, 800, 100)), entries(800)), 0, 9, 0),
        ((b"",), 0, 0, None),
        ((), 0, 0, None),
    ],
    ids=["from 0 on", "after fillers", "a file of fillers", "two files", "no entry", "no file"],
)
def test_the_first_record_of_a_queue(
    tmp_path: Path, files: tuple[bytes, ...], first: int, end: int, physical: int | None
) -> None:
    queue = queue_of(tmp_path, *files)
    assert queue.first_physical() == physical
    assert (queue.first, queue.end, len(queue)) == (first, end, end - first)


def test_a_queue_of_fillers_only_has_no_record(tmp_path: Path) -> None:
    assert queue_of(tmp_path, FILLER * 8).first_physical() is None
