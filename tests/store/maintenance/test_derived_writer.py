"""How often queues are written: every second, and less often when there are so many that it would be felt."""

from itertools import islice

import pytest

from ariane.store.blocking_io import IoSteps, run_sync
from ariane.store.checkpoint import read_checkpoint
from ariane.store.maintenance import derived_writer
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import BOOT, batch_of, bodies, draft, opened

TICK_S = 1.0


def store_with(queues: int, clock: FakeClock) -> MessageStore:
    store = opened(SimulatedDisk(), clock)
    store.append([draft(b"x", queue_id=queue_id) for queue_id in range(queues)])
    return store


def go_on(steps: IoSteps[None], count: int) -> None:
    """So many steps; what they want done is done."""
    for call in islice(steps, count):
        if call is not None:
            call()


async def test_a_few_queues_are_written_every_second() -> None:
    clock = FakeClock()
    store = store_with(20, clock)
    store.derived.write()
    await clock.advance(TICK_S)
    assert store.derived.is_due


async def test_with_many_queues_the_next_write_waits_a_hundred_times_as_long_as_they_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(derived_writer, "_PAUSE_S", 0.1)
    clock = FakeClock()
    store = store_with(25, clock)
    assert store.derived.is_due
    store.derived.write()
    for _ in range(2):
        await clock.advance(TICK_S)
        assert not store.derived.is_due
    await clock.advance(TICK_S)
    assert store.derived.is_due


async def test_it_never_waits_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived_writer, "_PAUSE_S", 100.0)
    clock = FakeClock()
    store = store_with(2, clock)
    store.derived.write()
    await clock.advance(10 * TICK_S)
    assert store.derived.is_due


def test_much_log_is_not_left_unwritten_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a start after kill -9 has to dispatch again is bounded by bytes as before."""
    monkeypatch.setattr(derived_writer, "_PAUSE_S", 100.0)
    monkeypatch.setattr(derived_writer, "_UNWRITTEN_BYTES_MAX", 2000)
    store = store_with(2, FakeClock())
    store.derived.write()
    store.append([draft(bytes(700))])
    assert len(store.components.queues.dirty) == 1
    store.append([draft(bytes(700)), draft(bytes(700))])
    assert not store.components.queues.dirty


@pytest.mark.parametrize("is_batch", [False, True])
def test_many_small_messages_are_not_left_unwritten_either(monkeypatch: pytest.MonkeyPatch, is_batch: bool) -> None:
    """A start takes them by number: a million of 100 B are few bytes and several seconds."""
    monkeypatch.setattr(derived_writer, "_PAUSE_S", 100.0)
    monkeypatch.setattr(derived_writer, "_UNWRITTEN_ENTRIES_MAX", 5)
    store = store_with(2, FakeClock())
    store.derived.write()

    def append(count: int) -> None:
        contents = [b"x"] * count
        store.append_batch(batch_of(*contents)) if is_batch else store.append([draft(body) for body in contents])

    append(3)
    assert len(store.components.queues.dirty) == 1
    append(2)
    assert len(store.components.queues.dirty) == 1
    append(1)
    assert not store.components.queues.dirty
    append(5)
    assert len(store.components.queues.dirty) == 1


@pytest.mark.parametrize("is_written_early", [False, True])
@pytest.mark.parametrize("turns", [0, 1, 3, 100])
def test_what_comes_between_the_writes_of_many_queues_is_not_lost(turns: int, is_written_early: bool) -> None:
    """Others have their turn between them; a kill -9 then finds a mark that is never ahead of the files."""
    disk = SimulatedDisk()
    store = opened(disk)
    store.append([draft(b"first", queue_id=queue_id) for queue_id in range(400)])
    writing = store.derived.write_steps()
    go_on(writing, turns)
    store.append([draft(b"second", queue_id=queue_id) for queue_id in range(0, 600, 3)])
    if is_written_early:
        store.derived.write()
    run_sync(writing)
    again = opened(disk.crash_process(), boot=BOOT)
    for queue_id in range(600):
        expected = [b"first"] * (queue_id < 400) + [b"second"] * (queue_id % 3 == 0)
        assert bodies(again, "orders", queue_id) == expected


def test_a_mark_does_not_go_back_when_all_was_written_early_meanwhile() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    store.append([draft(b"first", queue_id=queue_id) for queue_id in range(400)])
    writing = store.derived.write_steps()
    go_on(writing, 3)
    assert 0 < len(store.components.queues.dirty) < 400
    store.append([draft(b"second")])
    store.derived.write()
    run_sync(writing)
    checkpoint = read_checkpoint(disk, store.components.layout.checkpoint)
    assert checkpoint.written_to == store.components.commit_log.max_offset
