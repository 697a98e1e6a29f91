"""Journals: what a kill leaves, a disk without space, and files of an earlier release."""

from pathlib import Path

import pytest

from ariane.errors import StoreFull
from ariane.store.config.journal import JOURNAL_BYTES, Journal, is_journal, journal_number, read_journal
from ariane.store.disk import read_all, replace_all
from tests.simulation.simulated_disk import SimulatedDisk

CONFIG = Path("/store/config")
NAME = "some.journal"


def journal(disk: SimulatedDisk, boot: str = "boot-1") -> Journal:
    return Journal(disk, CONFIG, NAME, boot)


def files(disk: SimulatedDisk) -> list[str]:
    return disk.names(CONFIG)


def test_lines_outlive_the_process_and_not_the_boot() -> None:
    disk = SimulatedDisk()
    first = journal(disk)
    first.append("a 1")
    first.append("b ü")
    after = disk.crash_process()
    assert list(journal(after).replay()) == ["a 1", "b ü"]
    assert list(journal(after, "boot-2").replay()) == []


@pytest.mark.parametrize("length", [0, 60, JOURNAL_BYTES - 1])
def test_a_truncated_file_is_reported(length: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    journal(disk).append("a 1")
    path = CONFIG / "some.journal.1"
    assert list(journal(disk).replay()) == ["a 1"]
    assert not caplog.text
    replace_all(disk, path, (read_all(disk, path, JOURNAL_BYTES) or b"")[:length])
    assert list(journal(disk).replay()) == (["a 1"] if length > 100 else [])
    assert "a journal is truncated" in caplog.text


def test_a_file_that_is_missing_after_a_kill_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    journal(disk).begin(has_unsaved=False)
    killed = disk.crash_process()
    assert list(journal(killed).replay(was_killed=True)) == []
    assert not caplog.text
    killed.remove(CONFIG / "some.journal.1")
    assert list(journal(killed).replay()) == []
    assert not caplog.text, "a process that stopped cleanly, or of an earlier release, may leave none"
    assert list(journal(killed).replay(was_killed=True)) == []
    assert "a journal is missing" in caplog.text


def test_the_files_before_a_snapshot_are_deleted_and_those_after_it_are_kept() -> None:
    disk = SimulatedDisk()
    lines = journal(disk)
    lines.append("before")
    number = lines.rotate()
    lines.append("after")
    lines.delete_up_to(number)
    assert files(disk) == ["some.journal.2"]
    assert list(journal(disk).replay()) == ["after"]
    lines.delete_up_to(lines.rotate())
    assert files(disk) == ["some.journal.3"]
    assert list(journal(disk).replay()) == []
    empty = lines.rotate()
    lines.append("later")
    lines.delete_up_to(empty)
    assert list(journal(disk).replay()) == ["later"]


def test_all_blocks_of_a_file_are_allocated_so_a_full_disk_does_not_stop_its_lines() -> None:
    disk = SimulatedDisk(space_left=JOURNAL_BYTES + 4096)
    lines = journal(disk)
    lines.append("first")
    disk.create(CONFIG / "ballast", 4096, allocated=4096)
    for number in range(1000):
        lines.append(f"line {number}")
    number = lines.rotate()
    lines.append("after the snapshot")
    lines.delete_up_to(number)  # continued for want of space, so it is kept
    assert list(journal(disk).replay())[-1] == "after the snapshot"


def test_without_space_for_a_file_a_line_is_refused() -> None:
    disk = SimulatedDisk(space_left=JOURNAL_BYTES // 2)
    with pytest.raises(StoreFull, match=r"some\.journal\.1 cannot be written"):
        journal(disk).append("a")
    assert files(disk) == []


def test_files_of_a_release_without_checksums_are_read() -> None:
    content = read_journal(b"boot 3f1c\norders@billing 0 126\norders@bil" + bytes(100))
    assert content == ("3f1c", ["orders@billing 0 126"], [])


@pytest.mark.parametrize(("name", "expected"), [("some.journal.7", 7), ("some.journal.x", -1), ("some.json", -1)])
def test_files_are_known_by_name_and_number(name: str, expected: int) -> None:
    assert journal_number(name, NAME) == expected
    assert is_journal(name) == (expected >= 0)
