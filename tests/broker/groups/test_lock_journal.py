"""Queue locks across restarts: the holder keeps its queue; when holders are not known, nobody gets one for a minute."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ariane.broker.groups.lock_journal import LockJournal
from ariane.broker.groups.locks import LOCK_S, QueueLocks
from ariane.clock import Clock
from ariane.model.route import MessageQueue
from ariane.rpc.caller import Caller
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.requests.clients import LockQueues
from ariane.wire.requests.clients import QueueLocks as LockRequest
from tests.broker.brokers import running_broker
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import draft, opened, put

PATH = Path("/store/config/queueLocks.journal")
QUEUES = [MessageQueue(topic="orders", broker_name="broker-a", queue_id=number) for number in range(4)]


@asynccontextmanager
async def locks_on(disk: SimulatedDisk, boot: str = "boot-1", now: float = 0.0) -> AsyncIterator[QueueLocks]:
    """A broker's locks over a store that was used; the store itself is not closed, as after kill -9."""
    store = opened(disk, boot=boot)
    if store.components.commit_log.max_offset == 0:
        put(store, draft(b"m"))
    async with QueueLocks.open(store.components, now) as locks:
        yield locks


async def test_after_a_kill_the_holder_keeps_its_queue_and_another_waits_for_the_life_of_a_lock() -> None:
    disk = SimulatedDisk()
    async with locks_on(disk) as locks:
        assert locks.lock("g", "one", QUEUES[:2], now=0) == []  # its journal is new, and the store is not
        assert locks.lock("g", "one", QUEUES[:2], now=LOCK_S) == QUEUES[:2]
        killed = disk.crash_process()
    async with locks_on(killed, now=1000) as locks:
        assert locks.lock("g", "two", QUEUES, now=1000) == QUEUES[2:]
        assert locks.lock("g", "one", QUEUES, now=1001) == QUEUES[:2]
        assert locks.lock("g", "two", QUEUES, now=1001 + LOCK_S) == QUEUES[2:]
        assert locks.lock("g", "two", QUEUES, now=1001 + LOCK_S + 0.1) == QUEUES


async def test_a_group_whose_members_are_all_new_waits_for_the_life_of_a_lock_at_most() -> None:
    disk = SimulatedDisk()
    async with locks_on(disk) as locks:
        locks.lock("g", "one", QUEUES, now=LOCK_S)
        killed = disk.crash_process()
    async with locks_on(killed, now=500) as locks:
        assert locks.lock("g", "new", QUEUES, now=500 + LOCK_S) == []
        assert locks.lock("g", "new", QUEUES, now=500 + LOCK_S + 0.1) == QUEUES


async def test_what_was_unlocked_or_expired_before_a_kill_is_free_after_it() -> None:
    disk = SimulatedDisk()
    async with locks_on(disk) as locks:
        locks.lock("g", "one", QUEUES[:2], now=LOCK_S)
        locks.lock("old", "one", QUEUES[:1], now=LOCK_S)
        locks.unlock("g", "one", QUEUES[:1])
        for minutes in (1.5, 2.0, 2.6):  # at last the lock of "old" is swept
            locks.lock("g", "one", QUEUES[1:2], now=LOCK_S * minutes)
        killed = disk.crash_process()
    async with locks_on(killed, now=500) as locks:
        assert locks.lock("g", "two", QUEUES[:2], now=500) == QUEUES[:1]
        assert locks.lock("old", "two", QUEUES[:1], now=500) == QUEUES[:1]


async def test_after_a_clean_stop_locks_are_known_in_another_boot() -> None:
    disk = SimulatedDisk()
    async with locks_on(disk) as locks:
        locks.lock("g", "one", QUEUES[:1], now=LOCK_S)
    disk.remove(Path("/store/abort"))  # as the clean stop of a store does
    async with locks_on(disk, "boot-2", now=500) as locks:
        assert locks.lock("g", "two", QUEUES[:2], now=500) == QUEUES[1:2]


async def test_after_a_crash_of_the_machine_nobody_gets_a_lock_for_a_minute() -> None:
    disk = SimulatedDisk()
    async with locks_on(disk) as locks:
        locks.lock("g", "one", QUEUES[:1], now=LOCK_S)
        killed = disk.crash_process()
    async with locks_on(killed, "boot-2", now=500) as locks:
        assert locks.lock("g", "one", QUEUES[:1], now=500) == []
        assert locks.lock("g", "two", QUEUES[1:], now=500 + LOCK_S - 0.1) == []
        assert locks.lock("g", "two", QUEUES, now=500 + LOCK_S) == QUEUES


async def test_on_a_new_store_nobody_waits() -> None:
    async with QueueLocks.open(opened(SimulatedDisk()).components, now=0) as locks:
        assert locks.lock("g", "one", QUEUES, now=0) == QUEUES


def changes(count: int) -> list[tuple[str, MessageQueue, str | None]]:
    return [("g", QUEUES[number % 4], f"client {number}\n\u00e9") for number in range(count)]


def journal_with(disk: SimulatedDisk, count: int) -> LockJournal:
    disk.make_directory(PATH.parent)
    journal = LockJournal(disk, PATH)
    journal.begin([])
    for change in changes(count):
        journal.append([change], changes(count))
    return journal


def test_a_change_is_read_back_as_it_was_written() -> None:
    disk = SimulatedDisk()
    journal_with(disk, 5)
    assert LockJournal(disk.crash_process(), PATH).replay() == changes(5)


def test_a_full_file_is_replaced_by_the_current_locks() -> None:
    disk = SimulatedDisk()
    journal = journal_with(disk, 1)
    held = changes(4)
    for _ in range(2000):
        journal.append(changes(1), held)
    assert (disk.size(PATH) or 0) <= 64 * 1024
    read = LockJournal(disk.crash_process(), PATH).replay()
    assert read is not None
    assert read[:4] == held


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("position", [*range(0, 280, 13), 400, 64 * 1024 - 1])
def test_a_damaged_journal_is_not_read(position: int, bit: int) -> None:
    disk = SimulatedDisk()
    journal_with(disk, 5)
    disk.flip_bit(PATH, position, bit)
    assert LockJournal(disk, PATH).replay() is None


def test_a_change_that_cannot_be_written_makes_the_journal_incomplete(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    journal = journal_with(disk, 3)
    disk.fail_writes(OSError(errno.ENOSPC, "no space"))
    journal.append(changes(1), changes(1))
    disk.fail_writes(None)
    assert "queue locks not written" in caplog.text
    assert "remove the file before the next start" in caplog.text  # here even a block in place could not be written
    journal.append(changes(1), changes(2))
    assert LockJournal(disk, PATH).replay() == changes(2)


async def test_a_restarted_broker_gives_a_queue_only_to_the_member_that_had_it(tmp_path: Path) -> None:
    """The first run ends cleanly; `tests/cluster/test_ordered_kill.py` kills processes."""
    queue = QUEUES[0]
    request = {name: LockQueues(LockRequest(consumer_group="g", client_id=name, mq_set=[queue])) for name in "ab"}
    async with Pool.open(TransportSettings(), Clock(), lambda connection, command: None) as pool:
        async with running_broker(tmp_path) as broker:
            broker.parts.topics.ensure("orders", 1)
            assert (await Caller(pool).call(broker.address, request["a"])).body.locked == [queue]
        async with running_broker(tmp_path) as broker:
            assert (await Caller(pool).call(broker.address, request["b"])).body.locked == []
            assert (await Caller(pool).call(broker.address, request["a"])).body.locked == [queue]
