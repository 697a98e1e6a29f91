"""The timer wheel and log: any set of times is returned in order, from memory or after a restart."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.broker.schedule.timer_log import (
    NO_UNIT,
    UNIT_BYTES,
    TimerLog,
    TimerUnit,
    pack_unit,
    unpack_unit,
    unpack_units,
)
from ariane.broker.schedule.timer_wheel import SLOT_MS, SLOTS, TimerSlots, TimerWheel
from ariane.errors import StoreCorrupt, StoreFull, StoreMismatch
from ariane.store.blocking_io import run_sync
from ariane.store.disk import RealDisk
from tests.simulation.simulated_disk import SimulatedDisk

DIRECTORY = Path("/timer")
FILE_BYTES = 8 * UNIT_BYTES
NOW_MS = 1_700_000_000_000
FAR = 2**62


def wheel_on(disk: SimulatedDisk, now_ms: int = NOW_MS) -> TimerWheel:
    return TimerWheel(TimerLog.create_empty(disk, DIRECTORY, FILE_BYTES), now_ms)


def add(wheel: TimerWheel, wake_ms: int, number: int) -> None:
    if not wheel.log.has_room:
        wheel.log.adopt(wheel.log.make_file())
    wheel.add(wake_ms, number * 100, 100)


def drained(wheel: TimerWheel, now_ms: int) -> list[int]:
    """The numbers of all messages whose slot is over, slot by slot, the first placed first."""
    numbers: list[int] = []
    while (position := wheel.pop_expired_slot(now_ms)) != NO_UNIT:
        numbers += [unit.physical_offset // 100 for unit in reversed(wheel.log.chain(position, 10**6))]
    return numbers


def in_order(wakes: list[int], now_ms: int) -> list[int]:
    """What should come: by slot, then by number."""
    over = [number for number, wake_ms in enumerate(wakes) if wake_ms // SLOT_MS < now_ms // SLOT_MS]
    return sorted(over, key=lambda number: wakes[number] // SLOT_MS)


wake_times = st.lists(st.integers(1, 48 * 3_600_000).map(lambda delay_ms: NOW_MS + delay_ms), max_size=60)
close_times = st.lists(st.integers(1, 500).map(lambda delay_ms: NOW_MS + delay_ms), max_size=60)


@given(wake_times | close_times, st.integers(0, 50 * 3_600_000))
@settings(max_examples=60, deadline=None)
def test_expired_slots_are_returned_one_by_one_and_nothing_else(wakes: list[int], later_ms: int) -> None:
    wheel = wheel_on(SimulatedDisk())
    for number, wake_ms in enumerate(wakes):
        add(wheel, wake_ms, number)
    assert drained(wheel, NOW_MS + later_ms) == in_order(wakes, NOW_MS + later_ms)


@given(wake_times | close_times, st.integers(0, 50 * 3_600_000))
@settings(max_examples=60, deadline=None)
def test_a_restart_finds_exactly_what_was_not_delivered(wakes: list[int], later_ms: int) -> None:
    disk = SimulatedDisk()
    wheel = wheel_on(disk)
    for number, wake_ms in enumerate(wakes):
        add(wheel, wake_ms, number)
    gone = drained(wheel, NOW_MS + later_ms)
    end, delivered_ms = wheel.log.end, wheel.delivered_ms
    restored = TimerWheel.restore(disk.crash_process(), DIRECTORY, end, delivered_ms, FAR, FILE_BYTES)
    assert restored.pending == len(wakes) - len(gone)
    assert gone + drained(restored, NOW_MS + 100 * 3_600_000) == in_order(wakes, NOW_MS + 100 * 3_600_000)


@given(st.integers(-1, 2**40), st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_a_unit_reads_back_as_it_was_written(previous: int, wake_ms: int, physical: int, size: int) -> None:
    unit = TimerUnit(previous, wake_ms, physical, size)
    packed = pack_unit(unit)
    assert unpack_unit(packed, previous + 1) == unit
    (fields,) = unpack_units(packed)
    assert tuple(int(fields[name]) for name in ("previous", "wake_ms", "physical", "size")) == unit


@given(st.integers(0, UNIT_BYTES * 8 - 1))
def test_one_flipped_bit_of_a_unit_is_detected(bit: int) -> None:
    packed = bytearray(pack_unit(TimerUnit(NO_UNIT, NOW_MS, 123, 456)))
    packed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(StoreCorrupt):
        unpack_unit(bytes(packed), 10**6)
    with pytest.raises(StoreCorrupt):
        unpack_units(bytes(packed))


def test_zeros_and_forward_links_are_not_valid_units() -> None:
    with pytest.raises(StoreCorrupt):
        unpack_unit(bytes(UNIT_BYTES), 0)
    with pytest.raises(StoreCorrupt):
        unpack_unit(pack_unit(TimerUnit(64, 1, 1, 1)), 64)
    with pytest.raises(StoreCorrupt):
        unpack_unit(b"short", 0)


def test_the_next_slot_is_found_over_the_end_of_the_ring() -> None:
    slots = TimerSlots()
    begin = 5 * SLOTS - 3
    assert slots.next_used(begin, begin + SLOTS) is None
    slots.set_head(begin + 10, 320)
    assert slots.next_used(begin, begin + SLOTS) == begin + 10
    assert slots.next_used(begin, begin + 10) is None
    assert slots.pop(begin + 10) == 320
    assert slots.head(begin + 10) == NO_UNIT


def test_a_time_beyond_the_ring_is_checked_at_the_end_of_the_ring() -> None:
    wheel = wheel_on(SimulatedDisk())
    add(wheel, NOW_MS + 30 * 86_400_000, 1)
    assert wheel.next_ms() == NOW_MS + SLOTS * SLOT_MS


def test_the_next_time_is_that_of_the_earliest_message() -> None:
    wheel = wheel_on(SimulatedDisk())
    assert wheel.next_ms() is None
    add(wheel, NOW_MS + 86_400_000, 1)
    assert wheel.next_ms() == NOW_MS + 86_400_000 + SLOT_MS
    add(wheel, NOW_MS + 1000, 2)
    assert wheel.next_ms() == NOW_MS + 1000 + SLOT_MS


def test_units_after_the_checkpoint_are_discarded_and_overwritten() -> None:
    disk = SimulatedDisk()
    wheel = wheel_on(disk)
    for number in range(20):
        add(wheel, NOW_MS + 1000, number)
    restored = TimerWheel.restore(disk, DIRECTORY, 5 * UNIT_BYTES, NOW_MS, FAR, FILE_BYTES)
    assert restored.pending == 5
    add(restored, NOW_MS + 1000, 77)
    assert drained(restored, NOW_MS + 5000) == [0, 1, 2, 3, 4, 77]


def test_a_log_that_ends_with_a_file_goes_on_in_the_next() -> None:
    disk = SimulatedDisk()
    wheel = wheel_on(disk)
    for number in range(8):
        add(wheel, NOW_MS + 1000, number)
    wheel.log.adopt(wheel.log.make_file())
    end = wheel.log.end
    assert drained(wheel, NOW_MS + 5000) == list(range(8))
    assert run_sync(wheel.log.drop_before(wheel.delivered_ms)) == 1
    restored = TimerWheel.restore(disk, DIRECTORY, end, wheel.delivered_ms, FAR, FILE_BYTES)
    assert restored.log.end == end
    add(restored, NOW_MS + 9000, 8)
    assert drained(restored, NOW_MS + 10_000) == [8]


@pytest.mark.parametrize("end", [UNIT_BYTES * 9, UNIT_BYTES - 1, -UNIT_BYTES])
def test_an_end_that_does_not_fit_the_log_is_damage(end: int) -> None:
    disk = SimulatedDisk()
    add(wheel_on(disk), NOW_MS + 1000, 1)
    with pytest.raises(StoreCorrupt, match="does not fit"):
        TimerWheel.restore(disk, DIRECTORY, end, NOW_MS, FAR, FILE_BYTES)


def test_units_beyond_the_commit_log_are_damage() -> None:
    disk = SimulatedDisk()
    wheel = wheel_on(disk)
    add(wheel, NOW_MS + 1000, 1)
    with pytest.raises(StoreCorrupt, match="beyond the end of the commit log"):
        TimerWheel.restore(disk, DIRECTORY, wheel.log.end, NOW_MS, 150, FILE_BYTES)


def test_files_of_another_size_are_an_error() -> None:
    disk = SimulatedDisk()
    add(wheel_on(disk), NOW_MS + 1000, 1)
    with pytest.raises(StoreMismatch):
        TimerWheel.restore(disk, DIRECTORY, UNIT_BYTES, NOW_MS, FAR, 2 * FILE_BYTES)


def test_a_full_disk_changes_nothing() -> None:
    disk = SimulatedDisk()
    wheel = wheel_on(disk)
    add(wheel, NOW_MS + 1000, 0)
    disk.fail_writes(OSError(28, "No space left on device"))
    with pytest.raises(StoreFull):
        add(wheel, NOW_MS + 1000, 1)
    disk.fail_writes(None)
    add(wheel, NOW_MS + 1000, 2)
    assert drained(wheel, NOW_MS + 5000) == [0, 2]


def test_a_hundred_thousand_pending_messages_take_no_memory_each(tmp_path: Path) -> None:
    wheel = TimerWheel(TimerLog.create_empty(RealDisk(), tmp_path / "timer"), NOW_MS)
    add(wheel, NOW_MS + 1, 0)
    tracemalloc.start()
    try:
        for number in range(10_000):
            add(wheel, NOW_MS + 1 + number * 17_000, number)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 16 * 1024  # the same, whatever their number
    for number in range(90_000):
        add(wheel, NOW_MS + 1 + number * 1_700, number)
    end = wheel.log.end
    wheel.log.close()
    assert wheel.pending == 100_001
    restored = TimerWheel.restore(RealDisk(), tmp_path / "timer", end, NOW_MS, FAR)
    assert restored.pending == 100_001
    restored.log.close()
