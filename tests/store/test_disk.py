"""What every disk does, the real one and the simulated one alike; then what only the real one can show."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ariane.store.disk import Disk, File, RealDisk, read_all, replace_all
from tests.simulation.simulated_disk import SimulatedDisk

PAGE = 4096


@pytest.fixture(params=[RealDisk, SimulatedDisk])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    make: Callable[[], Disk] = request.param
    made = make()
    made.make_directory(tmp_path)
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def fill(disk: Disk, path: Path, content: bytes) -> File:
    file = disk.create(path, len(content), allocated=0)
    file.write(content, 0)
    return file


def test_a_new_file_is_zeros_of_its_size(disk: Disk, path: Path) -> None:
    file = disk.create(path, 3 * PAGE + 5, allocated=PAGE)
    assert file.size == disk.size(path) == 3 * PAGE + 5
    assert file.read(4 * PAGE, 0) == bytes(3 * PAGE + 5)


def test_a_write_is_there_at_once_for_every_handle(disk: Disk, path: Path) -> None:
    writer = disk.create(path, 2 * PAGE, allocated=0)
    reader = disk.open(path, writable=False)
    writer.write(memoryview(b"across"), PAGE - 3)
    assert reader.read(8, PAGE - 4) == b"\0across\0"
    assert reader.size == 2 * PAGE


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_is_written(disk: Disk, path: Path, buffer: Callable[[bytes], memoryview]) -> None:
    file = disk.create(path, 10, allocated=0)
    file.write(buffer(b"12345"), 2)
    assert file.read(10, 0) == b"\0\x0012345\0\0\0"


def test_a_read_at_the_end_is_short(disk: Disk, path: Path) -> None:
    file = fill(disk, path, b"0123456789")
    assert file.read(100, 7) == b"789"
    assert file.read(100, 10) == b""
    assert file.read(100, 11) == b""


def test_a_view_sees_later_writes_and_cannot_be_written(disk: Disk, path: Path) -> None:
    file = disk.create(path, PAGE, allocated=PAGE)
    view = file.view()
    file.write(b"later", 100)
    assert bytes(view[100:105]) == b"later"
    assert view.readonly
    assert len(view) == PAGE


def test_a_view_stays_valid_after_close_and_removal(disk: Disk, path: Path) -> None:
    file = fill(disk, path, b"still here")
    view = file.view()
    file.close()
    disk.remove(path)
    assert bytes(view) == b"still here"


def test_a_writable_view_writes_the_file(disk: Disk, path: Path) -> None:
    file = disk.create(path, 3 * PAGE, allocated=2 * PAGE)
    seen = file.view()
    mapped = file.writable_view(2 * PAGE)
    mapped[PAGE : PAGE + 4] = b"slot"
    assert len(mapped) == 2 * PAGE
    assert file.read(4, PAGE) == b"slot"
    assert bytes(seen[PAGE : PAGE + 4]) == b"slot"


def test_what_next_data_passes_over_is_zeros(disk: Disk, path: Path) -> None:
    file = disk.create(path, 64 * PAGE, allocated=0)
    file.write(b"x", 40 * PAGE + 7)
    found = file.next_data(PAGE)
    assert found is not None
    assert PAGE <= found <= 40 * PAGE + 7
    assert file.read(found, 0) == bytes(found)
    assert file.next_data(40 * PAGE + 7) == 40 * PAGE + 7
    assert file.next_data(64 * PAGE) is None


def test_create_refuses_a_name_that_is_taken(disk: Disk, path: Path) -> None:
    fill(disk, path, b"mine")
    with pytest.raises(FileExistsError):
        disk.create(path, 8, allocated=0)
    assert read_all(disk, path, 100) == b"mine"


def test_create_needs_its_directory(disk: Disk, path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.create(path / "below", 8, allocated=0)
    fill(disk, path, b"a file, no directory")
    with pytest.raises(NotADirectoryError):
        disk.create(path / "below", 8, allocated=0)


def test_what_is_not_there_cannot_be_used(disk: Disk, path: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: disk.open(path, writable=False),
        lambda: disk.remove(path),
        lambda: disk.remove_directory(path),
        lambda: disk.rename(path, path.with_name("other")),
        lambda: disk.sync_directory(path),
        lambda: disk.modified_ms(path),
        lambda: disk.used_ratio(path),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call()
    assert disk.size(path) is None
    assert disk.names(path) == []


def test_a_read_only_file_refuses_writes(disk: Disk, path: Path) -> None:
    fill(disk, path, b"mine")
    file = disk.open(path, writable=False)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        file.write(b"yours", 0)
    with pytest.raises(PermissionError):
        file.writable_view(4)
    assert bytes(file.view()) == b"mine"


def test_a_closed_file_refuses_everything(disk: Disk, path: Path) -> None:
    file = fill(disk, path, b"mine")
    file.close()
    calls: list[Callable[[], object]] = [lambda: file.write(b"x", 0), lambda: file.read(1, 0), file.sync, file.view]
    for call in calls:
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            call()


def test_names_come_sorted_files_and_directories(disk: Disk, tmp_path: Path) -> None:
    for name in ("b", "c", "a"):
        fill(disk, tmp_path / name, b"-")
    disk.make_directory(tmp_path / "aa" / "below")
    assert disk.names(tmp_path) == ["a", "aa", "b", "c"]
    assert disk.names(tmp_path / "aa") == ["below"]
    assert disk.names(tmp_path / "a") == []


def test_a_removed_name_is_gone_and_free_again(disk: Disk, path: Path) -> None:
    fill(disk, path, b"old")
    disk.remove(path)
    assert disk.size(path) is None
    assert disk.create(path, 3, allocated=0).read(3, 0) == bytes(3)


def test_remove_is_for_files(disk: Disk, tmp_path: Path) -> None:
    disk.make_directory(tmp_path / "directory")
    with pytest.raises(IsADirectoryError):
        disk.remove(tmp_path / "directory")


def test_only_an_empty_directory_is_removed(disk: Disk, tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    disk.make_directory(directory)
    fill(disk, directory / "file", b"-")
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        disk.remove_directory(directory)
    with pytest.raises(NotADirectoryError):
        disk.remove_directory(directory / "file")
    disk.remove(directory / "file")
    disk.remove_directory(directory)
    assert disk.names(tmp_path) == []


def test_making_a_directory_twice_is_fine(disk: Disk, tmp_path: Path) -> None:
    disk.make_directory(tmp_path / "a" / "b")
    fill(disk, tmp_path / "a" / "b" / "file", b"-")
    disk.make_directory(tmp_path / "a" / "b")
    assert disk.names(tmp_path / "a" / "b") == ["file"]


def test_a_rename_replaces_its_target_and_handles_follow(disk: Disk, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    held_new, held_old = fill(disk, source, b"new"), fill(disk, target, b"old")
    disk.rename(source, target)
    assert disk.names(tmp_path) == ["target"]
    held_new.write(b"N", 0)
    assert read_all(disk, target, 100) == b"New"
    assert held_old.read(3, 0) == b"old"


def test_a_rename_can_change_directories(disk: Disk, tmp_path: Path) -> None:
    disk.make_directory(tmp_path / "there")
    fill(disk, tmp_path / "file", b"moved")
    disk.rename(tmp_path / "file", tmp_path / "there" / "file")
    assert disk.names(tmp_path) == ["there"]
    assert read_all(disk, tmp_path / "there" / "file", 100) == b"moved"
    with pytest.raises(FileNotFoundError):
        disk.rename(tmp_path / "there" / "file", tmp_path / "nowhere" / "file")


def test_syncs_change_nothing_that_readers_see(disk: Disk, path: Path) -> None:
    file = fill(disk, path, b"as written")
    file.sync()
    disk.sync_directory(path.parent)
    assert file.read(100, 0) == b"as written"
    assert disk.names(path.parent) == ["file"]


def test_what_was_just_written_is_cached(disk: Disk, path: Path) -> None:
    file = fill(disk, path, b"x" * PAGE)
    assert file.read_cached(PAGE, 0) == b"x" * PAGE


def test_a_read_of_what_is_cached_is_a_read_or_none_when_the_file_ends_before(disk: Disk, path: Path) -> None:
    file = fill(disk, path, b"as written")
    assert file.read_cached(7, 3) == b"written"
    assert file.read_cached(8, 3) is None


def test_a_disk_tells_times_and_use(disk: Disk, path: Path) -> None:
    fill(disk, path, b"-")
    assert disk.modified_ms(path) > 1_500_000_000_000
    assert 0 <= disk.used_ratio(path.parent) <= 1


def test_read_all_stops_at_its_limit(disk: Disk, path: Path) -> None:
    assert read_all(disk, path, 100) is None
    fill(disk, path, b"0123456789")
    assert read_all(disk, path, 4) == b"0123"
    assert read_all(disk, path, 100) == b"0123456789"


def test_replace_all_makes_and_replaces_a_file(disk: Disk, path: Path) -> None:
    for content in (b"first", b"", b"the second, longer"):
        replace_all(disk, path, content)
        assert read_all(disk, path, 100) == content
    assert disk.names(path.parent) == ["file"]


def test_replace_all_takes_no_harm_from_an_earlier_crash(disk: Disk, path: Path) -> None:
    fill(disk, path.with_name("file.tmp"), b"left by a crash, longer than the new")
    replace_all(disk, path, b"new")
    assert read_all(disk, path, 100) == b"new"
    assert disk.names(path.parent) == ["file"]


def test_the_real_disk_takes_the_blocks_it_is_asked_for(path: Path) -> None:
    RealDisk().create(path, 256 * PAGE, allocated=16 * PAGE)
    assert 16 * PAGE <= path.stat().st_blocks * 512 < 256 * PAGE


def test_what_the_real_disk_makes_is_for_its_owner_only(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.make_directory(tmp_path / "store" / "commitlog")
    disk.create(tmp_path / "store" / "file", 1, allocated=0)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "store" / "commitlog").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "store" / "file").stat().st_mode) == 0o600


def test_a_real_file_that_cannot_be_allocated_leaves_no_name(path: Path) -> None:
    too_much = 2**62
    with pytest.raises(OSError, match=f"{os.strerror(errno.EFBIG)}|{os.strerror(errno.ENOSPC)}"):
        RealDisk().create(path, too_much, allocated=too_much)
    assert not path.exists()
