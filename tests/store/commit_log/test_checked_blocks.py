"""A damaged record is never given to a reader, and never stops the records behind it."""

import errno
import logging
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ariane.store.blocking_io import run_if_cached, run_sync
from ariane.store.commit_log.checked_blocks import BlockCheck, CheckedBlocks, locate_bad_bodies
from ariane.store.commit_log.checksums import ChecksumFile, checksum_of
from ariane.store.layout import offset_name
from ariane.store.message_store import MessageStore
from ariane.store.offline.verify import verify_store
from ariane.store.read.result import ReadResult, ReadStatus
from ariane.testing import FakeClock
from ariane.wire.record.read import RecordView
from tests.simulation.simulated_disk import SimulatedDisk, SimulatedFile
from tests.store.damage import LAYOUT, PARTS, Stored, delivered, fill, flip, stored
from tests.store.stores import bodies, draft, opened, put

BLOCK = 1000
SEEDS = range(int(os.environ.get("ARIANE_FLIPS", "40")))
WITHHELD = "the commit log is damaged"


def block_of(physical: int) -> range:
    base = physical // 8192 * 8192
    begin = base + (physical - base) // BLOCK * BLOCK
    return range(begin, begin + BLOCK)


def touches(record: Stored, block: range) -> bool:
    return record.view.physical_offset < block.stop and record.view.physical_offset + record.view.size > block.start


def checks_of(store: MessageStore) -> CheckedBlocks:
    checks = store.components.commit_log.checks
    assert isinstance(checks, CheckedBlocks)
    return checks


def check_delivery(store: MessageStore, before: list[Stored], damaged_at: int) -> None:
    """Whatever is delivered is what was sent, and only what lies in the damaged block may be missing."""
    sent = {record.data for record in before}
    found = [data for _, data in delivered(store)]
    assert set(found) <= sent
    block = block_of(damaged_at)
    assert {record.data for record in before if not touches(record, block)} <= set(found)
    hit = next(
        record
        for record in before
        if record.view.physical_offset <= damaged_at < record.view.physical_offset + record.view.size
    )
    assert hit.data not in found
    assert checks_of(store).damaged_blocks == 1
    assert checks_of(store).withheld_records >= 1


