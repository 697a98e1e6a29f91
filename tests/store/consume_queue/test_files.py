"""The files of a queue: what may be found on disk, and how the next change of a name waits for the last."""

from pathlib import Path

import pytest

from ariane.errors import StoreMismatch
from ariane.store.blocking_io import run_sync
from ariane.store.consume_queue.files import OpenFiles, QueueFiles
from ariane.store.disk import RealDisk
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.queues import FILE_BYTES, directory, fill, open_queues

STORE = Path("store")


def written(root: Path) -> Path:
    """The directory of a queue with five files."""
    queues = open_queues(root)
    fill(queues.get_or_create("orders", 0), 45)
    queues.write_dirty()
    queues.close()
    return directory(root)


def test_a_queue_ends_before_a_missing_file(tmp_path: Path) -> None:
    (written(tmp_path) / f"{400:020d}").unlink()
    (queue,) = open_queues(tmp_path)
    assert queue.max_offset == 20
    assert "does not follow" in str(queue.problem)


def test_another_size_of_files_is_a_mismatch(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(StoreMismatch, match="200 bytes, mappedFileSizeConsumeQueue says 400"):
        open_queues(tmp_path, file_bytes=400)


@pytest.mark.parametrize("size", [1, 180, 220])
def test_a_queue_ends_before_a_file_of_another_size(tmp_path: Path, size: int) -> None:
    path = written(tmp_path) / f"{400:020d}"
    path.write_bytes(path.read_bytes().ljust(size, b"x")[:size])
    (queue,) = open_queues(tmp_path)
    assert queue.max_offset == 20
    assert f"has {size} bytes" in str(queue.problem)


def test_a_file_named_inside_another_is_not_used(tmp_path: Path) -> None:
    path = written(tmp_path)
    for name in RealDisk().names(path)[1:]:
        (path / name).unlink()
    (path / f"{0:020d}").rename(path / f"{100:020d}")
    (queue,) = open_queues(tmp_path)
    assert queue.max_offset == 0
    assert "does not follow" in str(queue.problem)


def test_a_file_whose_making_was_cut_short_goes_with_all_behind_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    (path / f"{600:020d}").write_bytes(b"")
    (queue,) = open_queues(tmp_path)
    assert queue.max_offset == 30
    assert RealDisk().names(path) == [f"{base:020d}" for base in (0, 200, 400)]


def test_the_configured_size_is_rounded_up_to_whole_entries(tmp_path: Path) -> None:
    queues = open_queues(tmp_path, file_bytes=2001)
    fill(queues.get_or_create("orders", 0), 1)
    queues.write_dirty()
    assert [path.stat().st_size for path in directory(tmp_path).iterdir()] == [2020]


def new_files(disk: SimulatedDisk) -> QueueFiles:
    return QueueFiles(disk, OpenFiles(disk), directory(STORE), FILE_BYTES, set())


def name_changes(disk: SimulatedDisk) -> list[str]:
    kinds = [operation.kind for operation in disk.journal]
    return [kind for kind in kinds if kind in ("create", "remove", "sync_directory")]


def test_a_directory_is_synced_before_its_names_change_a_second_time() -> None:
    disk = SimulatedDisk()
    disk.make_directory(directory(STORE))
    files = new_files(disk)
    disk.journal.clear()
    files.write(0, bytes(FILE_BYTES * 3))
    assert name_changes(disk) == ["create", "sync_directory", "create", "sync_directory", "create"]
    for unsynced in files.take_unsynced():
        unsynced.sync()
    disk.journal.clear()
    assert run_sync(files.drop_before(FILE_BYTES)) == 1
    assert name_changes(disk) == ["remove"], "the thread has synced the names meanwhile"


def test_names_that_a_thread_was_given_but_has_not_synced_yet_are_synced_here() -> None:
    disk = SimulatedDisk()
    files = new_files(disk)
    files.write(0, bytes(FILE_BYTES))
    late = files.take_unsynced()
    disk.journal.clear()
    files.write(FILE_BYTES, bytes(FILE_BYTES))
    assert name_changes(disk) == ["sync_directory", "create"]
    for unsynced in late:
        unsynced.sync()


def test_only_files_with_new_bytes_are_to_be_synced() -> None:
    disk = SimulatedDisk()
    files = new_files(disk)
    files.write(0, bytes(FILE_BYTES * 4))
    assert [Path(unsynced.path).name for unsynced in files.take_unsynced()] == [
        *(f"{base:020d}" for base in range(0, 4 * FILE_BYTES, FILE_BYTES)),
        "0",
    ]
    files.cut(FILE_BYTES * 4 - 40)
    files.write(FILE_BYTES * 4 - 40, bytes(60))
    found = [Path(unsynced.path).name for unsynced in files.take_unsynced() if not unsynced.is_directory]
    assert found == [f"{FILE_BYTES * 3:020d}", f"{FILE_BYTES * 4:020d}"]


def test_a_removal_that_was_cut_short_is_finished_at_the_next_start() -> None:
    disk = SimulatedDisk()
    files = new_files(disk)
    files.write(0, bytes(FILE_BYTES * 3))
    disk.create(directory(STORE) / "removing", 0, allocated=0)
    disk.remove(directory(STORE) / f"{FILE_BYTES:020d}")
    assert not new_files(disk)
    assert disk.names(directory(STORE)) == []


def test_zeroing_behind_a_position_leaves_holes_alone(tmp_path: Path) -> None:
    disk = RealDisk()
    files = QueueFiles(disk, OpenFiles(disk), tmp_path / "queue", 6_000_000, set())
    files.write(0, b"x" * 5000)
    path = tmp_path / "queue" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(3_000_000)
        file.write(b"stale")
    files.cut(60)
    assert path.read_bytes() == b"x" * 60 + bytes(6_000_000 - 60)
    assert path.stat().st_blocks * 512 < 100_000
