"""How often queues are written: every second, and less often when there are so many that it would be felt."""

import pytest

from ariane.store import message_store
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock, SimulatedDisk
from tests.store.stores import draft, opened

TICK_S = 1.0


def store_with(queues: int, clock: FakeClock) -> MessageStore:
    store = opened(SimulatedDisk(), clock)
    store.append([draft(b"x", queue_id=queue_id) for queue_id in range(queues)])
    return store


async def test_a_few_queues_are_written_every_second() -> None:
    clock = FakeClock()
    store = store_with(20, clock)
    store.write_derived()
    await clock.advance(TICK_S)
    assert store.is_write_due


async def test_with_many_queues_the_next_write_waits_a_hundred_times_as_long_as_they_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_store, "_PAUSE_S", 0.1)
    clock = FakeClock()
    store = store_with(25, clock)
    assert store.is_write_due
    store.write_derived()
    for _ in range(2):
        await clock.advance(TICK_S)
        assert not store.is_write_due
    await clock.advance(TICK_S)
    assert store.is_write_due


async def test_it_never_waits_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_store, "_PAUSE_S", 100.0)
    clock = FakeClock()
    store = store_with(2, clock)
    store.write_derived()
    await clock.advance(10 * TICK_S)
    assert store.is_write_due


def test_much_log_is_not_left_unwritten_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a start after kill -9 has to dispatch again is bounded by bytes as before."""
    monkeypatch.setattr(message_store, "_PAUSE_S", 100.0)
    monkeypatch.setattr(message_store, "_UNWRITTEN_BYTES_MAX", 2000)
    store = store_with(2, FakeClock())
    store.write_derived()
    store.append([draft(bytes(700))])
    assert len(store.parts.queues.dirty) == 1
    store.append([draft(bytes(700)), draft(bytes(700))])
    assert not store.parts.queues.dirty
