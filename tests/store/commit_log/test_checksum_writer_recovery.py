"""Block checksums after a crash: none is left that contradicts the recovered log."""

import random

from ariane.store.append.draft import Appended
from ariane.store.blocking_io import run_sync
from ariane.store.commit_log.checksum_writer import BACKFILL_BYTES, ChecksumWriter, newest_checksum, truncate_checksums
from ariane.store.commit_log.checksums import open_checksums
from ariane.store.commit_log.log import Segments
from ariane.store.layout import Layout, offset_name
from ariane.store.message_store import MessageStore
from ariane.store.offline.verify import verify_store
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.block_checksums import check_block_checksums, is_covered
from tests.store.stores import ROOT, bodies, draft, opened, put

LAYOUT = Layout.under(ROOT)
LOG = LAYOUT.commit_log / offset_name(0)


def with_records(count: int = 6) -> tuple[SimulatedDisk, MessageStore]:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, *[draft(bytes(700), key=f"k{n}") for n in range(count)])
    return disk, store


def durable(store: MessageStore) -> None:
    store.flusher.flushed(store.flusher.sync_now())
    store.extend_checksums(store.flusher.flushed_to)


def summed_to(disk: SimulatedDisk, base: int = 0) -> int:
    file = open_checksums(disk, LAYOUT.commit_log_checksums / offset_name(base), base, 8192)
    return max((checksum.covered_to for checksum in file.read()), default=0) if file is not None else 0


def test_after_kill_9_checksums_continue_where_they_were() -> None:
    disk, store = with_records()
    durable(store)
    before = summed_to(disk)
    assert before == store.flusher.flushed_to
    put(store, draft(bytes(700)))
    crashed = disk.crash_process()
    assert is_covered(crashed, opened(crashed).components.commit_log.max_offset)


def test_a_blank_record_that_nothing_follows_is_cut_off_with_its_checksums() -> None:
    """The one case in which recovery zeroes durable bytes: the blank's block checksum must be removed first."""
    disk, store = with_records(9)
    last_end = store.components.commit_log.max_offset
    store.make_durable()
    store.components.commit_log.roll()
    store.flusher.flushed(store.flusher.sync_now())
    assert store.components.checksums is not None
    store.components.checksums.make_durable(store.flusher.flushed_to)
    assert summed_to(disk) == 8192
    crashed = disk.cut_power(random.Random(1))
    again = opened(crashed, boot="another boot")
    assert again.components.commit_log.max_offset == last_end
    assert summed_to(crashed) == last_end
    assert is_covered(crashed, last_end)


def test_checksums_are_truncated_and_durable_before_the_log_is_zeroed() -> None:
    disk, store = with_records(9)
    store.make_durable()
    store.components.commit_log.roll()
    store.flusher.flushed(store.flusher.sync_now())
    assert store.components.checksums is not None
    store.components.checksums.make_durable(store.flusher.flushed_to)
    crashed = disk.cut_power(random.Random(1))
    opened(crashed, boot="another boot")
    steps = [(operation.kind, operation.path.parent.name) for operation in crashed.journal]
    assert steps.index(("sync", "commitlog_sums")) < steps.index(("write", "commitlog"))


def test_a_power_cut_that_keeps_a_later_sum_and_loses_an_earlier_one_leaves_no_gap() -> None:
    disk, store = with_records(4)
    store.make_durable()
    for _ in range(12):
        put(store, draft(bytes(700)))
        durable(store)
    for seed in range(30):
        crashed = disk.cut_power(random.Random(seed))
        assert check_block_checksums(crashed).faults == []
        again = opened(crashed, boot="another boot")
        assert is_covered(crashed, again.components.commit_log.max_offset)


def test_a_changed_byte_is_not_summed_anew_when_its_sum_is_shortened() -> None:
    disk, store = with_records(4)
    store.make_durable()
    disk.flip_bit(LOG, 3050, 1)
    segments = Segments(disk, LAYOUT.commit_log, 8192, writable=True)
    truncate_checksums(disk, LAYOUT.commit_log_checksums, segments, 3100)
    assert summed_to(disk) == 3000
    disk.flip_bit(LOG, 2050, 1)
    truncate_checksums(disk, LAYOUT.commit_log_checksums, segments, 2500)
    assert summed_to(disk) == 2000


