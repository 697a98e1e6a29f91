"""The checkpoint file and the abort marker."""

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import StoreInUse
from ariane.store.checkpoint import (
    CHECKPOINT_BYTES,
    Checkpoint,
    LastExit,
    decode_checkpoint,
    last_exit,
    mark_clean,
    mark_running,
    read_checkpoint,
    write_checkpoint,
    write_mark,
)
from ariane.store.lock import locked
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk

ROOT = Path("/s")
PATH = ROOT / "checkpoint"
SAVED = Checkpoint(
    physic_timestamp_ms=1,
    logics_timestamp_ms=2,
    index_timestamp_ms=3,
    flushed_to=40,
    dispatched_to=30,
    store_timestamp_ms=5,
)


def disk() -> SimulatedDisk:
    made = SimulatedDisk()
    made.make_directory(ROOT)
    return made


def test_apache_reads_its_three_timestamps_at_the_front() -> None:
    made = disk()
    write_checkpoint(made, PATH, SAVED)
    data = made.open(PATH, writable=False).read(CHECKPOINT_BYTES, 0)
    assert len(data) == CHECKPOINT_BYTES
    assert struct.unpack_from(">qqq", data) == (1, 2, 3)


def test_what_was_written_is_read() -> None:
    made = disk()
    written = write_checkpoint(made, PATH, SAVED)
    assert read_checkpoint(made, PATH) == replace(written, written_to=30)
    assert written.has_ariane_slot


def test_a_missing_or_short_or_foreign_checkpoint_says_only_what_it_can() -> None:
    assert read_checkpoint(disk(), PATH) == Checkpoint()
    assert decode_checkpoint(b"\0" * 10) == Checkpoint()
    apache = struct.pack(">qqq", 7, 8, 9) + bytes(CHECKPOINT_BYTES - 24)
    assert decode_checkpoint(apache) == Checkpoint(physic_timestamp_ms=7, logics_timestamp_ms=8, index_timestamp_ms=9)


@settings(deadline=None)
@given(st.binary(max_size=CHECKPOINT_BYTES))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    decode_checkpoint(data)


def test_a_cut_at_any_moment_leaves_the_old_or_the_new_checkpoint() -> None:
    for operation in range(1, 20):
        made = disk()
        first = write_checkpoint(made, PATH, SAVED)
        made.crash_at(made.operations + operation)
        try:
            write_checkpoint(made, PATH, replace(first, flushed_to=99))
        except PowerCut:
            found = read_checkpoint(made.cut_power(random.Random(operation)), PATH)
            assert found.flushed_to in (40, 99)


def test_the_written_mark_outlives_the_process_and_never_falls_below_the_checkpoint() -> None:
    made = disk()
    write_checkpoint(made, PATH, SAVED)
    write_mark(made.open(PATH, writable=True), 77)
    assert read_checkpoint(made.crash_process(), PATH).written_to == 77
    write_mark(made.open(PATH, writable=True), 5)
    assert read_checkpoint(made, PATH).written_to == 30


def test_the_abort_marker_tells_how_the_last_run_ended() -> None:
    made = disk()
    abort = ROOT / "abort"
    assert last_exit(made, abort, "boot-1") is LastExit.CLEAN
    mark_running(made, abort, "boot-1")
    assert last_exit(made, abort, "boot-1") is LastExit.PROCESS_CRASH
    assert last_exit(made, abort, "boot-2") is LastExit.MACHINE_CRASH
    assert last_exit(made, abort, "") is LastExit.MACHINE_CRASH
    mark_clean(made, abort)
    assert last_exit(made, abort, "boot-1") is LastExit.CLEAN


def test_apaches_empty_abort_marker_counts_as_a_crash_of_the_machine() -> None:
    made = disk()
    made.create(ROOT / "abort", 0, allocated=0).close()
    assert last_exit(made, ROOT / "abort", "boot-1") is LastExit.MACHINE_CRASH


def test_a_store_is_for_one_process(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"):
        assert (tmp_path / "lock").read_bytes() == b"lock"
        with pytest.raises(StoreInUse, match="in use by another broker"), locked(tmp_path / "lock"):
            pass
    with locked(tmp_path / "lock"):
        pass
