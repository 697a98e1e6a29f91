"""Crashes at every write, sync and change of a name while a log is cut or removed: in the end it is as without them."""

import random
from collections.abc import Callable, Iterator

import pytest

from ariane.store.config.truncation_request import read_request
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk
from tests.store.stores import opened
from tests.store.truncated import (
    LAYOUT,
    History,
    check_same,
    found_by_key,
    log_bytes,
    play,
    queue_entries,
    random_history,
    whole_end,
)

CLOCK = FakeClock()
HISTORY = random_history(random.Random(11), 14)
KEPT = 8


class Case:
    """A store that is stopped with a request; how it looks when the request was carried out."""

    def __init__(self, *, clean: bool, checkpoint_late: bool) -> None:
        """`clean`: the last run was stopped before it was asked for. `checkpoint_late`: no saved state is usable."""
        self.clean = clean
        self.checkpoint_late = checkpoint_late

    def before(self) -> tuple[SimulatedDisk, int]:
        disk = SimulatedDisk()
        store = opened(disk, CLOCK)
        ends = play(store, HISTORY.steps)
        if self.clean:
            store.close()
            store = opened(disk, CLOCK)
        if self.checkpoint_late:
            store.make_durable()
            store.make_durable()
        return self.asked(store, ends[KEPT - 1]), ends[KEPT - 1]

    def asked(self, store: MessageStore, to: int) -> SimulatedDisk:
        store.request_truncation(to, epoch=2)
        store.close()
        disk = store.components.disk
        assert isinstance(disk, SimulatedDisk)
        return disk


CASES = [Case(clean=clean, checkpoint_late=late) for clean in (False, True) for late in (False, True)]


def never_had_it() -> MessageStore:
    store = opened(SimulatedDisk(), CLOCK)
    play(store, HISTORY.steps[:KEPT])
    store.close()
    return opened(store.components.disk, CLOCK)


def tail_of(history: History) -> bytes:
    store = opened(SimulatedDisk(), CLOCK)
    ends = play(store, history.steps)
    return log_bytes(store)[ends[KEPT - 1] :]


def interrupted(before: Callable[[], SimulatedDisk], boot: str) -> Iterator[SimulatedDisk]:
    """The disk as it is when the start that carries the request out ends just before each of its operations."""
    whole = before()
    done = whole.operations
    opened(whole, CLOCK, boot=boot)
    for operation in range(done + 1, whole.operations + 1):
        disk = before()
        disk.crash_at(operation)
        with pytest.raises(PowerCut):
            opened(disk, CLOCK, boot=boot)
        yield disk


def check_cut(disk: SimulatedDisk, to: int, boot: str) -> None:
    store = opened(disk, CLOCK, boot=boot)
    assert read_request(disk, LAYOUT.config) is None
    kept = disk.names(LAYOUT.quarantine)
    assert [name for name in kept if not name.endswith(".tmp")] == [f"{to:020d}-{len(tail_of(HISTORY))}-epoch-2"]
    check_same(store, never_had_it(), HISTORY.keys)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_kill_9_at_every_operation_of_a_cut(number: int) -> None:
    case, count = CASES[number], 0
    to = case.before()[1]
    for disk in interrupted(lambda: case.before()[0], "boot-1"):
        check_cut(disk.crash_process(), to, "boot-1")
        count += 1
    assert count > 20


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_power_cut_at_every_operation_of_a_cut(number: int, seed: int) -> None:
    case = CASES[number]
    to = case.before()[1]
    for count, disk in enumerate(interrupted(lambda: case.before()[0], "boot-1")):
        check_cut(disk.cut_power(random.Random(1000 * seed + count)), to, "boot-2")


@pytest.mark.parametrize("seed", range(3))
def test_a_cut_that_is_interrupted_again_and_again(seed: int) -> None:
    rng, case = random.Random(seed), CASES[seed]
    for attempt in range(20):
        disk, to = case.before()
        boot = 1
        for _ in range(rng.randint(2, 5)):
            disk.crash_at(disk.operations + rng.randint(1, 60))
            try:
                opened(disk, CLOCK, boot=f"boot-{boot}")
            except PowerCut:
                pass
            if rng.random() < 0.5:
                disk, boot = disk.cut_power(rng), boot + 1
            else:
                disk = disk.crash_process()
        check_cut(disk, to, f"boot-{boot}")
        assert attempt < 20


def test_a_power_cut_right_after_the_request_and_while_it_is_written() -> None:
    """Either nothing was asked for, and nothing that was acknowledged is gone; or the log is cut."""
    store = opened(SimulatedDisk(), CLOCK)
    ends = play(store, HISTORY.steps)
    disk = store.components.disk
    assert isinstance(disk, SimulatedDisk)
    first = disk.operations
    store.request_truncation(ends[KEPT - 1], epoch=2)
    outcomes = set()
    for operation in range(first + 1, disk.operations + 2):
        for seed in range(5):
            other = opened(SimulatedDisk(), CLOCK)
            play(other, HISTORY.steps)
            off = other.components.disk
            assert isinstance(off, SimulatedDisk)
            off.crash_at(operation)
            try:
                other.request_truncation(ends[KEPT - 1], epoch=2)
            except PowerCut:
                pass
            found = off.cut_power(random.Random(seed))
            is_asked = read_request(found, LAYOUT.config) is not None
            again = opened(found, CLOCK, boot="boot-2")
            outcomes.add(is_asked)
            if is_asked:
                check_same(again, never_had_it(), HISTORY.keys)
            else:
                assert whole_end(again) <= ends[-1]
    assert outcomes == {False, True}


@pytest.mark.parametrize("begin", [0, 16384])
@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_crash_at_every_operation_of_a_removal(begin: int, is_power_cut: bool) -> None:
    def before() -> SimulatedDisk:
        store = opened(SimulatedDisk(), CLOCK)
        play(store, HISTORY.steps)
        store.request_wipe(begin, epoch=2)
        store.close()
        disk = store.components.disk
        assert isinstance(disk, SimulatedDisk)
        return disk

    for count, off in enumerate(interrupted(before, "boot-1")):
        disk = off.cut_power(random.Random(count)) if is_power_cut else off.crash_process()
        store = opened(disk, CLOCK, boot="boot-2" if is_power_cut else "boot-1")
        assert (store.components.commit_log.min_offset, whole_end(store)) == (begin, begin)
        assert queue_entries(store) == {}
        assert not any(found_by_key(store, HISTORY.keys).values())
        assert read_request(disk, LAYOUT.config) is None
        play(store, HISTORY.steps[:3])
        other = opened(SimulatedDisk(), CLOCK)
        play(other, HISTORY.steps[:3])
        ends = {key: value[:2] for key, value in queue_entries(other).items()}
        assert {key: value[:2] for key, value in queue_entries(store).items()} == ends
