"""Gaps in block checksums: start-up fills them, but never with checksums of damaged bytes."""

import errno
import random

import pytest

from ariane.store.commit_log.checksum_writer import ChecksumWriter
from ariane.store.commit_log.checksums import DAMAGED, NOT_KNOWN, BlockChecksum, open_checksums
from ariane.store.commit_log.log import Segments
from ariane.store.layout import Layout, offset_name
from ariane.store.message_store import MessageStore
from ariane.store.offline.verify import verify_store
from ariane.wire.hashes import running_crc32
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.block_checksums import check_block_checksums, is_covered
from tests.store.stores import ROOT, draft, opened, put

LAYOUT = Layout.under(ROOT)
SEGMENT = 8192


def checksums_of(disk: SimulatedDisk, base: int) -> list[BlockChecksum]:
    file = open_checksums(disk, LAYOUT.commit_log_checksums / offset_name(base), base, SEGMENT)
    assert file is not None
    return file.read()


def forget(disk: SimulatedDisk, base: int, *numbers: int) -> None:
    file = open_checksums(disk, LAYOUT.commit_log_checksums / offset_name(base), base, SEGMENT, writable=True)
    assert file is not None
    for number in numbers:
        file.write(number, [NOT_KNOWN])
    file.close()


def stopped(count: int = 40) -> tuple[SimulatedDisk, int]:
    """A store of several files, stopped cleanly; and where its log ends."""
    disk = SimulatedDisk()
    store = opened(disk)
    for number in range(count):
        put(store, draft(random.Random(number).randbytes(600)))
    store.close()
    assert is_covered(disk, end_of(store))
    return disk, end_of(store)


def end_of(store: MessageStore) -> int:
    return store.components.commit_log.max_offset


def test_a_power_cut_after_a_kill_leaves_no_block_without_a_sum() -> None:
    """The checksums of a killed process were written and not synced; those of the next one were."""
    for seed in range(20):
        disk = SimulatedDisk()
        store = opened(disk)
        for _ in range(14):
            put(store, draft(bytes(600)))
        store.flusher.flushed(store.flusher.sync_now())
        store.extend_checksums(store.flusher.flushed_to)
        disk = disk.crash_process()
        opened(disk)
        disk = disk.cut_power(random.Random(seed))
        opened(disk, boot="boot-2")
        disk = disk.crash_process()
        store = opened(disk, boot="boot-2")
        store.close()
        assert is_covered(disk, end_of(store))


def test_checksums_of_a_killed_process_are_durable_with_the_next_checkpoint() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    for _ in range(14):
        put(store, draft(bytes(600)))
    store.extend_checksums(store.flusher.sync_now())
    disk = disk.crash_process()
    end = end_of(opened(disk))
    for seed in range(20):
        assert is_covered(disk.cut_power(random.Random(seed)), end)


def test_a_gap_between_known_checksums_is_filled() -> None:
    disk, end = stopped()
    wanted = checksums_of(disk, 0)
    forget(disk, 0, 0, 3, 4)
    forget(disk, SEGMENT, 8)
    assert not is_covered(disk, end)
    opened(disk)
    assert is_covered(disk, end)
    assert checksums_of(disk, 0) == wanted


def test_a_missing_checksum_file_is_created_again() -> None:
    disk, end = stopped()
    disk.remove(LAYOUT.commit_log_checksums / offset_name(SEGMENT))
    opened(disk)
    assert is_covered(disk, end)


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_block_that_is_summed_in_part_goes_on_from_its_sum(is_changed: bool) -> None:
    """Then a change that no record check detects still shows, here in the head of a record."""
    disk, end = stopped()
    log = LAYOUT.commit_log / offset_name(0)
    view = disk.open(log, writable=False).view()
    file = open_checksums(disk, LAYOUT.commit_log_checksums / offset_name(0), 0, SEGMENT, writable=True)
    assert file is not None
    file.write(0, [BlockChecksum(500, running_crc32(view[:500]))])
    if is_changed:
        disk.flip_bit(log, 45, 3)  # a bit of the born timestamp
    opened(disk)
    assert checksums_of(disk, 0)[0].covered_to == 1000
    assert is_covered(disk, end) != is_changed
    assert [fault.position for fault in check_block_checksums(disk).faults] == [0] * is_changed


