"""Crashes at every write and every sync of a run, with every state that the disk may then have."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from ariane.store.append.draft import Appended
from ariane.store.checkpoint import read_checkpoint, write_checkpoint
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk
from tests.store.block_checksums import check_block_checksums, is_covered
from tests.store.stores import BOOT, ROOT, bodies, draft, entries, opened, records

COMMIT_LOG = Layout.under(ROOT).commit_log


class Attempt(NamedTuple):
    """A message that was given to the store; whether it got there is what a crash decides."""

    queue_id: int
    body: bytes
    key: str


class Run:
    """Appends to three queues with syncs, rounds and a roll on the way; remembers what was acknowledged."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.attempts: list[Attempt] = []
        self.appended = 0
        self.acknowledged = 0

    def go(self) -> None:
        store = opened(self.disk, FakeClock())
        for step in range(12):
            self._append(store, step)
            if step % 2:
                flusher = store.flusher
                flusher.flushed(flusher.sync_now())
                self.acknowledged = self.appended
                store.extend_checksums(flusher.flushed_to)
            if step % 3 == 2:
                store.derived.write()
            if step % 5 == 4:
                store.make_durable()
                self.acknowledged = self.appended
        store.close()
        self.acknowledged = self.appended

    def _append(self, store: MessageStore, step: int) -> None:
        new = [Attempt(queue, f"{step}/{queue}:".encode() + bytes(700), f"k{step}-{queue}") for queue in range(3)]
        self.attempts += new
        outcomes = store.append([draft(item.body, queue_id=item.queue_id, key=item.key) for item in new])
        assert all(isinstance(outcome, Appended) for outcome in outcomes)
        self.appended += len(new)


def operations_of_a_whole_run() -> int:
    run = Run(SimulatedDisk())
    run.go()
    return run.disk.operations


def crashed_runs() -> Iterator[Run]:
    """One run for each operation, ended just before that operation."""
    for operation in range(1, operations_of_a_whole_run() + 1):
        run = Run(SimulatedDisk())
        run.disk.crash_at(operation)
        with pytest.raises(PowerCut):
            run.go()
        yield run


def check(store: MessageStore, run: Run, survivors_min: int) -> None:
    found = [view for view in records(store) if view.topic == "orders"]
    survivors = run.attempts[: len(found)]
    assert len(found) >= survivors_min, "an acknowledged message is lost"
    for view, attempt in zip(found, survivors, strict=True):
        record = store.lookup.record_at(view.physical_offset)
        assert record is not None
        assert bytes(record[88 : 88 + view.body_length]) == attempt.body, "not what was written there"
        (by_key,) = store.lookup.by_key("orders", attempt.key, 10, 0, 2**62)
        assert bytes(by_key) == bytes(record)
    for queue_id in range(3):
        mine = [view for view in found if view.queue_id == queue_id]
        assert [view.queue_offset for view in mine] == list(range(len(mine))), "offsets are not dense"
        assert bodies(store, "orders", queue_id) == [item.body for item in survivors if item.queue_id == queue_id]
        queue = store.components.queues.get("orders", queue_id)
        places = [entry[0] for entry in entries(queue)] if queue is not None else []
        assert places == [view.physical_offset for view in mine], "the queue is not what a rebuild would give"


def recover(disk: SimulatedDisk, boot: str) -> MessageStore:
    """Opens the store and appends to it. No block checksum reports damage, before or after."""
    assert check_block_checksums(disk).faults == []
    store = opened(disk, FakeClock(), boot=boot)
    assert is_covered(disk, store.components.commit_log.max_offset)
    (outcome,) = store.append([draft(b"after the crash", topic="later", key="later")])
    assert isinstance(outcome, Appended)
    assert bodies(store, "later", 0)[-1:] == [b"after the crash"]
    store.components.dispatcher.write_index()
    return store


def test_kill_9_at_every_operation_loses_nothing() -> None:
    for run in crashed_runs():
        check(recover(run.disk.crash_process(), BOOT), run, survivors_min=run.appended)


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_every_operation_loses_nothing_acknowledged(seed: int) -> None:
    for number, run in enumerate(crashed_runs()):
        disk = run.disk.cut_power(random.Random(seed * 10_000 + number))
        check(recover(disk, "another boot"), run, survivors_min=run.acknowledged)