# --- a flipped bit, anywhere ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flip_in_a_store_that_was_stopped_cleanly_is_not_delivered(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk()
    store = opened(disk)
    fill(store, 60, rng)
    before = stored(store)
    store.close()
    at = flip(disk, rng.choice(before).view, PARTS[seed % 3], rng)
    store = opened(disk)
    check_delivery(store, before, at)
    assert len(verify_store(disk, LAYOUT).faults) > 0
    store.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flip_in_the_tail_of_a_crashed_store_is_not_delivered_and_cuts_nothing_off(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk()
    store = opened(disk)
    fill(store, 20, rng)
    store.make_durable()
    tail_from = store.components.commit_log.max_offset
    fill(store, 30, rng)
    store.extend_checksums(store.flusher.sync_now())
    before = stored(store)
    crashed = disk.crash_process()
    tail = [record.view for record in before if record.view.physical_offset >= tail_from]
    at = flip(crashed, rng.choice(tail), PARTS[seed % 3], rng)
    assert len(verify_store(crashed, LAYOUT).faults) > 0
    again = opened(crashed)
    sent = {record.data for record in before}
    assert {data for _, data in delivered(again)} <= sent
    assert again.components.commit_log.max_offset >= before[-1].view.physical_offset + before[-1].view.size
    missing = sent - {data for _, data in delivered(again)}
    assert all(touches(record, block_of(at)) for record in before if record.data in missing)
    assert len(missing) >= 1
    new = put(again, draft(b"new", queue_id=0))
    assert new[0].queue_offset >= sum(record.view.queue_id == 0 for record in before) - len(missing)


@pytest.mark.parametrize("seed", range(40))
def test_after_a_crash_the_whole_log_has_checksums_and_verify_reports_every_flip_of_its_tail(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk()
    store = opened(disk)
    fill(store, 10, rng)
    store.make_durable()
    fill(store, 20, rng)  # not even synced, so without checksums
    before = stored(store)
    crashed = disk.crash_process()
    again = opened(crashed)
    killed = crashed.crash_process()
    at = flip(killed, rng.choice(before[10:]).view, PARTS[seed % 3], rng)
    report = verify_store(killed, LAYOUT)
    assert any(fault.position <= at % 8192 < fault.position + BLOCK for fault in report.faults)
    assert again.components.commit_log.max_offset == before[-1].view.physical_offset + before[-1].view.size


def test_a_torn_record_in_the_tail_of_a_killed_process_does_not_hide_those_behind_it() -> None:
    """Not yet synced, so without a checksum: but a process writes in order, so what follows shows the damage."""
    disk = SimulatedDisk()
    store = opened(disk)
    for number in range(6):
        put(store, draft(b"message %d" % number))
    third = stored(store)[2].view
    crashed = disk.crash_process()
    crashed.flip_bit(LAYOUT.commit_log / offset_name(0), third.body_position, 0)
    again = opened(crashed)
    assert set(bodies(again, "orders", 0)) == {b"message %d" % number for number in (0, 1, 3, 4, 5)}


# --- which records are withheld ---------------------------------------------------------------------------------------


def test_only_the_record_is_withheld_whose_body_is_damaged() -> None:
    disk = SimulatedDisk()
    store = opened(disk, sum_block_bytes=4096)
    fill(store, 20, random.Random(1), body_bytes=(50, 60))
    before = stored(store)
    store.close()
    for number in (3, 5):
        flip(disk, before[number].view, "body", random.Random(2))
    store = opened(disk, sum_block_bytes=4096)
    found = {data for _, data in delivered(store)}
    assert {record.data for record in before} - found == {before[3].data, before[5].data}
    assert (checks_of(store).damaged_blocks, checks_of(store).withheld_records) == (1, 2)


@pytest.mark.parametrize("part", ["header", "properties"])
def test_all_records_of_a_block_are_withheld_if_the_damage_cannot_be_located(part: str) -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    fill(store, 30, random.Random(1), body_bytes=(50, 60))
    before = stored(store)
    store.close()
    at = flip(disk, before[7].view, part, random.Random(2))
    store = opened(disk)
    found = {data for _, data in delivered(store)}
    withheld = {record.data for record in before if touches(record, block_of(at))}
    assert {record.data for record in before} - found == withheld
    assert checks_of(store).withheld_records == len(withheld) > 2


@pytest.mark.parametrize("seed", range(60))
def test_damage_outside_of_bodies_is_never_taken_for_damage_of_bodies_alone(seed: int) -> None:
    rng = random.Random(seed)
    store = opened(SimulatedDisk(), sum_block_bytes=4096)
    fill(store, 12, rng, body_bytes=(50, 60))
    before = stored(store)
    data = bytearray(b"".join(record.data for record in before))
    expected = checksum_of(bytes(data))
    damaged = rng.sample(before, 2)
    for record in damaged:
        data[record.view.body_position + rng.randrange(record.view.body_length)] ^= 1 << rng.randrange(8)
    bad = frozenset(record.view.physical_offset for record in damaged)
    assert locate_bad_bodies(memoryview(bytes(data)), 0, expected) == bad
    other = rng.choice(before).view
    data[other.position + rng.randrange(44, other.body_position - other.position)] ^= 1 << rng.randrange(8)
    assert locate_bad_bodies(memoryview(bytes(data)), 0, expected) is None


def test_without_a_checksum_a_record_is_given_if_it_is_valid_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ariane.store.commit_log.checksum_writer.BACKFILL_BYTES", 0)
    disk = SimulatedDisk()
    store = opened(disk, sum_block_bytes=0)
    fill(store, 30, random.Random(1))
    before = stored(store)
    store.close()
    flip(disk, before[7].view, "body", random.Random(2))
    store = opened(disk)
    for _ in range(2):
        assert {record.data for record in before} - {data for _, data in delivered(store)} == {before[7].data}
    assert store.lookup.record_at(before[7].view.physical_offset) is None
    assert checks_of(store).damaged_blocks == 0


def test_a_damaged_checksum_is_not_taken_for_a_damaged_block() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    fill(store, 30, random.Random(1))
    before = stored(store)
    store.close()
    disk.flip_bit(LAYOUT.commit_log_checksums / offset_name(0), 32 + 16 + 9, 3)
    store = opened(disk)
    assert {data for _, data in delivered(store)} == {record.data for record in before}
    assert checks_of(store).damaged_blocks == 0


def test_checksums_that_cannot_be_read_stop_no_reader(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, store, before = running()
    original = SimulatedDisk.open

    def failing(self: SimulatedDisk, path: Path, *, writable: bool) -> SimulatedFile:
        if path.parent == LAYOUT.commit_log_checksums:
            raise OSError(errno.EIO, "Input/output error")
        return original(self, path, writable=writable)

    monkeypatch.setattr(SimulatedDisk, "open", failing)
    assert {data for _, data in delivered(store)} == {record.data for record in before}
    assert "block checksums cannot be read" in caplog.text


# --- other readers ----------------------------------------------------------------------------------------------------


def test_a_damaged_record_is_found_neither_by_its_id_nor_by_its_key_nor_by_time() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    fill(store, 30, random.Random(1))
    before = stored(store)
    store.close()
    view = before[7].view
    flip(disk, view, "properties", random.Random(2))
    store = opened(disk)
    key = view.properties()["KEYS"]
    assert store.lookup.record_at(view.physical_offset) is None
    assert store.lookup.by_key("orders", key, 10, 0, 1 << 60) == []
    queue = store.components.queues.get("orders", view.queue_id)
    assert queue is not None
    assert store.lookup.store_time(queue, view.queue_offset) is None
    intact = before[-1].view
    assert bytes(store.lookup.by_key("orders", intact.properties()["KEYS"], 10, 0, 1 << 60)[0]) == before[-1].data


# --- when blocks are checked ------------------------------------------------------------------------------------------


def running(count: int = 30) -> tuple[SimulatedDisk, MessageStore, list[Stored]]:
    """A store that runs and has a checkpoint, so that nothing counts as just written."""
    disk = SimulatedDisk()
    store = opened(disk)
    fill(store, count, random.Random(1))
    store.make_durable()
    return disk, store, stored(store)


def test_a_first_touch_needs_a_thread_and_the_second_does_not() -> None:
    _, store, _ = running()
    steps = store.reader.read_steps("orders", 0, 0, 5)
    assert run_if_cached(steps) is None
    queue = store.components.queues.get("orders", 0)
    assert queue is not None
    assert store.reader.read_ahead().find(queue, 0, 5, 10**6) is None
    assert len(run_sync(store.reader.read_steps("orders", 0, 0, 5)).slices) == 5
    again = run_if_cached(store.reader.read_steps("orders", 0, 0, 5))
    assert again is not None
    assert len(again.slices) == 5


def queue(store: MessageStore):  # type: ignore[no-untyped-def]
    return store.components.queues.get("orders", 0)


def test_what_was_just_written_needs_no_check() -> None:
    store = opened(SimulatedDisk())
    fill(store, 9, random.Random(1))
    assert run_if_cached(store.reader.read_steps("orders", 0, 0, 5)) is not None


def test_a_block_that_comes_back_from_the_disk_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, store, before = running()
    assert len(list(delivered(store))) == len(before)
    damaged_at = flip(disk, before[7].view, "header", random.Random(2))
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedFile, "read_cached", lambda self, length, position: None)
        found = {data for _, data in delivered(store)}
    missing = [record for record in before if record.data not in found]
    assert before[7] in missing
    assert all(touches(record, block_of(damaged_at)) for record in missing)
    assert {data for _, data in delivered(store)} == found


def test_a_neighbour_of_a_cold_page_is_checked_again_because_the_kernel_reads_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, store, before = running()
    assert len(list(delivered(store))) == len(before)
    flip(disk, before[-1].view, "header", random.Random(2))
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedFile, "read_cached", lambda self, length, position: None)
        assert store.lookup.record_at(before[0].view.physical_offset) is not None
    assert before[-1].data not in {data for _, data in delivered(store)}


def test_a_check_counts_for_a_minute() -> None:
    disk, store, before = running()
    now_s = [0.0]
    store.components.commit_log.checks = CheckedBlocks(
        disk, LAYOUT.commit_log_checksums, store.components.commit_log.segments, lambda: now_s[0]
    )
    assert len(list(delivered(store))) == len(before)
    flip(disk, before[7].view, "header", random.Random(2))
    store.make_durable()
    assert len(list(delivered(store))) == len(before)
    now_s[0] = 61
    store.make_durable()
    assert before[7].data not in {data for _, data in delivered(store)}


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each block that was compared with its checksum, as often as it was."""
    compared: list[int] = []
    compare = BlockCheck._compare

    def noting(self: BlockCheck, checksums: ChecksumFile, numbers: range) -> None:
        compared.extend(self.segment.base + number for number in numbers)
        compare(self, checksums, numbers)

    monkeypatch.setattr(BlockCheck, "_compare", noting)
    return compared


def checked_together(store: MessageStore) -> list[ReadResult]:
    """Two readers come to the same unchecked blocks before a thread has compared them."""
    readers = [store.reader.read_steps("orders", 0, offset, 3) for offset in (0, 3)]
    calls = [next(steps) for steps in readers]
    assert all(calls), "each needs a thread"
    with ThreadPoolExecutor(2) as threads:
        for call in reversed(calls):  # the second one has to wait
            threads.submit(call)  # type: ignore[arg-type]
    return [run_sync(steps) for steps in readers]


def test_readers_that_come_to_a_block_together_share_its_check(compared: list[int]) -> None:
    _, store, before = running()
    assert len(list(delivered(store))) == len(before)
    checks_of(store).forget_all()
    compared.clear()
    assert [len(result.slices) for result in checked_together(store)] == [3, 3]
    assert compared
    assert len(compared) == len(set(compared))


def test_a_reader_that_waited_for_the_check_of_another_gets_no_damaged_record(compared: list[int]) -> None:
    disk, store, before = running()
    assert len(list(delivered(store))) == len(before)
    first = next(record for record in before if record.view.queue_id == 0)
    flip(disk, first.view, "header", random.Random(2))
    checks_of(store).forget_all()
    compared.clear()
    for result in checked_together(store):
        assert first.data not in [bytes(piece) for piece in result.slices]
    assert len(compared) == len(set(compared))
    assert checks_of(store).damaged_blocks == 1


# --- what an operator sees --------------------------------------------------------------------------------------------


def test_each_damaged_block_is_logged_once_with_file_and_fix(caplog: pytest.LogCaptureFixture) -> None:
    disk, store, before = running()
    store.close()
    flip(disk, before[7].view, "header", random.Random(2))
    with caplog.at_level(logging.ERROR):
        store = opened(disk)
        for _ in range(3):
            list(delivered(store))
    (record,) = [record for record in caplog.records if record.message.startswith(WITHHELD)]
    assert "ariane store verify" in record.message
    assert vars(record)["file"].endswith(f"commitlog/{offset_name(0)}")


def test_a_pull_of_damaged_records_alone_says_where_to_continue() -> None:
    disk, store, before = running()
    store.close()
    flip(disk, before[7].view, "header", random.Random(2))
    store = opened(disk)
    view = before[7].view
    result = run_sync(store.reader.read_steps("orders", view.queue_id, view.queue_offset, 1))
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, view.queue_offset + 1)


def test_bytes_that_the_disk_cannot_read_are_damaged_and_stop_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, store, before = running()
    store.close()
    store = opened(disk)
    bad = range(1000, 2000)
    read = SimulatedFile.read

    def failing(self: SimulatedFile, length: int, position: int) -> bytes:
        if self.size == 8192 and position < bad.stop and position + length > bad.start:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, length, position)

    monkeypatch.setattr(SimulatedFile, "read", failing)
    monkeypatch.setattr(SimulatedFile, "read_cached", lambda self, length, position: None)
    found = {data for _, data in delivered(store)}
    assert {record.data for record in before} - found == {record.data for record in before if touches(record, bad)}


# --- writing goes on --------------------------------------------------------------------------------------------------


def test_new_messages_do_not_share_a_block_with_damaged_ones(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, draft(b"damaged"))
    store.close()
    flip(disk, stored_view(disk), "header", random.Random(1))
    store = opened(disk)
    assert "new messages go to a new file" in caplog.text
    put(store, *[draft(b"new %d" % number) for number in range(3)])
    for _ in range(2):
        assert bodies_behind(store) == [b"new 0", b"new 1", b"new 2"]
        store.close()
        store = opened(disk)
    assert store.components.commit_log.segments.base == 0


def stored_view(disk: SimulatedDisk) -> RecordView:
    store = opened(disk.crash_process())
    return stored(store)[0].view


def bodies_behind(store: MessageStore) -> list[bytes]:
    found = (store.reader.read("orders", 0, offset, 1).slices for offset in range(4))
    return [bytes(record[0][88 : 88 + int.from_bytes(record[0][84:88], "big")]) for record in found if record]


def test_a_record_of_a_file_that_retention_removes_meanwhile_is_not_given() -> None:
    clock = FakeClock()
    store = opened(SimulatedDisk(clock), clock)
    fill(store, 60, random.Random(1))
    store.make_durable()
    steps = store.reader.read_steps("orders", 0, 0, 5)
    call = next(steps)
    segment = store.components.commit_log.segments.first
    assert segment is not None
    segment.file.close()
    assert call is not None
    call()
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value.slices == []
