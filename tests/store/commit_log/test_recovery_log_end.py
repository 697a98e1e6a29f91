"""Truncating the log to its recovered end: zeros follow it, and a start does not read ranges never written."""

import os
from pathlib import Path

import pytest

from ariane.clock import Clock
from ariane.store.disk import RealFile
from ariane.store.message_store import MessageStore
from ariane.store.settings import MiB, StoreSettings
from tests.store.stores import bodies, draft, put

HOST = bytes(8)
SEGMENT_BYTES = 64 * MiB


def opened_at(root: Path) -> MessageStore:
    return MessageStore.open(StoreSettings(root=root, segment_bytes=SEGMENT_BYTES), Clock(), HOST)


def forget_pages(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def is_hole_behind(path: Path, position: int) -> bool:
    """Whether this file system distinguishes allocated from written ranges."""
    with path.open("rb") as file:
        try:
            return os.lseek(file.fileno(), position, os.SEEK_DATA) > position
        except OSError:
            return True


def test_a_start_does_not_read_through_the_rest_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel reads ahead counts as data: looked for read by read, all of the file would be."""
    store = opened_at(tmp_path)
    put(store, draft(b"kept"))
    store.close()
    path = next((tmp_path / "commitlog").iterdir())
    forget_pages(path)
    if not is_hole_behind(path, MiB):
        pytest.skip("this file system does not report holes")
    read: list[int] = []
    real_read = RealFile.read

    def counting(self: RealFile, length: int, position: int) -> bytes:
        read.append(length)
        return real_read(self, length, position)

    monkeypatch.setattr(RealFile, "read", counting)
    again = opened_at(tmp_path)
    assert sum(read) < SEGMENT_BYTES // 2
    assert bodies(again, "orders", 0) == [b"kept"]
    again.close()


def test_what_stands_anywhere_behind_the_end_is_zeroed(tmp_path: Path) -> None:
    store = opened_at(tmp_path)
    put(store, draft(b"kept"))
    store.close()
    path = next((tmp_path / "commitlog").iterdir())
    places = (4 * MiB - 3, 17 * MiB + 5, SEGMENT_BYTES - 1)
    with path.open("r+b") as file:
        for place in places:
            file.seek(place)
            file.write(b"x")
    opened_at(tmp_path).close()
    with path.open("rb") as file:
        for place in places:
            file.seek(place)
            assert file.read(1) == b"\0"
