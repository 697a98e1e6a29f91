"""Which names are left after kill -9 and after a power cut."""

import pytest

from tests.simulation.crashes import PATH, ROOT, content, cuts, durable_file, new_disk
from tests.simulation.simulated_disk import PAGE_BYTES, PowerCut, SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk()


def test_the_size_of_a_new_file_is_durable_only_with_the_file(disk: SimulatedDisk) -> None:
    file = disk.create(PATH, 3 * PAGE_BYTES, allocated=PAGE_BYTES)
    file.write(b"a" * (3 * PAGE_BYTES), 0)
    disk.sync_directory(ROOT)
    assert {after.size(PATH) for after in cuts(disk)} == {0, PAGE_BYTES, 3 * PAGE_BYTES}
    file.sync()
    assert {after.size(PATH) for after in cuts(disk)} == {3 * PAGE_BYTES}


def test_a_file_of_half_its_size_has_the_bytes_of_that_half(disk: SimulatedDisk) -> None:
    file = disk.create(PATH, 3 * PAGE_BYTES, allocated=PAGE_BYTES + 10)
    file.write(b"a" * (3 * PAGE_BYTES), 0)
    disk.sync_directory(ROOT)
    shortened = [after for after in cuts(disk) if after.size(PATH) == PAGE_BYTES + 10]
    assert {len(content(after) or b"") for after in shortened} == {PAGE_BYTES + 10}
    assert {(content(after) or b"")[PAGE_BYTES:] for after in shortened} == {bytes(10), b"a" * 10}


def test_a_new_name_is_durable_only_with_its_directory(disk: SimulatedDisk) -> None:
    disk.create(PATH, 10, allocated=0).sync()
    assert {after.size(PATH) for after in cuts(disk)} == {None, 10}
    disk.sync_directory(ROOT)
    assert {after.size(PATH) for after in cuts(disk)} == {10}


def test_a_removal_may_be_undone_until_its_directory_is_synced(disk: SimulatedDisk) -> None:
    durable_file(disk, 2, fill=b"a")
    disk.remove(PATH)
    assert disk.crash_process().names(ROOT) == []
    assert {content(after) for after in cuts(disk)} == {None, b"a" * (2 * PAGE_BYTES)}
    disk.sync_directory(ROOT)
    assert {content(after) for after in cuts(disk)} == {None}


def test_a_rename_is_there_or_not_and_never_half(disk: SimulatedDisk) -> None:
    other = ROOT / "other"
    durable_file(disk, 1, fill=b"a")
    durable_file(disk, 1, path=other, fill=b"b")
    disk.rename(PATH, other)
    found = {(content(after, PATH), content(after, other)) for after in cuts(disk)}
    assert found == {(b"a" * PAGE_BYTES, b"b" * PAGE_BYTES), (None, b"a" * PAGE_BYTES)}
    disk.sync_directory(ROOT)
    assert {tuple(after.names(ROOT)) for after in cuts(disk)} == {("other",)}


def test_no_file_is_lost_because_only_the_later_of_two_renames_survives(disk: SimulatedDisk) -> None:
    backup, beside = ROOT / "backup", ROOT / "beside"
    durable_file(disk, 1, fill=b"a")
    durable_file(disk, 1, path=beside, fill=b"b")
    disk.rename(PATH, backup)
    disk.rename(beside, PATH)
    found = {(content(after, PATH), content(after, backup)) for after in cuts(disk)}
    a, b = b"a" * PAGE_BYTES, b"b" * PAGE_BYTES
    assert found == {(a, None), (None, a), (b, a)}


def test_a_sync_of_either_directory_makes_a_rename_across_them_durable(disk: SimulatedDisk) -> None:
    here, there = ROOT / "here", ROOT / "there"
    for synced in (here, there):
        disk = new_disk()
        disk.make_directory(here)
        disk.make_directory(there)
        disk.create(here / "file", 1, allocated=0).sync()
        disk.rename(here / "file", there / "file")
        assert {len(after.names(here)) + len(after.names(there)) for after in cuts(disk)} == {0, 1}
        disk.sync_directory(synced)
        assert {(*after.names(here), "|", *after.names(there)) for after in cuts(disk)} == {("|", "file")}


def test_changes_that_still_wait_keep_their_order(disk: SimulatedDisk) -> None:
    here, there = ROOT / "here", ROOT / "there"
    disk.make_directory(here)
    disk.make_directory(there)
    disk.create(here / "file", 1, allocated=0).sync()
    disk.remove(here / "file")
    disk.sync_directory(there)
    disk.sync_directory(here)
    assert {tuple(after.names(here)) for after in cuts(disk)} == {()}


def test_what_stands_in_a_directory_that_is_lost_is_lost(disk: SimulatedDisk) -> None:
    below = ROOT / "below"
    disk.crash_at(disk.operations + 2)
    with pytest.raises(PowerCut):
        disk.make_directory(below)
    after = disk.crash_process()
    after.create(below / "file", 1, allocated=0).sync()
    after.sync_directory(below)
    assert {(*again.names(ROOT), *again.names(below)) for again in cuts(after)} == {(), ("below", "file")}
    after.sync_directory(ROOT)
    assert {(*again.names(ROOT), *again.names(below)) for again in cuts(after)} == {("below", "file")}


def test_a_directory_is_removed_only_with_what_was_in_it(disk: SimulatedDisk) -> None:
    below = ROOT / "below"
    disk.make_directory(below)
    durable_file(disk, 1, path=below / "file")
    disk.remove(below / "file")
    disk.remove_directory(below)
    found = {(*after.names(ROOT), *after.names(below)) for after in cuts(disk)}
    assert found == {(), ("below",), ("below", "file")}
    disk.sync_directory(ROOT)
    assert {(*after.names(ROOT), *after.names(below)) for after in cuts(disk)} == {()}
    disk.make_directory(below)
    assert {(*after.names(ROOT), *after.names(below)) for after in cuts(disk)} == {("below",)}
