"""Crash points, and the faults that a test can ask for."""

import errno
import os
import random
import threading
from pathlib import Path

import pytest

from ariane.store.disk import replace_all
from ariane.testing import FakeClock
from tests.simulation.crashes import (
    PATH,
    ROOT,
    after_each_crash,
    content,
    cuts,
    durable_file,
    new_disk,
    outcomes,
    page_letters,
)
from tests.simulation.simulated_disk import PAGE_BYTES, Operation, PowerCut, SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk()


def test_the_journal_tells_every_operation_in_order(disk: SimulatedDisk) -> None:
    before = disk.operations
    replace_all(disk, PATH, b"new")
    beside = ROOT / "file.tmp"
    assert disk.journal[before:] == [
        Operation("create", beside, 0, 3),
        Operation("write", beside, 0, 3),
        Operation("sync", beside),
        Operation("rename", beside),
        Operation("sync_directory", ROOT),
    ]


def test_the_machine_stays_off_after_its_crash_point(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 2)
    disk.crash_at(disk.operations + 2)
    file.write(b"a" * PAGE_BYTES, 0)
    with pytest.raises(PowerCut):
        file.sync()
    with pytest.raises(PowerCut):
        file.write(b"b" * (2 * PAGE_BYTES), 0)
    with pytest.raises(PowerCut):
        disk.remove(PATH)
    assert outcomes(disk) == {"--", "a-"}
    after = disk.crash_process()
    after.remove(PATH)
    assert after.operations == 1


def test_a_write_over_pages_is_cut_off_between_them(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 2)
    disk.crash_at(disk.operations + 1)
    with pytest.raises(PowerCut):
        file.write(b"a" * (2 * PAGE_BYTES), 0)
    assert page_letters(disk.crash_process()) == "a-"
    assert outcomes(disk) == {"--", "a-"}


OLD, NEW = b"old" * 1000, b"new" * 4000


def test_replace_all_leaves_the_old_or_the_new_content_whole_whenever_it_crashes() -> None:
    found = {content(after) for after in after_each_crash(lambda d: replace_all(d, PATH, OLD), put_new)}
    assert found == {OLD, NEW}


def put_new(disk: SimulatedDisk) -> None:
    replace_all(disk, PATH, NEW)


def test_replace_all_works_after_each_of_its_own_crashes() -> None:
    for after in after_each_crash(lambda d: replace_all(d, PATH, OLD), put_new, seeds=5):
        replace_all(after, PATH, b"third")
        assert {content(again) for again in cuts(after, 5)} == {b"third"}


def test_replace_all_is_durable_when_it_returns(disk: SimulatedDisk) -> None:
    replace_all(disk, PATH, OLD)
    replace_all(disk, PATH, NEW)
    assert {content(after) for after in cuts(disk)} == {NEW}


def test_a_rename_before_the_sync_is_caught() -> None:
    """The harness finds the mistake that replace_all avoids."""

    def careless(disk: SimulatedDisk) -> None:
        beside = ROOT / "file.tmp"
        disk.create(beside, len(NEW), allocated=0).write(NEW, 0)
        disk.rename(beside, PATH)
        disk.sync_directory(ROOT)

    found = {content(after) for after in after_each_crash(lambda d: replace_all(d, PATH, OLD), careless)}
    assert b"" in found
    assert len(found - {OLD, NEW, b""}) > 1


def test_the_same_seed_gives_the_same_disk(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 8)
    for page in range(8):
        file.write(bytes([65 + page]) * PAGE_BYTES, page * PAGE_BYTES)
    disk.create(ROOT / "other", 10, allocated=0)
    for once, again in zip(cuts(disk), cuts(disk), strict=True):
        assert (once.names(ROOT), content(once)) == (again.names(ROOT), content(again))


def test_disks_taken_of_one_disk_do_not_see_each_other(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 1)
    file.write(b"z" * PAGE_BYTES, 0)
    one, other, third = disk.crash_process(), disk.cut_power(random.Random(1)), disk.crash_process()
    for writer, letter in (
        (file, b"a"),
        (one.open(PATH, writable=True), b"b"),
        (other.open(PATH, writable=True), b"c"),
    ):
        writer.write(letter * PAGE_BYTES, 0)
        writer.sync()
    one.remove(PATH)
    assert [page_letters(disk), one.names(ROOT), page_letters(other)] == ["a", [], "c"]
    assert [outcomes(disk), outcomes(other), outcomes(third)] == [{"a"}, {"c"}, {"-", "z"}]


def test_a_failing_write_raises_and_may_leave_its_first_page(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 2)
    disk.fail_writes(OSError(errno.EIO, "the disk is ill"))
    with pytest.raises(OSError, match="the disk is ill"):
        file.write(b"a" * (2 * PAGE_BYTES), 0)
    assert page_letters(disk) == "a-"
    disk.fail_writes(None)
    file.write(b"b" * (2 * PAGE_BYTES), 0)
    assert page_letters(disk) == "bb"


def test_a_failed_sync_leaves_its_pages_in_doubt_though_the_next_succeeds(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 2)
    file.write(b"a" * (2 * PAGE_BYTES), 0)
    disk.fail_syncs(OSError(errno.EIO, "the disk is ill"))
    with pytest.raises(OSError, match="the disk is ill"):
        file.sync()
    disk.fail_syncs(None)
    file.write(b"b" * PAGE_BYTES, 0)
    file.sync()
    assert page_letters(disk.crash_process()) == "ba"
    assert outcomes(disk) == {"b-", "ba"}


