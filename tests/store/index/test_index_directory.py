"""Which files an index has: their names, their making and going, and when they are durable."""

import errno
from pathlib import Path

import pytest

from ariane.errors import StoreError, StoreFull, StoreReadOnly
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.index.indexes import (
    ROOT,
    filled,
    found,
    message,
    opened,
)

DIRECTORY = Layout.under(ROOT).index


def test_files_made_in_one_millisecond_or_when_summer_time_ends_keep_their_order() -> None:
    disk = SimulatedDisk()
    times = iter(["20261025025959999", "20261025025959999", "20261025020000000"])
    index = opened(disk, name=lambda: next(times))
    index.put([message(number, "a") for number in range(21)])
    assert disk.names(DIRECTORY) == ["20261025025959999", "20261025025960000", "20261025025960001"]
    assert found(index, "a") == list(range(20, -1, -1))


def test_files_of_apache_whose_names_went_back_are_read_in_the_order_of_the_log() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    index.close()
    older, newer = (DIRECTORY / name for name in disk.names(DIRECTORY)[:2])
    disk.rename(older, DIRECTORY / "30000000000000000")
    disk.rename(newer, older)
    index = opened(disk)
    index.after_clean_stop()
    index.put([message(200, "k0"), message(210, "k0")])
    assert found(index, "k0") == [210, 200, 0]
    assert max(disk.names(DIRECTORY)) == "30000000000000001"


def test_names_that_are_not_of_index_files_are_left_alone() -> None:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    for name in (".DS_Store", "2026111521261940", "2026111521261940x", "２０２６1115212619400"):
        disk.create(DIRECTORY / name, 1, allocated=0)
    filled(disk)
    assert len(disk.names(DIRECTORY)) == 3 + 4


def test_a_file_whose_making_was_cut_off_is_removed() -> None:
    disk = SimulatedDisk()
    filled(disk).close()
    disk.create(DIRECTORY / "30000000000000000", 52, allocated=52)
    index = opened(disk)
    index.after_clean_stop()
    assert index.end_physical == 190
    assert len(disk.names(DIRECTORY)) == 3


def test_a_file_that_cannot_be_synced_when_it_is_made_leaves_no_trace() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    disk.fail_syncs(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(StoreFull, match="Input/output error"):
        index.put([message(number, "x") for number in range(200, 210)])
    disk.fail_syncs(None)
    assert len(disk.names(DIRECTORY)) == 3
    index.put([message(number, "x") for number in range(200, 210)])
    assert found(index, "x") == list(range(209, 199, -1))


def test_files_behind_the_beginning_of_the_log_are_dropped_but_never_the_newest() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    index.drop_before(60)
    assert len(disk.names(DIRECTORY)) == 3
    index.drop_before(61)
    assert len(disk.names(DIRECTORY)) == 2
    assert found(index, "k60") == []
    assert found(index, "k70") == [70]
    index.drop_before(10**12)
    assert len(disk.names(DIRECTORY)) == 1
    assert index.end_physical == 190


def test_a_file_that_somebody_removed_by_hand_is_dropped_all_the_same() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    disk.remove(DIRECTORY / disk.names(DIRECTORY)[0])
    index.drop_before(10**12)
    assert len(disk.names(DIRECTORY)) == 1
    assert found(index, "k190") == [190]


def test_a_sync_covers_the_changed_files_and_their_names() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    with index.syncing() as plan:
        plan.run()
    disk.journal.clear()
    with index.syncing() as plan:
        plan.run()
    assert disk.journal == []
    index.put([message(500, "a")])
    with index.syncing() as plan:
        index.put([message(600, *["b"] * 9)])  # while the thread works: new files, which the next sync covers
        disk.journal.clear()
        plan.run()
    assert [step.path.name for step in disk.journal] == ["20261115212619402"]
    disk.journal.clear()
    with index.syncing() as plan:
        plan.run()
    assert [step.path.name for step in disk.journal] == ["20261115212619403", "20261115212619404", "index"]


def test_a_plan_that_was_not_run_covers_nothing() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    with index.syncing():
        pass
    with index.syncing() as plan:
        assert len(plan.files) == 3
        assert plan.directory == DIRECTORY


def test_a_failed_sync_is_reported_and_never_taken_back() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    disk.fail_syncs(OSError(errno.EIO, "Input/output error"))
    for _ in range(2):
        with pytest.raises(StoreReadOnly, match="cannot be made durable"), index.syncing() as plan:
            plan.run()
        disk.fail_syncs(None)
    index.close()


def test_a_file_dropped_during_a_sync_is_closed_only_afterwards() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    with index.syncing() as plan:
        index.drop_before(10**12)
        plan.run()
    assert len(disk.names(DIRECTORY)) == 1


def test_a_directory_that_cannot_be_read_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20261115212619400").mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        opened(RealDisk(), root=tmp_path)
