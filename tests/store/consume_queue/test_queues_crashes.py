"""Every write, sync and change of a name of a run as the moment of a crash; the log then rebuilds the queues.

The log itself is taken to be safe here: it is a list. What recovery does is what the store does: open the queues, cut
them at the last durable round, dispatch the log again from there.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ariane.store.consume_queue import queues
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.layout import Layout
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk
from tests.store.queues import Entry, directory, open_queues, read

STORE = Path("store")
RECORD_BYTES = 100


@pytest.fixture(params=[64, 0], ids=["each", "together"])
def _files_are_synced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, and as a store does it that has many."""
    monkeypatch.setattr(queues, "SYNCED_EACH_MAX", request.param)


pytestmark = pytest.mark.usefixtures("_files_are_synced")


class Record(NamedTuple):
    topic: str
    queue_offset: int
    entry: Entry


class Run:
    """A busy topic, and one that is deleted and made again on the way."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_directory(Layout.under(STORE).consume_queues)
        self.disk.journal.clear()
        self.log: list[Record] = []
        self.durable_to = self.log_min = 0
        self.deleted: set[str] = set()

    def go(self) -> None:
        queues = open_queues(STORE, self.disk)
        for step in range(14):
            self.append(queues, "busy", 9)
            self.append(queues, "other", 3)
            queues.write_dirty()
            if step % 4 == 3:
                self.make_durable(queues)
            if step % 5 == 4:
                self.log_min = self.log[len(self.log) // 2].entry[0]
                queues.drop_before(self.log_min)
            if step in (5, 9):
                self.deleted.add("other")
                queues.delete_topic("other")

    def append(self, queues: ConsumeQueues, topic: str, count: int) -> None:
        queue = queues.get_or_create(topic, 0)
        self.deleted.discard(topic)
        for _ in range(count):
            entry = len(self.log) * RECORD_BYTES, RECORD_BYTES, len(self.log)
            self.log.append(Record(topic, queue.max_offset, entry))
            queue.append(*entry)

    def make_durable(self, queues: ConsumeQueues) -> None:
        end = len(self.log) * RECORD_BYTES
        queues.write_dirty()
        for sync in queues.take_unsynced():
            sync()
        self.durable_to = end

    def recover(self, disk: SimulatedDisk) -> ConsumeQueues:
        queues = open_queues(STORE, disk)
        queues.truncate(self.durable_to)
        queues.mark_unsynced_from(self.durable_to)
        for topic, queue_offset, entry in self.log[self.durable_to // RECORD_BYTES :]:
            queues.get_or_create(topic, 0).append_at(queue_offset, *entry)
        queues.drop_before(self.log_min)
        return queues

    def expected(self, topic: str) -> list[Entry]:
        """The entries of the topic as it was last made, of records that are still there."""
        mine = [record for record in self.log if record.topic == topic]
        made = max(number for number, record in enumerate(mine) if record.queue_offset == 0)
        return [record.entry for record in mine[made:] if record.entry[0] >= self.log_min]


def crashed_runs() -> Iterator[Run]:
    whole = Run()
    whole.go()
    for operation in range(1, whole.disk.operations + 1):
        run = Run()
        run.disk.crash_at(operation)
        with pytest.raises(PowerCut):
            run.go()
        yield run


def check(run: Run, disk: SimulatedDisk) -> ConsumeQueues:
    queues = run.recover(disk)
    for topic in {record.topic for record in run.log} - run.deleted:
        queue = queues.get(topic, 0)
        assert queue is not None
        assert read(queue) == run.expected(topic)
        assert queue.max_offset == max(record.queue_offset for record in run.log[-12:] if record.topic == topic) + 1
    return queues


def test_kill_9_at_every_operation_leaves_queues_that_the_log_completes() -> None:
    for run in crashed_runs():
        check(run, run.disk.crash_process())


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_at_every_operation_leaves_queues_that_the_log_completes(seed: int) -> None:
    for number, run in enumerate(crashed_runs()):
        check(run, run.disk.cut_power(random.Random(seed * 10_000 + number)))


def test_a_power_cut_after_kill_9_does_not_take_what_the_dead_process_had_only_written() -> None:
    for number, run in enumerate(crashed_runs()):
        disk = run.disk.crash_process()
        run.make_durable(check(run, disk))
        check(run, disk.cut_power(random.Random(number)))


def test_names_that_a_dead_process_removed_come_back_in_order_or_not_at_all() -> None:
    disk = SimulatedDisk()
    run = Run()
    queues = open_queues(STORE, disk)
    run.append(queues, "busy", 45)
    run.make_durable(queues)
    assert queues.drop_before(10 * RECORD_BYTES) == 1
    after = disk.crash_process()
    run.log_min = 20 * RECORD_BYTES
    run.recover(after)
    assert len(after.names(directory(STORE, "busy"))) == 3
    for seed in range(50):
        check(run, after.cut_power(random.Random(seed)))
