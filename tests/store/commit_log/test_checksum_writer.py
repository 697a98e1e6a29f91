"""Block checksums of a growing log: what they cover and when, and which changes they detect."""

import errno
import random
from pathlib import Path

import pytest

from ariane.store.commit_log.checksums import DAMAGED, NOT_KNOWN, BlockChecksum, open_checksums
from ariane.store.layout import Layout, offset_name
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import SimulatedDisk, SimulatedFile
from tests.store.block_checksums import check_block_checksums, is_covered
from tests.store.stores import ROOT, draft, opened, put

LAYOUT = Layout.under(ROOT)
LOG = LAYOUT.commit_log / offset_name(0)
CHECKSUMS = LAYOUT.commit_log_checksums / offset_name(0)
FULL = OSError(errno.ENOSPC, "No space left on device")


def checksums_of(disk: SimulatedDisk, base: int = 0) -> list[BlockChecksum]:
    file = open_checksums(disk, LAYOUT.commit_log_checksums / offset_name(base), base, 8192)
    if file is None:
        return []
    found = file.read()
    return found + [NOT_KNOWN] * (file.blocks.count - len(found))


def covered(disk: SimulatedDisk) -> int:
    return check_block_checksums(disk).summary.summed_bytes


def sync(store: MessageStore) -> int:
    store.flusher.flushed(store.flusher.sync_now())
    return store.flusher.flushed_to


def end_of(store: MessageStore) -> int:
    return store.components.commit_log.max_offset


def test_a_sync_is_followed_by_checksums_of_all_that_it_made_durable() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, *[draft(bytes(700)) for _ in range(3)])
    durable_to = sync(store)
    assert covered(disk) == 0
    assert not store.extend_checksums(durable_to)
    assert [checksum.covered_to for checksum in checksums_of(disk)[:3]] == [1000, 2000, durable_to]


def test_a_part_of_a_block_is_summed_and_continued() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    for _ in range(12):
        put(store, draft(bytes(100)))
        assert not store.extend_checksums(sync(store))
        assert is_covered(disk, end_of(store))


def test_an_append_touches_no_sum() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    before = disk.operations
    put(store, *[draft(bytes(700)) for _ in range(5)])
    assert all(operation.path.parent != LAYOUT.commit_log_checksums for operation in disk.journal[before:])


def test_after_a_clean_stop_every_byte_is_covered_over_all_files() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    for _ in range(30):
        put(store, draft(bytes(900)))
    assert len(store.components.commit_log.segments) > 3
    store.close()
    assert is_covered(disk, end_of(store))


def test_a_block_goes_on_from_its_sum_so_that_a_change_in_it_still_shows() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, draft(bytes(100)))
    store.close()
    disk.flip_bit(LOG, 45, 3)  # a bit of the born timestamp
    store = opened(disk)
    put(store, *[draft(bytes(300)) for _ in range(5)])
    store.close()
    (fault,) = check_block_checksums(disk).faults
    assert (fault.file, fault.position) == (f"commitlog/{offset_name(0)}", 0)


def test_large_steps_say_that_there_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ariane.store.commit_log.checksum_writer.STEP_BYTES", 2500)
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, *[draft(bytes(700)) for _ in range(9)])
    durable_to = sync(store)
    steps = 1
    while store.extend_checksums(durable_to):
        steps += 1
    assert steps == 3
    assert is_covered(disk, durable_to)


def test_without_the_setting_there_is_no_directory() -> None:
    disk = SimulatedDisk()
    store = opened(disk, sum_block_bytes=0)
    put(store, draft(bytes(700)))
    assert not store.extend_checksums(sync(store))
    store.close()
    assert LAYOUT.commit_log_checksums.name not in disk.names(ROOT)


