"""The commit log: where records stand, how a file ends and the next begins, and what a full disk or a crash leaves."""

import errno
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from ariane.errors import StoreFull
from ariane.store.blocking_io import run_sync
from ariane.store.commit_log.log import CommitLog, Segments
from ariane.store.disk import Disk, RealDisk
from ariane.store.layout import offset_name
from ariane.wire.record.layout import BLANK_BYTES_MIN, BLANK_MAGIC, SIZE_AND_MAGIC
from ariane.wire.record.read import BlankRecord, RecordView, walk
from tests.simulation.crashes import ROOT, cuts, new_disk
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk
from tests.wire.golden import FILE_BYTES, golden_store

BYTES = 8192


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk()


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def opened(disk: Disk, executor: ThreadPoolExecutor | None = None, *, segment_bytes: int = BYTES) -> CommitLog:
    return CommitLog(Segments(disk, ROOT, segment_bytes, writable=True), executor)


def begun(disk: Disk, executor: ThreadPoolExecutor | None = None, *, segment_bytes: int = BYTES) -> CommitLog:
    log = opened(disk, executor, segment_bytes=segment_bytes)
    log.roll()
    return log


def wait_until_idle(executor: ThreadPoolExecutor) -> None:
    executor.submit(lambda: None).result()  # its one thread takes jobs in order


def state(log: CommitLog) -> tuple[int, int, int, int]:
    return log.min_offset, log.max_offset, log.room(), len(log.segments)


def file_content(disk: SimulatedDisk, base: int, size: int = BYTES) -> bytes:
    return disk.open(ROOT / offset_name(base), writable=False).read(size, 0)


# Records and files


def test_a_new_log_begins_with_its_first_roll(disk: SimulatedDisk) -> None:
    log = opened(disk)
    assert state(log) == (0, 0, 0, 0)
    with pytest.raises(AssertionError, match="roll"):
        log.append(b"record")
    log.roll()
    assert state(log) == (0, 0, BYTES - BLANK_BYTES_MIN, 1)


def test_records_stand_back_to_back_and_are_read_without_a_copy(disk: SimulatedDisk) -> None:
    log = begun(disk)
    offsets = [log.append(record) for record in (b"first", bytearray(b"second"), memoryview(b"third"))]
    assert offsets == [0, 5, 11]
    assert state(log) == (0, 16, BYTES - 16 - BLANK_BYTES_MIN, 1)
    view = log.read(5, 6)
    assert view is not None
    assert view.readonly
    assert bytes(view) == b"second"


def test_only_what_is_there_is_read(disk: SimulatedDisk) -> None:
    log = begun(disk)
    log.append(b"x" * 100)
    log.roll()
    log.append(b"y" * 50)
    there = [(0, 100), (0, BYTES), (BYTES, 50), (BYTES + 49, 1)]
    not_there = [(-1, 1), (0, BYTES + 1), (BYTES - 1, 2), (BYTES, 51), (BYTES + 50, 1), (5 * BYTES, 1)]
    assert [log.read(*request) is not None for request in there] == [True] * 4
    assert [log.read(*request) for request in not_there] == [None] * 6


def test_what_was_dropped_is_not_read_but_a_view_of_it_stays(disk: SimulatedDisk) -> None:
    log = begun(disk)
    log.append(b"old")
    held = log.read(0, 3)
    log.roll()
    run_sync(log.segments.drop_first_steps())
    assert log.read(0, 3) is None
    assert state(log) == (BYTES, BYTES, BYTES - BLANK_BYTES_MIN, 1)
    assert held is not None
    assert bytes(held) == b"old"


@pytest.mark.parametrize("make", [RealDisk, SimulatedDisk])
def test_a_view_stays_valid_after_close(make: Callable[[], Disk], tmp_path: Path) -> None:
    disk = make()
    disk.make_directory(tmp_path)
    log = CommitLog(Segments(disk, tmp_path, BYTES, writable=True))
    log.roll()
    log.append(b"record")
    held = log.read(0, 6)
    log.close()
    assert held is not None
    assert bytes(held) == b"record"