def test_a_failed_sync_of_a_directory_makes_no_name_durable(disk: SimulatedDisk) -> None:
    disk.create(PATH, 1, allocated=0).sync()
    disk.fail_syncs(OSError(errno.EIO, "the disk is ill"))
    with pytest.raises(OSError, match="the disk is ill"):
        disk.sync_directory(ROOT)
    assert {after.size(PATH) for after in cuts(disk)} == {None, 1}


def test_a_sync_of_the_file_system_makes_bytes_sizes_and_names_durable(disk: SimulatedDisk) -> None:
    disk.make_directory(ROOT / "new", synced=False)
    path = ROOT / "new" / "file"
    disk.create(path, PAGE_BYTES, allocated=0).write(b"a" * PAGE_BYTES, 0)
    assert {after.size(path) for after in cuts(disk)} > {None}
    file_system = disk.file_system(ROOT)
    assert file_system is not None
    assert file_system.holds(path)
    file_system.sync()
    assert {page_letters(after, path) for after in cuts(disk)} == {"a"}


def test_a_failed_sync_of_the_file_system_leaves_all_of_it_in_doubt(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 2)
    file.write(b"a" * (2 * PAGE_BYTES), 0)
    disk.fail_syncs(OSError(errno.EIO, "the disk is ill"))
    file_system = disk.file_system(ROOT)
    assert file_system is not None
    with pytest.raises(OSError, match="the disk is ill"):
        file_system.sync()
    disk.fail_syncs(None)
    file.sync()
    assert outcomes(disk) == {"--", "-a", "a-", "aa"}


def test_space_is_taken_by_allocation_and_by_the_first_write_of_a_page(disk: SimulatedDisk) -> None:
    disk.space_left = 5 * PAGE_BYTES
    file = disk.create(PATH, 100 * PAGE_BYTES, allocated=2 * PAGE_BYTES)
    assert disk.space_left == 3 * PAGE_BYTES
    file.write(b"x" * PAGE_BYTES, 0)
    assert disk.space_left == 3 * PAGE_BYTES
    file.write(b"x" * 2, 50 * PAGE_BYTES - 1)
    assert disk.space_left == PAGE_BYTES
    assert disk.used_ratio(ROOT) == 0.8


def test_a_full_disk_refuses_and_leaves_nothing_new(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 1)
    disk.space_left = 2 * PAGE_BYTES - 1
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        disk.create(ROOT / "other", 9 * PAGE_BYTES, allocated=2 * PAGE_BYTES)
    sparse = disk.create(ROOT / "sparse", 9 * PAGE_BYTES, allocated=0)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        sparse.write(b"x" * (2 * PAGE_BYTES), 0)
    assert sparse.next_data(0) is None
    assert disk.names(ROOT) == ["file", "sparse"]
    file.write(b"has its blocks", 0)


def test_a_removed_file_gives_its_space_back_and_an_undone_removal_takes_it(disk: SimulatedDisk) -> None:
    disk.space_left = 4 * PAGE_BYTES
    durable_file(disk, 3)
    disk.remove(PATH)
    assert disk.space_left == 4 * PAGE_BYTES
    assert {after.space_left for after in cuts(disk)} == {PAGE_BYTES, 4 * PAGE_BYTES}


def test_a_replaced_file_gives_its_space_back(disk: SimulatedDisk) -> None:
    disk.space_left = 4 * PAGE_BYTES
    durable_file(disk, 3)
    durable_file(disk, 1, path=ROOT / "other")
    disk.rename(ROOT / "other", PATH)
    assert disk.space_left == 3 * PAGE_BYTES


def test_a_flipped_bit_stays_flipped_for_readers_and_after_restarts(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 2)
    view = file.view()
    file.write(b"-", 7)
    disk.flip_bit(PATH, 7, 0)
    disk.flip_bit(PATH, PAGE_BYTES, 7)
    for after in (disk, disk.crash_process(), *cuts(disk)):
        assert (content(after) or b"")[6:9] == b"-,-"
        assert (content(after) or b"")[PAGE_BYTES] == ord("-") ^ 0x80
    assert bytes(view[6:9]) == b"-,-"


async def test_files_remember_when_they_were_written() -> None:
    clock = FakeClock(now_ms=1_000)
    disk = SimulatedDisk(clock)
    file = disk.create(Path("file"), 10, allocated=0)
    await clock.advance(5)
    assert disk.modified_ms(Path("file")) == 1_000
    file.write(b"x", 0)
    assert disk.modified_ms(Path("file")) == disk.crash_process().modified_ms(Path("file")) == 6_000


def test_a_thread_may_sync_while_another_writes(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 4)
    done = threading.Event()

    def keep_syncing() -> None:
        while not done.is_set():
            file.sync()

    thread = threading.Thread(target=keep_syncing)
    thread.start()
    for step in range(2_000):
        file.write(b"%04d" % step * PAGE_BYTES, 0)
    done.set()
    thread.join()
    file.sync()
    assert {content(after) for after in cuts(disk, 5)} == {b"1999" * PAGE_BYTES}
