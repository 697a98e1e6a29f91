"""Which bytes of a file are left after kill -9 and after a power cut."""

import pytest

from ariane.store.disk import replace_all
from tests.simulation.crashes import PATH, ROOT, content, cuts, durable_file, new_disk, outcomes, page_letters
from tests.simulation.simulated_disk import PAGE_BYTES, SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk()


def test_everything_written_survives_a_crash_of_the_process(disk: SimulatedDisk) -> None:
    durable_file(disk, 3).write(b"new" * 2000, 100)
    after = disk.crash_process()
    assert content(after) == content(disk)
    assert after.names(ROOT) == ["file"]


def test_synced_bytes_survive_every_power_cut(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 3)
    file.write(b"a" * PAGE_BYTES, PAGE_BYTES)
    file.sync()
    assert outcomes(disk) == {"-a-"}


def test_unsynced_pages_survive_each_on_its_own(disk: SimulatedDisk) -> None:
    durable_file(disk, 3).write(b"a" * (3 * PAGE_BYTES), 0)
    assert outcomes(disk) == {"---", "--a", "-a-", "-aa", "a--", "a-a", "aa-", "aaa"}


def test_a_page_may_hold_any_version_since_its_last_sync_and_none_before(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 1, fill=b"0")
    for letter in (b"1", b"2"):
        file.write(letter * PAGE_BYTES, 0)
    file.sync()
    for letter in (b"3", b"4", b"5"):
        file.write(letter * PAGE_BYTES, 0)
    assert outcomes(disk) == {"2", "3", "4", "5"}


def test_a_crash_of_the_process_makes_nothing_durable(disk: SimulatedDisk) -> None:
    durable_file(disk, 1).write(b"a" * PAGE_BYTES, 0)
    assert outcomes(disk.crash_process()) == {"-", "a"}


def test_another_process_can_sync_what_a_dead_one_wrote(disk: SimulatedDisk) -> None:
    durable_file(disk, 1).write(b"a" * PAGE_BYTES, 0)
    after = disk.crash_process()
    after.open(PATH, writable=False).sync()
    assert outcomes(after) == {"a"}


def test_writes_through_a_mapping_are_unsynced_until_the_file_is_synced(disk: SimulatedDisk) -> None:
    file = durable_file(disk, 2)
    mapped = file.writable_view(2 * PAGE_BYTES)
    mapped[:] = b"m" * (2 * PAGE_BYTES)
    assert outcomes(disk) == {"--", "-m", "m-", "mm"}
    assert page_letters(disk.crash_process()) == "mm"
    mapped[:PAGE_BYTES] = b"n" * PAGE_BYTES
    file.sync()
    assert outcomes(disk) == {"nm"}


def test_a_mapping_of_blocks_not_allocated_is_a_mistake(disk: SimulatedDisk) -> None:
    file = disk.create(PATH, 4 * PAGE_BYTES, allocated=2 * PAGE_BYTES)
    with pytest.raises(AssertionError, match="SIGBUS"):
        file.writable_view(3 * PAGE_BYTES)


def test_a_write_past_the_end_is_a_mistake(disk: SimulatedDisk) -> None:
    with pytest.raises(AssertionError, match="grows"):
        durable_file(disk, 1).write(b"xx", PAGE_BYTES - 1)


def test_a_page_that_ends_with_the_file_is_short(disk: SimulatedDisk) -> None:
    replace_all(disk, PATH, b"x" * (PAGE_BYTES + 10))
    disk.open(PATH, writable=True).write(b"yy", PAGE_BYTES + 8)
    ends = {(content(after) or b"")[-3:] for after in cuts(disk)}
    assert ends == {b"xxx", b"xyy"}


def test_there_is_no_data_in_a_file_never_written(disk: SimulatedDisk) -> None:
    file = disk.create(PATH, 8 * PAGE_BYTES, allocated=4 * PAGE_BYTES)
    assert file.next_data(0) is None
    file.writable_view(4 * PAGE_BYTES)[3 * PAGE_BYTES] = 1
    assert file.next_data(5) == 3 * PAGE_BYTES