def test_a_record_that_does_not_fit_is_refused(disk: SimulatedDisk) -> None:
    log = begun(disk)
    with pytest.raises(AssertionError, match="room"):
        log.append(bytes(log.room() + 1))
    log.append(bytes(log.room()))
    assert log.room() == 0


@pytest.mark.parametrize("left", [BLANK_BYTES_MIN, BLANK_BYTES_MIN + 1, 1000])
def test_a_roll_ends_the_file_with_a_blank_record(disk: SimulatedDisk, left: int) -> None:
    log = begun(disk)
    log.append(b"r" * (BYTES - left))
    log.roll()
    assert file_content(disk, 0) == b"r" * (BYTES - left) + SIZE_AND_MAGIC.pack(left, BLANK_MAGIC).ljust(left, b"\0")
    assert state(log) == (0, BYTES, BYTES - BLANK_BYTES_MIN, 2)


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_files_are_byte_for_byte_those_of_apache(disk: SimulatedDisk, name: str) -> None:
    """Its own records, rolled where it rolled: blank records and file ends must come out the same."""
    apache = golden_store(name).commit_log
    log = begun(disk, segment_bytes=FILE_BYTES)
    rolls = 0
    for found in walk(apache):
        if isinstance(found, RecordView):
            assert log.append(memoryview(apache)[found.position : found.position + found.size]) == found.position
        elif isinstance(found, BlankRecord):
            log.roll()
            rolls += 1
    assert rolls >= 2
    files = [file_content(disk, segment.base, FILE_BYTES) for segment in log.segments]
    assert b"".join(files) == apache[: len(files) * FILE_BYTES]


def test_recovery_sets_the_end_inside_a_file_or_at_its_end(disk: SimulatedDisk) -> None:
    log = begun(disk)
    log.append(b"r" * 500)
    log.roll()
    log.close()
    log = opened(disk)
    log.set_end(500)
    assert state(log) == (0, 500, BYTES - 500 - BLANK_BYTES_MIN, 2)
    assert log.append(b"next") == 500
    log.set_end(2 * BYTES)
    assert state(log) == (0, 2 * BYTES, 0, 2)
    log.roll()
    assert log.append(b"next") == 2 * BYTES


def test_a_roll_takes_the_following_file_when_it_is_there(disk: SimulatedDisk) -> None:
    log = begun(disk)
    log.roll()
    log.set_end(100)
    made = disk.names(ROOT)
    log.roll()
    assert disk.names(ROOT) == made
    assert log.append(b"next") == BYTES


# The next file, made ready by a thread


def test_the_next_file_is_made_while_this_one_fills(disk: SimulatedDisk, executor: ThreadPoolExecutor) -> None:
    log = begun(disk, executor)
    wait_until_idle(executor)
    assert disk.names(ROOT) == [offset_name(0), offset_name(BYTES)]
    assert len(log.segments) == 1
    before = disk.operations
    log.roll()
    assert disk.journal[before].kind == "write"  # of the blank record: nothing had to be made
    assert log.append(b"next") == BYTES


def test_close_removes_a_file_that_was_made_and_not_used(disk: SimulatedDisk, executor: ThreadPoolExecutor) -> None:
    log = begun(disk, executor)
    log.append(b"record")
    log.close()
    assert disk.names(ROOT) == [offset_name(0)]


def test_close_keeps_a_file_that_was_begun(disk: SimulatedDisk, executor: ThreadPoolExecutor) -> None:
    log = begun(disk, executor)
    log.roll()
    log.close()
    assert disk.names(ROOT) == [offset_name(0), offset_name(BYTES)]


def test_close_does_not_mind_that_the_next_file_could_not_be_made(
    disk: SimulatedDisk, executor: ThreadPoolExecutor
) -> None:
    disk.space_left = BYTES
    log = begun(disk, executor)
    log.close()
    assert disk.names(ROOT) == [offset_name(0)]


