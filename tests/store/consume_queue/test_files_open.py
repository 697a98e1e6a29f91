"""The cache of open queue files: its limit, and which file is closed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ariane.store.consume_queue.files import OpenFiles
from ariane.store.disk import RealDisk
from tests.store.queues import open_descriptors

Open = Callable[[int], OpenFiles]


@pytest.fixture
def open_files() -> Iterator[Open]:
    """Makes OpenFiles with a limit, and closes them."""
    all_made: list[OpenFiles] = []

    def make(limit: int) -> OpenFiles:
        all_made.append(OpenFiles(RealDisk(), limit))
        return all_made[-1]

    yield make
    for files in all_made:
        files.close()


def made(root: Path, *names: str) -> list[str]:
    paths = [str(root / name) for name in names]
    for path in paths:
        Path(path).write_bytes(path[-1:].encode() * 8)
    return paths


def test_a_file_is_opened_when_it_is_first_named_and_stays_open(tmp_path: Path, open_files: Open) -> None:
    files = open_files(2)
    (path,) = made(tmp_path, "a")
    assert open_descriptors(tmp_path) == 0
    file = files.get(path)
    assert file.read(8, 0) == b"aaaaaaaa"
    assert files.get(path) is file
    assert open_descriptors(tmp_path) == 1


def test_the_file_not_used_for_longest_makes_room(tmp_path: Path, open_files: Open) -> None:
    files = open_files(2)
    a, b, c = made(tmp_path, "a", "b", "c")
    first, second = files.get(a), files.get(b)
    files.get(a)
    files.get(c)
    assert files.get(a) is first
    assert files.get(b) is not second
    assert open_descriptors(tmp_path) == len(files) == 2


def test_there_are_never_more_open_than_allowed(tmp_path: Path, open_files: Open) -> None:
    files = open_files(3)
    paths = made(tmp_path, *"abcdefgh")
    for path in paths * 3:
        assert files.get(path).read(1, 0) == path[-1:].encode()
        assert open_descriptors(tmp_path) <= 3


def test_what_was_written_through_a_closed_descriptor_is_there(tmp_path: Path, open_files: Open) -> None:
    files = open_files(1)
    a, b = made(tmp_path, "a", "b")
    files.get(a).write(b"new", 2)
    files.get(b)
    assert files.get(a).read(8, 0) == b"aanewaaa"


def test_a_created_file_is_sparse_and_counts_as_open(tmp_path: Path, open_files: Open) -> None:
    files = open_files(1)
    path = tmp_path / "new"
    file = files.create(str(path), 6_000_000)
    assert files.get(str(path)) is file
    assert path.stat().st_size == 6_000_000
    assert path.stat().st_blocks == 0
    files.create(str(tmp_path / "newer"), 20)
    assert open_descriptors(tmp_path) == 1


def test_a_removed_file_is_closed_and_may_be_removed_again(tmp_path: Path, open_files: Open) -> None:
    files = open_files(2)
    (path,) = made(tmp_path, "a")
    files.get(path)
    files.remove(path)
    files.remove(path)
    assert open_descriptors(tmp_path) == 0
    with pytest.raises(FileNotFoundError):
        files.get(path)


def test_a_file_that_cannot_be_opened_leaves_no_trace(tmp_path: Path, open_files: Open) -> None:
    files = open_files(2)
    with pytest.raises(FileNotFoundError):
        files.get(str(tmp_path / "missing"))
    assert len(files) == 0


def test_close_closes_them_all(tmp_path: Path, open_files: Open) -> None:
    files = open_files(8)
    for path in made(tmp_path, "a", "b", "c"):
        files.get(path)
    files.close()
    assert open_descriptors(tmp_path) == len(files) == 0