def test_a_damaged_sum_is_no_gap_and_stays_to_be_reported() -> None:
    disk, _ = stopped()
    disk.flip_bit(LAYOUT.commit_log_checksums / offset_name(0), 32 + 3 * 16, 0)
    opened(disk).close()
    assert checksums_of(disk, 0)[3] == DAMAGED
    assert not check_block_checksums(disk).is_sound


@pytest.mark.parametrize("position", [3100, 3999, 4000, 4500, 4999, 5100])
def test_damage_in_a_gap_is_not_vouched_for(position: int, caplog: pytest.LogCaptureFixture) -> None:
    """Wherever the record lies: inside of the gap, or over one of its ends."""
    disk, _ = stopped()
    forget(disk, 0, 3, 4, 5)
    disk.flip_bit(LAYOUT.commit_log / offset_name(0), position, 0)
    store = opened(disk)
    store.close()
    checksums = checksums_of(disk, 0)
    assert checksums[position // 1000] == NOT_KNOWN
    assert checksums[2] != NOT_KNOWN
    assert "get no block checksum" in caplog.text
    assert not verify_store(disk, LAYOUT).is_sound


def test_a_gap_over_the_whole_log_is_filled_up_to_damage_and_behind_it() -> None:
    disk, _ = stopped()
    for name in disk.names(LAYOUT.commit_log_checksums):
        disk.remove(LAYOUT.commit_log_checksums / name)
    disk.flip_bit(LAYOUT.commit_log / offset_name(0), 3700, 0)
    opened(disk).close()
    checksums = checksums_of(disk, 0)
    assert [number for number, checksum in enumerate(checksums) if checksum == NOT_KNOWN] == [3, 4]
    assert check_block_checksums(disk).faults == []


def test_checksums_that_are_missing_at_the_end_are_a_gap_like_others() -> None:
    """As when a power cut took the newest checksum file: what recovery has not scanned is checked first."""
    disk, end = stopped()
    last = end // SEGMENT * SEGMENT
    disk.remove(LAYOUT.commit_log_checksums / offset_name(last))
    disk.flip_bit(LAYOUT.commit_log / offset_name(last), 400, 0)
    opened(disk).close()
    assert checksums_of(disk, last)[0] == NOT_KNOWN
    assert check_block_checksums(disk).faults == []


def test_a_damaged_sum_before_missing_ones_stays_damaged() -> None:
    disk, end = stopped()
    last = end // SEGMENT * SEGMENT
    disk.flip_bit(LAYOUT.commit_log_checksums / offset_name(last), 32 + 16, 0)
    forget(disk, last, *range(2, 8))
    opened(disk).close()
    checksums = checksums_of(disk, last)
    assert [number for number, checksum in enumerate(checksums) if checksum == DAMAGED] == [1]
    assert NOT_KNOWN not in checksums


def test_a_gap_that_cannot_be_filled_waits_for_the_next_start(caplog: pytest.LogCaptureFixture) -> None:
    disk, end = stopped()
    forget(disk, 0, 3)
    segments = Segments(disk, LAYOUT.commit_log, SEGMENT, writable=True)
    checksums = ChecksumWriter(disk, LAYOUT.commit_log_checksums, segments, 1000, end, end)
    disk.fail_writes(OSError(errno.EIO, "Input/output error"))
    checksums.make_durable(end)
    checksums.close()
    assert "missing block checksums cannot be restored" in caplog.text
    disk.fail_writes(None)
    opened(disk).close()
    assert NOT_KNOWN not in checksums_of(disk, 0)


def test_a_clean_stop_and_start_read_no_byte_of_the_log_for_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, _ = stopped()

    def unexpected(*arguments: object) -> None:
        raise AssertionError("nothing is missing")

    monkeypatch.setattr("ariane.store.commit_log.checksum_writer.fill", unexpected)
    opened(disk)