def test_a_sum_is_shortened_to_the_end_of_the_log() -> None:
    disk, store = with_records(4)
    store.make_durable()
    segments = Segments(disk, LAYOUT.commit_log, 8192, writable=True)
    truncate_checksums(disk, LAYOUT.commit_log_checksums, segments, 2500)
    assert summed_to(disk) == 2500
    assert check_block_checksums(disk).is_sound
    truncate_checksums(disk, LAYOUT.commit_log_checksums, segments, 2000)
    assert summed_to(disk) == 2000
    truncate_checksums(disk, LAYOUT.commit_log_checksums, segments, 0)
    assert disk.names(LAYOUT.commit_log_checksums) == []


def test_checksums_are_truncated_even_when_switched_off() -> None:
    disk, store = with_records(9)
    last_end = store.components.commit_log.max_offset
    store.make_durable()
    store.components.commit_log.roll()  # a blank record that nothing follows
    durable(store)
    assert summed_to(disk) == 8192
    crashed = disk.crash_process()
    again = opened(crashed, boot="another boot", sum_block_bytes=0)
    assert again.components.commit_log.max_offset == last_end
    assert summed_to(crashed) == last_end


def test_checksums_of_deleted_files_are_removed_and_unknown_files_stay() -> None:
    disk, store = with_records(4)
    store.close()
    for name in ("00000000000000016384", "notes.txt"):
        disk.create(LAYOUT.commit_log_checksums / name, 100, allocated=0)
    opened(disk)
    assert disk.names(LAYOUT.commit_log_checksums) == [offset_name(0), "notes.txt"]


def test_a_log_that_was_begun_anew_does_not_meet_the_checksums_of_the_old_one() -> None:
    disk, store = with_records(4)
    store.close()
    disk.remove(LOG)
    disk.remove(LAYOUT.checkpoint)
    again = opened(disk)
    put(again, draft(b"another log altogether"))
    again.close()
    assert is_covered(disk, again.components.commit_log.max_offset)


def test_checksums_that_cannot_be_truncated_are_removed_and_the_store_starts() -> None:
    disk, store = with_records(9)
    store.make_durable()
    segments = Segments(disk, LAYOUT.commit_log, 8192, writable=True)
    disk.fail_writes(OSError(5, "Input/output error"))
    truncate_checksums(disk, LAYOUT.commit_log_checksums, segments, 2500)
    assert disk.names(LAYOUT.commit_log_checksums) == []


def test_a_start_does_not_read_an_old_log_to_sum_it() -> None:
    disk, store = with_records(9)
    end = store.components.commit_log.max_offset
    store.close()
    segments = Segments(disk, LAYOUT.commit_log, 8192, writable=True)
    for name in disk.names(LAYOUT.commit_log_checksums):
        disk.remove(LAYOUT.commit_log_checksums / name)
    assert newest_checksum(disk, LAYOUT.commit_log_checksums, segments, 1000, end, end).covered_to == end // 1000 * 1000
    assert (
        newest_checksum(disk, LAYOUT.commit_log_checksums, segments, 1000, 0, end + BACKFILL_BYTES).covered_to
        == end // 1000 * 1000
    )


def test_after_any_crash_and_a_clean_stop_the_whole_store_is_found_sound() -> None:
    disk, store = with_records(20)
    durable(store)
    put(store, *[draft(bytes(700)) for _ in range(3)])
    for seed in range(20):
        crashed = disk.cut_power(random.Random(seed))
        assert verify_store(crashed, LAYOUT).is_sound
        again = opened(crashed, boot="another boot")
        assert isinstance(again.append([draft(b"later")])[0], Appended)
        assert bodies(again, "orders", 0)[-1] == b"later"
        again.close()
        report = verify_store(crashed, LAYOUT)
        assert report.is_sound
        assert report.notes == []
        assert report.summary.summed_bytes == report.summary.log_bytes


def test_a_deleted_file_that_was_not_summed_yet_is_passed_over() -> None:
    disk, store = with_records(20)
    store.flusher.flushed(store.flusher.sync_now())
    segments = store.components.commit_log.segments
    checksums = ChecksumWriter(disk, LAYOUT.commit_log_checksums, segments, 1000, 0, store.flusher.flushed_to)
    run_sync(segments.drop_first_steps())
    checksums.make_durable(store.flusher.flushed_to)
    checksums.close()
    assert check_block_checksums(disk).is_sound
