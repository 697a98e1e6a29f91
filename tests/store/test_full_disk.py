"""A disk that is really full: a small tmpfs. Writes are refused, nothing crashes, all goes on when there is room."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ariane.clock import Clock
from ariane.errors import StoreFull
from ariane.store.append.appender import AppendResult
from ariane.store.append.draft import Appended
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.store.settings import StoreSettings
from ariane.testing import FakeClock
from tests.store.stores import HOST, bodies, draft, put, small

DISK_BYTES = 1024 * 1024
FILE_BYTES = 64 * 1024
BODY = bytes(10_000)


@contextmanager
def mounted(path: Path, size: int) -> Iterator[Path]:
    """A small file system at that directory."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "ariane-test", str(path)], capture_output=True)
    if made.returncode:
        pytest.skip(f"mounting a tmpfs is not allowed here: {made.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path, DISK_BYTES) as path:
        yield path


@pytest.fixture
def settings(small_disk: Path) -> StoreSettings:
    return small(
        small_disk / "store", segment_bytes=FILE_BYTES, clean_forcibly=False, refuse_writes_ratio=1.0, retention_hours=0
    )


def ballast(disk: Path, name: str = "ballast") -> Path:
    """Takes every block that is left."""
    path = disk / name
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return path


def fill(store: MessageStore) -> int:
    """Appends until it is refused; how many were taken."""
    taken = 0
    while True:
        outcome: AppendResult = store.append([draft(b"%04d" % taken + BODY, key=f"k{taken}")])[0]
        if not isinstance(outcome, Appended):
            assert isinstance(outcome, StoreFull), outcome
            return taken
        taken += 1


def test_a_full_disk_refuses_writes_and_keeps_every_message(settings: StoreSettings, small_disk: Path) -> None:
    store = MessageStore.open(settings, FakeClock(), HOST)
    put(store, draft(b"first"))
    store.make_durable()
    path = ballast(small_disk)
    taken = fill(store)
    expected = [b"first"] + [b"%04d" % number + BODY for number in range(taken)]
    assert bodies(store, "orders", 0) == expected
    path.unlink()
    put(store, draft(b"room again" + BODY))
    store.close()
    again = MessageStore.open(settings, FakeClock(), HOST)
    assert bodies(again, "orders", 0) == [*expected, b"room again" + BODY]
    again.close()


def test_queues_and_index_wait_in_memory_while_the_disk_is_full(settings: StoreSettings, small_disk: Path) -> None:
    """No SIGBUS: what an index file maps was allocated before."""
    store = MessageStore.open(settings, FakeClock(), HOST)
    put(store, draft(b"makes the log file"))
    path = ballast(small_disk)
    drafts = [draft(b"%d" % number, queue_id=number % 7, topic="late", key=f"key{number}") for number in range(200)]
    put(store, *drafts)
    with pytest.raises(StoreFull):
        store.derived.write()
    assert sum(len(bodies(store, "late", queue_id)) for queue_id in range(7)) == 200
    path.unlink()
    store.derived.write()
    assert len(store.lookup.by_key("late", "key199", 10, 0, 2**62)) == 1
    store.close()


def test_a_crash_on_a_full_disk_loses_nothing(settings: StoreSettings, small_disk: Path) -> None:
    store = MessageStore.open(settings, FakeClock(), HOST)
    put(store, draft(b"first"))
    path = ballast(small_disk)
    taken = fill(store)
    path.unlink()
    again = MessageStore.open(settings, FakeClock(), HOST)  # as after kill -9: the first was never closed
    assert len(bodies(again, "orders", 0)) == taken + 1
    assert len(again.lookup.by_key("orders", f"k{taken - 1}", 10, 0, 2**62)) == 1
    again.close()


def test_deleting_old_files_makes_room_without_a_restart(settings: StoreSettings, small_disk: Path) -> None:
    clock = FakeClock(Clock().now_ms())
    store = MessageStore.open(settings, clock, HOST)
    put(store, *[draft(b"old" + BODY) for _ in range(20)])
    store.make_durable()
    taken = fill(store)
    ballast(small_disk)
    put(store, *[draft(b"", topic=f"new{number}") for number in range(3)])  # their queues have no room for a file
    with pytest.raises(StoreFull):
        store.make_durable()
    clock._elapsed_s += 3600
    assert store.clean(manual=True).files == 3
    store.make_durable()
    put(store, draft(b"room again" + BODY * 5))
    left = bodies(store, "orders", 0)
    assert left[-taken - 1 : -1] == [b"%04d" % number + BODY for number in range(taken)]
    store.close()


async def test_a_running_store_resumes_by_itself(settings: StoreSettings, small_disk: Path) -> None:
    clock = FakeClock()
    async with StoreService.open(settings, clock, HOST) as service:
        await service.append([draft(b"first")])
        path = ballast(small_disk)
        taken = fill(service.store)
        await clock.advance(120)  # rounds that find no room
        assert isinstance((await service.append([draft(BODY * 6)]))[0], StoreFull)
        assert service.store.reader.read("orders", 0, 0, 1).slices
        path.unlink()
        await clock.advance(10)
        (outcome,) = await service.append([draft(b"resumed")])
        assert isinstance(outcome, Appended)
        await clock.advance(1)
        assert len(service.store.lookup.by_key("orders", f"k{taken - 1}", 10, 0, 2**62)) == 1
