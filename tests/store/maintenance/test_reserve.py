"""The reserve on a real small file system: given up when it is full, made again when there is space."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ariane.errors import StoreFull
from ariane.store.disk import mount_of
from ariane.store.maintenance.reserve import Reserve
from tests.store.test_full_disk import ballast, mounted

DISK_BYTES = 8 * 1024 * 1024
SIZE = DISK_BYTES // 64


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path, DISK_BYTES) as path:
        yield path


def test_it_is_given_up_when_the_file_system_is_full_and_made_again(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = disk / "reserve"
    reserve = Reserve(path, DISK_BYTES)
    assert reserve.update() is None
    assert path.stat().st_blocks * 512 == SIZE
    filled = ballast(disk)
    error = reserve.update()
    assert isinstance(error, StoreFull)
    assert f"the file system at {disk} (ariane-test, tmpfs) has 0 bytes free" in str(error)
    assert not path.exists()
    assert "the reserve is given up" in caplog.text
    assert isinstance(reserve.update(), StoreFull)  # the space of the reserve is not for messages
    assert not path.exists()
    filled.unlink()
    assert reserve.update() is None
    assert path.exists()


def test_a_later_process_finds_it(disk: Path) -> None:
    Reserve(disk / "reserve", 4096).update()
    ballast(disk)
    assert isinstance(Reserve(disk / "reserve", 4096).update(), StoreFull)
    assert not (disk / "reserve").exists()


def test_none_is_made_if_the_size_is_0(tmp_path: Path) -> None:
    assert Reserve(tmp_path / "reserve", 0).update() is None
    assert not (tmp_path / "reserve").exists()


def test_a_file_system_that_is_not_mounted_here_is_named_by_the_path(tmp_path: Path) -> None:
    assert mount_of(tmp_path, tmp_path / "no-such-file") == f"of {tmp_path}"