def test_recovery_itself_may_be_cut_short_and_begun_again() -> None:
    rng = random.Random(7)
    run = next(run for run in crashed_runs() if run.acknowledged >= 6)
    broken = run.disk.cut_power(rng)
    for operation in range(1, 40):
        disk = broken.cut_power(random.Random(operation))
        disk.crash_at(operation)
        try:
            opened(disk, FakeClock(), boot="another boot")
        except PowerCut:
            disk = disk.cut_power(random.Random(operation))
        else:
            disk = disk.crash_process()
        check(recover(disk, "a third boot"), run, survivors_min=run.acknowledged)


def torn_record(disk: SimulatedDisk, end: int) -> None:
    """The last record's second half never reached the disk."""
    path = COMMIT_LOG / disk.names(COMMIT_LOG)[0]
    file = disk.open(path, writable=True)
    file.write(bytes(300), end - 300)
    file.close()


def test_a_torn_record_above_the_durable_offset_ends_the_log() -> None:
    disk = SimulatedDisk()
    store = opened(disk, FakeClock())
    outcomes = store.append([draft(bytes(700), key=f"k{n}") for n in range(4)])
    last = outcomes[-1]
    assert isinstance(last, Appended)
    crashed = disk.crash_process()
    torn_record(crashed, last.end)
    again = opened(crashed, FakeClock())
    assert again.components.commit_log.max_offset == last.physical_offset
    assert len(bodies(again, "orders", 0)) == 3


def test_stale_records_behind_a_torn_one_never_come_back() -> None:
    """The trap of a log that is cut and written again: old records behind the new end are whole by themselves."""
    disk = SimulatedDisk()
    store = opened(disk, FakeClock())
    first, second, third = store.append([draft(bytes(700), key=f"k{n}") for n in range(3)])
    assert isinstance(first, Appended)
    assert isinstance(second, Appended)
    assert isinstance(third, Appended)
    crashed = disk.crash_process()
    file = crashed.open(COMMIT_LOG / crashed.names(COMMIT_LOG)[0], writable=True)
    file.write(bytes(8), second.physical_offset)
    file.close()
    again = opened(crashed, FakeClock())
    assert again.components.commit_log.max_offset == second.physical_offset
    put_again = again.append([draft(bytes(700), key="kn")])[0]
    assert isinstance(put_again, Appended)
    assert put_again.end == third.physical_offset
    final = opened(crashed.crash_process(), FakeClock())
    assert final.components.commit_log.max_offset == put_again.end


def test_corruption_below_the_durable_offset_is_put_aside_and_nothing_is_cut() -> None:
    disk = SimulatedDisk()
    store = opened(disk, FakeClock())
    first = store.append([draft(bytes(700), key="k0")])[0]
    store.make_durable()
    second, third = store.append([draft(bytes(700), key=f"k{n}") for n in (1, 2)])
    flusher = store.flusher
    flusher.flushed(flusher.sync_now())
    assert isinstance(first, Appended)
    assert isinstance(second, Appended)
    assert isinstance(third, Appended)
    # The checkpoint must know how far the log was durable: rewritten here without dispatching further.
    path = Layout.under(ROOT).checkpoint
    write_checkpoint(disk, path, replace(read_checkpoint(disk, path), flushed_to=third.end))
    crashed = disk.cut_power(random.Random(1))
    crashed.flip_bit(COMMIT_LOG / crashed.names(COMMIT_LOG)[0], second.physical_offset + 400, 3)
    again = opened(crashed, FakeClock(), boot="another boot")
    assert again.components.commit_log.max_offset == third.end
    kept = crashed.names(Layout.under(ROOT).quarantine)
    assert kept == [f"{second.physical_offset:020d}-{second.size}"]
    assert again.lookup.record_at(third.physical_offset) is not None
    assert again.lookup.record_at(second.physical_offset) is None


def test_a_record_whose_last_page_was_lost_is_torn_though_its_checksum_holds() -> None:
    """RocketMQ's checksum covers the body; here the lost page held nothing but the end of the properties."""
    disk = SimulatedDisk()
    store = opened(disk, FakeClock())
    (first,) = store.append([draft(bytes(10), key="k")])
    assert isinstance(first, Appended)
    fixed = 91 + len("orders") + len(b"KEYS\x01kk\x02")
    (second,) = store.append([draft(bytes(4096 + 2 - first.end - fixed), key="kk")])
    assert isinstance(second, Appended)
    assert second.end == 4096 + 2
    crashed = disk.crash_process()
    file = crashed.open(COMMIT_LOG / crashed.names(COMMIT_LOG)[0], writable=True)
    file.write(bytes(2), 4096)
    file.close()
    assert opened(crashed, FakeClock()).components.commit_log.max_offset == first.end
