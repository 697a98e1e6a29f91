"""One index file in tests: made, filled and looked at on a simulated disk."""

from pathlib import Path

from ariane.store.disk import RealDisk
from ariane.store.index.entries import Header, KeyedMessage
from ariane.store.index.file import IndexCapacity, IndexFile
from ariane.store.index.pending_keys import PendingKeys
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.index.indexes import EVER, book_hash

PATH = Path("/20261115212619400")
SHAPE = IndexCapacity(slots=5, entries=400)


def new_file(disk: SimulatedDisk, capacity: IndexCapacity = SHAPE) -> IndexFile:
    return IndexFile.create(disk, PATH, capacity, Header.following(0, 0))


def reopened(disk: SimulatedDisk | RealDisk, path: Path = PATH, capacity: IndexCapacity = SHAPE) -> IndexFile:
    file = IndexFile.open(disk, path, capacity)
    assert file is not None
    return file


def put(file: IndexFile, *messages: KeyedMessage) -> None:
    rows = PendingKeys.of(messages).rows(-1)
    if len(rows.hashes):
        file.publish(file.write_entries(rows))


def content(disk: SimulatedDisk, path: Path = PATH) -> bytes:
    return bytes(disk.open(path, writable=False).view())


def found(file: IndexFile, key: str, begin_ms: int = EVER[0], end_ms: int = EVER[1]) -> list[int]:
    return list(file.find(book_hash("orders", key), begin_ms, end_ms))