# A full disk


def test_no_space_for_the_next_file_changes_nothing(disk: SimulatedDisk) -> None:
    disk.space_left = BYTES
    log = begun(disk)
    log.append(b"r" * 5000)
    before = state(log), file_content(disk, 0), disk.names(ROOT)
    with pytest.raises(StoreFull, match=r"no space for a commit log file of 8192 bytes: No space left"):
        log.roll()
    assert (state(log), file_content(disk, 0), disk.names(ROOT)) == before
    assert log.append(b"a smaller one") == 5000
    disk.space_left = BYTES
    log.roll()
    assert log.append(b"next") == BYTES


def test_no_space_for_a_file_made_ahead_is_reported_when_it_is_needed(
    disk: SimulatedDisk, executor: ThreadPoolExecutor
) -> None:
    disk.space_left = BYTES
    log = begun(disk, executor)
    wait_until_idle(executor)
    assert log.append(b"record") == 0
    with pytest.raises(StoreFull):
        log.roll()
    disk.space_left = None
    log.roll()
    assert log.max_offset == BYTES


def test_a_failed_write_takes_nothing(disk: SimulatedDisk) -> None:
    log = begun(disk)
    log.append(b"a" * 4000)
    before = state(log)
    disk.fail_writes(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(StoreFull, match="the commit log cannot be written: No space left on device"):
        log.append(b"b" * 1000)
    assert state(log) == before
    assert log.read(4000, 1) is None
    disk.fail_writes(None)
    assert log.append(b"c" * 1000) == 4000
    assert file_content(disk, 0, 5001) == b"a" * 4000 + b"c" * 1000 + b"\0"


def test_a_blank_record_that_cannot_be_written_leaves_the_end_where_it_was(disk: SimulatedDisk) -> None:
    log = begun(disk)
    log.append(b"record")
    disk.fail_writes(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(StoreFull, match="Input/output error"):
        log.roll()
    assert (log.max_offset, log.room()) == (6, BYTES - 6 - BLANK_BYTES_MIN)
    disk.fail_writes(None)
    assert log.append(b"more") == 6
    log.roll()
    assert len(log.segments) == 2
    assert log.append(b"next") == BYTES


# Crashes


def fill_three_files(disk: SimulatedDisk, acknowledged: dict[int, bytes]) -> None:
    log = begun(disk)
    for number in range(12):
        record = bytes([65 + number]) * 1500
        if log.room() < len(record):
            log.roll()
        offset = log.append(record)
        if number % 2:
            for segment in log.segments:
                segment.file.sync()
            acknowledged[offset] = record


def test_synced_records_survive_a_crash_at_every_point() -> None:
    for crash_point in count(new_disk().operations + 1):
        disk, acknowledged = new_disk(), dict[int, bytes]()
        disk.crash_at(crash_point)
        with suppress(PowerCut):
            fill_three_files(disk, acknowledged)
        for after in (disk.crash_process(), *cuts(disk, 10)):
            assert records_at(after, acknowledged) == acknowledged
        if disk.operations < crash_point - 1:
            break
    assert len(acknowledged) == 6


def records_at(disk: SimulatedDisk, acknowledged: dict[int, bytes]) -> dict[int, bytes]:
    log = opened(disk)
    end = log.segments.last.end if log.segments.last is not None else 0
    log.set_end(end)
    return {offset: bytes(log.read(offset, len(record)) or b"") for offset, record in acknowledged.items()}


def test_without_a_sync_a_power_cut_takes_records(disk: SimulatedDisk) -> None:
    """The other side: these tests would see a store that acknowledges too early."""
    log = begun(disk)
    log.append(b"r" * 1000)
    found = {file_content(disk.cut_power(random.Random(seed)), 0, 1) for seed in range(50)}
    assert found == {b"\0", b"r"}
