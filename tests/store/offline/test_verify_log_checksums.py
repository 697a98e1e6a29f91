"""Verification of block checksums: damaged blocks, blocks without a checksum, and damaged checksum files."""

import random
from pathlib import Path

from ariane.clock import Clock
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout, offset_name
from ariane.store.message_store import MessageStore
from ariane.store.offline.verify import verify_store
from ariane.store.offline.verify_report import Fix, Report
from ariane.store.settings import StoreSettings
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.golden_stores import unpack
from tests.store.stores import HOST, ROOT, draft, opened, put

LAYOUT = Layout.under(ROOT)
LOG = LAYOUT.commit_log / offset_name(0)
CHECKSUMS = LAYOUT.commit_log_checksums / offset_name(0)


def stopped() -> SimulatedDisk:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, *[draft(bytes(700)) for _ in range(6)])
    store.close()
    return disk


def check(disk: SimulatedDisk) -> Report:
    return verify_store(disk, LAYOUT)


def test_a_changed_byte_is_reported_with_its_block_and_the_records_in_it() -> None:
    disk = stopped()
    size = 91 + 700 + len("orders")
    disk.flip_bit(LOG, 2 * size + 45, 0)
    (fault,) = check(disk).faults
    assert (fault.file, fault.position, fault.cure) == (f"commitlog/{offset_name(0)}", 1000, Fix.RESTORE)
    assert fault.what.startswith("bytes 1000 to 1999 are not those that were written")
    assert fault.what.endswith(f"2 valid records are there, at physical offsets {size} to {2 * size}")


def test_the_report_tells_how_much_of_the_log_is_covered() -> None:
    disk = stopped()
    summary = check(disk).summary
    assert summary.summed_bytes == summary.log_bytes == summary.log_ends
    disk.remove(CHECKSUMS)
    report = check(disk)
    assert report.is_sound
    assert report.summary.summed_bytes == 0
    assert report.notes[0].startswith(f"block checksums cover 0 of {summary.log_bytes} bytes of the log")


def test_a_damaged_sum_is_reported_as_that_and_not_as_damage_of_the_log() -> None:
    disk = stopped()
    disk.flip_bit(CHECKSUMS, 32 + 16, 0)
    report = check(disk)
    (fault,) = report.faults
    assert (fault.file, fault.position, fault.cure) == (f"commitlog_sums/{offset_name(0)}", 48, Fix.CHECKSUMS)
    assert report.summary.log_bytes - report.summary.summed_bytes == 1000


def test_a_damaged_checksum_header_is_reported() -> None:
    disk = stopped()
    disk.flip_bit(CHECKSUMS, 20, 0)
    (fault,) = check(disk).faults
    assert (fault.file, fault.position, fault.cure) == (f"commitlog_sums/{offset_name(0)}", 0, Fix.CHECKSUMS)


def test_another_log_in_the_place_of_this_one_is_one_fault_with_its_own_fix() -> None:
    disk = stopped()
    file = disk.open(LOG, writable=True)
    for position in range(45, 5000, 797):
        file.write(random.Random(position).randbytes(4), position)
    file.close()
    (fault,) = check(disk).faults
    assert fault.cure == Fix.REPLACED
    assert "none of its 5 blocks" in fault.what


def test_checksums_of_a_deleted_file_are_a_note() -> None:
    disk = stopped()
    disk.create(LAYOUT.commit_log_checksums / offset_name(8192 * 7), 100, allocated=0)
    report = check(disk)
    assert report.is_sound
    assert "checksums of 1 deleted log files" in report.notes[0]


def test_a_running_store_is_checked_up_to_what_is_durable() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, *[draft(bytes(700)) for _ in range(3)])
    store.flusher.flushed(store.flusher.sync_now())
    durable_to = store.flusher.flushed_to
    store.extend_checksums(durable_to)
    put(store, *[draft(bytes(700)) for _ in range(3)])
    report = check(disk)
    assert report.is_sound
    assert report.summary.summed_bytes == durable_to
    disk.flip_bit(LOG, 45, 0)
    assert [fault.position for fault in check(disk).faults] == [0]


def test_a_store_of_apaches_is_covered_as_far_as_a_start_of_ours_has_walked_it(tmp_path: Path) -> None:
    layout = unpack("clean", tmp_path)
    before = verify_store(RealDisk(), layout).summary
    settings = StoreSettings(
        root=layout.root, segment_bytes=262144, queue_segment_bytes=2000, index_slots=1000, index_entries=4000
    )
    MessageStore.open(settings, Clock(), HOST).close()
    report = verify_store(RealDisk(), layout)
    assert report.is_sound
    assert report.notes == []
    assert report.summary.records == before.records
    assert report.summary.summed_bytes == report.summary.log_bytes == before.log_bytes