def test_a_store_from_before_is_summed_as_far_back_as_a_start_can_afford(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ariane.store.commit_log.checksum_writer.BACKFILL_BYTES", 1500)
    disk = SimulatedDisk()
    store = opened(disk, sum_block_bytes=0)
    put(store, *[draft(bytes(700)) for _ in range(4)])
    old_end = end_of(store)
    store.close()
    store = opened(disk)
    assert covered(disk) == old_end - (old_end - 1500) // 1000 * 1000
    put(store, *[draft(bytes(700)) for _ in range(4)])
    store.close()
    assert covered(disk) == end_of(store) - (old_end - 1500) // 1000 * 1000
    assert check_block_checksums(disk).is_sound


def test_a_file_keeps_the_block_size_that_it_was_begun_with() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, *[draft(bytes(700)) for _ in range(4)])
    store.close()
    store = opened(disk, sum_block_bytes=3000)
    put(store, *[draft(bytes(700)) for _ in range(9)])
    store.close()
    assert [len(checksums_of(disk, base)) for base in (0, 8192)] == [9, 3]
    assert is_covered(disk, end_of(store))


def test_deleted_files_are_removed_with_their_checksums() -> None:
    clock = FakeClock()
    disk = SimulatedDisk(clock)
    store = opened(disk, clock)
    for _ in range(30):
        put(store, draft(bytes(900)))
    store.make_durable()
    clock._elapsed_s += 73 * 3600
    assert store.clean(manual=True).files == 3
    assert (
        disk.names(LAYOUT.commit_log_checksums)
        == disk.names(LAYOUT.commit_log)[: len(disk.names(LAYOUT.commit_log_checksums))]
    )


def test_a_disk_that_refuses_checksums_takes_messages_and_leaves_a_gap(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, *[draft(bytes(700)) for _ in range(3)])
    durable_to = sync(store)
    disk.fail_writes(FULL)
    assert not store.extend_checksums(durable_to)
    assert not store.extend_checksums(durable_to + 1)
    assert [record.message for record in caplog.records].count("block checksums of the commit log are not written") == 1
    disk.fail_writes(None)
    put(store, *[draft(bytes(700)) for _ in range(3)])
    store.close()
    assert [checksum == NOT_KNOWN for checksum in checksums_of(disk)[:5]] == [True, True, False, False, False]
    assert check_block_checksums(disk).is_sound


class NoSumsDisk(SimulatedDisk):
    """While `is_failing`, its checksum files cannot be opened."""

    is_failing = False

    def open(self, path: Path, *, writable: bool) -> SimulatedFile:
        if path.parent == LAYOUT.commit_log_checksums and self.is_failing:
            raise OSError(errno.EIO, "Input/output error")
        return super().open(path, writable=writable)


def test_a_sync_of_checksums_that_fails_does_not_stop_the_store() -> None:
    disk = NoSumsDisk()
    store = opened(disk)
    put(store, draft(bytes(700)))
    store.make_durable()
    disk.is_failing = True
    put(store, draft(bytes(700)))
    store.make_durable()
    assert store.write_error is None
    disk.is_failing = False
    put(store, draft(bytes(700)))
    store.close()
    assert check_block_checksums(disk).is_sound


def test_a_damaged_sum_at_the_end_is_passed_over() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, *[draft(bytes(700)) for _ in range(3)])
    store.close()
    disk.flip_bit(CHECKSUMS, 32 + 2 * 16, 0)
    assert checksums_of(disk)[2] == DAMAGED
    store = opened(disk)
    store.close()
    assert is_covered(disk, end_of(store))


def test_checksums_whose_header_is_damaged_are_created_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, *[draft(bytes(700)) for _ in range(3)])
    store.close()
    disk.flip_bit(CHECKSUMS, 3, 0)
    store = opened(disk)
    assert "block checksums removed: their file is damaged" in caplog.text
    put(store, draft(bytes(700)))
    store.close()
    assert is_covered(disk, end_of(store))


def test_any_mix_of_syncs_steps_and_checkpoints_gives_the_same_checksums() -> None:
    def run(seed: int) -> list[BlockChecksum]:
        disk = SimulatedDisk()
        store = opened(disk)
        rng = random.Random(seed)
        for number in range(25):
            put(store, draft(random.Random(number).randbytes(600)))
            if rng.random() < 0.5:
                store.extend_checksums(sync(store))
            if rng.random() < 0.2:
                store.make_durable()
        store.close()
        return [checksum for base in (0, 8192, 16384) for checksum in checksums_of(disk, base)]

    wanted = run(0)
    assert all(run(seed) == wanted for seed in range(1, 10))
