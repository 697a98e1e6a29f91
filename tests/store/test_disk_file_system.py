"""One sync for all of a file system: where it may be trusted, and what comes of it."""

import os
from pathlib import Path

import pytest

from ariane.store.disk import FileSystem, RealDisk, kernel_version, open_file_system, type_of


@pytest.fixture
def whole(tmp_path: Path) -> FileSystem:
    return FileSystem(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))


def mounts(tmp_path: Path, *types: str) -> Path:
    """As the kernel lists them: the last one is that of `tmp_path`, the others are of other devices."""
    device = os.stat(tmp_path).st_dev
    numbers = [f"{200 + number}:7" for number in range(len(types) - 1)] + [f"{os.major(device)}:{os.minor(device)}"]
    lines = [
        f"{30 + number} 1 {numbers[number]} / /mnt/{number} rw,noatime shared:1 - {kind} /dev/x{number} rw"
        for number, kind in enumerate(types)
    ]
    path = tmp_path / "mountinfo"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_what_is_on_it_can_be_synced(whole: FileSystem, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert whole.holds(tmp_path / "file")
    whole.sync()
    whole.close()


def test_a_link_to_another_file_system_is_not_on_it(whole: FileSystem, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to("/proc/self")
    assert not whole.holds(tmp_path / "elsewhere")
    whole.close()


def test_once_closed_it_syncs_nothing(whole: FileSystem) -> None:
    whole.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        whole.sync()


def test_the_type_is_that_of_the_device(tmp_path: Path) -> None:
    assert type_of(tmp_path, mounts(tmp_path, "tmpfs", "overlay", "ext4")) == "ext4"


def test_a_device_that_is_not_mounted_has_no_type(tmp_path: Path) -> None:
    path = mounts(tmp_path, "ext4")
    path.write_text("30 1 250:7 / /mnt rw - xfs /dev/x rw\n")
    assert type_of(tmp_path, path) is None


@pytest.mark.parametrize(
    ("release", "version"), [("6.1.0-18-amd64", (6, 1)), ("5.10.16.3-microsoft", (5, 10)), ("what", (0, 0))]
)
def test_a_kernel_is_known_by_its_first_two_numbers(release: str, version: tuple[int, int]) -> None:
    assert kernel_version(release) == version


@pytest.mark.parametrize("mounted", ["overlay", "nfs4", "btrfs"])
def test_only_file_systems_that_tell_what_was_lost_are_synced_whole(
    mounted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ariane.store.disk.type_of", lambda path: mounted)
    assert RealDisk().file_system(tmp_path) is None


def test_a_kernel_that_does_not_tell_what_was_lost_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ariane.store.disk.type_of", lambda path: "ext4")
    monkeypatch.setattr("ariane.store.disk.kernel_version", lambda release: (5, 7))
    assert open_file_system(tmp_path) is None
    monkeypatch.setattr("ariane.store.disk.kernel_version", lambda release: (5, 8))
    found = open_file_system(tmp_path)
    assert found is not None
    found.close()


def test_a_directory_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert open_file_system(tmp_path / "nowhere") is None
