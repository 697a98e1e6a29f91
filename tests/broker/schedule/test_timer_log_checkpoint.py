"""The timer's checkpoint and its copy: damage of one of them changes nothing."""

import struct
from pathlib import Path

import pytest

from ariane.broker.schedule.timer_log import TimerCheckpoint, copy_of, read_timer_checkpoint, write_timer_checkpoint
from ariane.errors import StoreCorrupt
from ariane.store.disk import replace_all
from ariane.wire.hashes import crc32
from tests.simulation.simulated_disk import SimulatedDisk

PATH = Path("/store/timer/checkpoint")
CHECKPOINT = TimerCheckpoint(1_700_000_000_000, 320, 10, 3, 4, 5)


def written() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(PATH.parent)
    write_timer_checkpoint(disk, PATH, CHECKPOINT)
    return disk


def test_a_damaged_or_missing_checkpoint_is_replaced_by_its_copy(caplog: pytest.LogCaptureFixture) -> None:
    for position in range(60):
        disk = written()
        disk.flip_bit(PATH, position, position % 8)
        caplog.clear()
        assert read_timer_checkpoint(disk, PATH) == CHECKPOINT
        assert "the timer's checkpoint is damaged: its copy is used" in caplog.text
    disk = written()
    disk.remove(PATH)
    assert read_timer_checkpoint(disk, PATH) == CHECKPOINT
    assert "the timer's checkpoint is missing: its copy is used" in caplog.text


def test_without_an_intact_copy_the_start_is_refused() -> None:
    disk = written()
    for path in (PATH, copy_of(PATH)):
        disk.flip_bit(path, 9, 1)
    with pytest.raises(StoreCorrupt, match=r"checkpoint is damaged, and there is no intact copy"):
        read_timer_checkpoint(disk, PATH)


def test_a_damaged_copy_does_not_matter_while_the_checkpoint_is_intact() -> None:
    disk = written()
    disk.flip_bit(copy_of(PATH), 9, 1)
    assert read_timer_checkpoint(disk, PATH) == CHECKPOINT


def test_a_timer_that_was_never_used_has_none() -> None:
    assert read_timer_checkpoint(SimulatedDisk(), PATH) is None


def test_a_checkpoint_of_an_earlier_release_is_read() -> None:
    disk = SimulatedDisk()
    disk.make_directory(PATH.parent)
    data = struct.pack(">8s5q", b"ARTIMER1", 1, 2, 3, 4, 5)
    replace_all(disk, PATH, data + struct.pack(">I", crc32(data)))
    assert read_timer_checkpoint(disk, PATH) == TimerCheckpoint(1, 2, 3, 4, 5, 0)


def test_a_lost_log_is_read_again_with_the_larger_of_what_is_known() -> None:
    assert TimerCheckpoint(900, 320, 10).read_again() == TimerCheckpoint(900, 0, 0, 10, 900)
    assert TimerCheckpoint(900, 320, 10, 4, 500, 7).read_again() == TimerCheckpoint(900, 0, 0, 10, 900)
    assert TimerCheckpoint(900, 320, 2, 4, 500, 7).read_again() == TimerCheckpoint(900, 0, 0, 4, 500, 7)
