"""Crashes at every write, sync and change of a name while a log is cut or removed: in the end it is as without them."""

import logging
import random
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest

from ariane.store.config.truncation_request import TruncationRequest, read_request, write_request
from ariane.store.disk import read_all
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk
from tests.store.stores import opened
from tests.store.truncated import (
    LAYOUT,
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


def on_disk(store: MessageStore) -> SimulatedDisk:
    disk = store.components.disk
    assert isinstance(disk, SimulatedDisk)
    return disk


@cache
def asked(*, is_clean: bool, is_late: bool) -> tuple[SimulatedDisk, int]:
    """A store that ended with a request, and where it is to be cut; work on copies of it.

    `is_clean`: it was stopped, then the request was put there. `is_late`: both saved states say more than what will be
    left."""
    store = opened(SimulatedDisk(), CLOCK)
    to = play(store, HISTORY.steps)[KEPT - 1]
    if is_late:
        store.make_durable()
        store.make_durable()
    if not is_clean:
        store.request_truncation(to, epoch=2)
    store.close()
    disk = on_disk(store)
    if is_clean:
        write_request(disk, LAYOUT.config, TruncationRequest(to, epoch=2))
    return disk, to


CASES = [{"is_clean": clean, "is_late": late} for clean in (False, True) for late in (False, True)]


@cache
def never_had_it_on_disk() -> SimulatedDisk:
    store = opened(SimulatedDisk(), CLOCK)
    play(store, HISTORY.steps[:KEPT])
    store.close()
    return on_disk(store)


def never_had_it() -> MessageStore:
    return opened(never_had_it_on_disk().crash_process(), CLOCK)


@cache
def tail() -> bytes:
    store = opened(SimulatedDisk(), CLOCK)
    ends = play(store, HISTORY.steps)
    return log_bytes(store)[ends[KEPT - 1] :]


def interrupted(before: SimulatedDisk, boot: str = "boot-1") -> Iterator[SimulatedDisk]:
    """The disk as it is when the start that carries the request out ends just before each of its operations."""
    whole = before.crash_process()
    opened(whole, CLOCK, boot=boot)
    for operation in range(1, whole.operations + 1):
        disk = before.crash_process()
        disk.crash_at(operation)
        with pytest.raises(PowerCut):
            opened(disk, CLOCK, boot=boot)
        yield disk


REBUILT = "a consume queue differed from the log: it is built again"


@pytest.fixture(autouse=True)
def nothing_looks_like_damage(caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest) -> Iterator[None]:
    """A cut is not a fault: no line of the log may ask an operator to restore files. Only a power cut may leave a queue
    that has to be built again, when there is no saved state of it."""
    yield
    errors = {record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR}
    assert errors <= (set() if "kill" in request.node.name else {REBUILT})


def check_cut(disk: SimulatedDisk, to: int, boot: str) -> None:
    store = opened(disk, CLOCK, boot=boot)
    assert read_request(disk, LAYOUT.config) is None
    name = f"{to:020d}-{len(tail())}-epoch-2"
    assert [name for name in disk.names(LAYOUT.quarantine) if not name.endswith(".tmp")] == [name]
    assert read_all(disk, LAYOUT.quarantine / name, 2**30) == tail()
    check_same(store, never_had_it(), HISTORY.keys)


@pytest.mark.parametrize("case", CASES)
def test_kill_9_at_every_operation_of_a_cut(case: dict[str, bool]) -> None:
    before, to = asked(**case)
    count = 0
    for disk in interrupted(before):
        check_cut(disk.crash_process(), to, "boot-1")
        count += 1
    assert count > 20


@pytest.mark.parametrize("case", CASES)
def test_a_power_cut_at_every_operation_of_a_cut(case: dict[str, bool]) -> None:
    before, to = asked(**case)
    for count, disk in enumerate(interrupted(before)):
        for seed in range(2):
            check_cut(disk.cut_power(random.Random(1000 * seed + count)), to, "boot-2")


@pytest.mark.parametrize("seed", range(3))
def test_a_cut_that_is_interrupted_again_and_again(seed: int) -> None:
    rng = random.Random(seed)
    before, to = asked(**CASES[seed])
    for _ in range(20):
        disk, boot = before.crash_process(), 1
        for _ in range(rng.randint(2, 5)):
            disk.crash_at(disk.operations + rng.randint(1, 60))
            with suppress(PowerCut):
                opened(disk, CLOCK, boot=f"boot-{boot}")
            if rng.random() < 0.5:
                disk, boot = disk.cut_power(rng), boot + 1
            else:
                disk = disk.crash_process()
        check_cut(disk, to, f"boot-{boot}")


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
            with suppress(PowerCut):
                other.request_truncation(ends[KEPT - 1], epoch=2)
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
    store = opened(SimulatedDisk(), CLOCK)
    play(store, HISTORY.steps)
    store.request_wipe(begin, epoch=2)
    store.close()
    for count, off in enumerate(interrupted(on_disk(store))):
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
