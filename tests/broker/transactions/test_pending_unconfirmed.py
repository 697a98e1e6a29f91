"""Transactions where messages have to be confirmed: what has ended stays ended, and progress waits."""

import asyncio

from ariane.broker.transactions.half_messages import HALF_QUEUE
from ariane.broker.transactions.pending import PROGRESS_GROUP
from ariane.model.system_topics import TRANS_HALF
from ariane.wire.requests.send import Decision
from tests.broker.transaction_fixtures import outcome_of, peer, transaction_broker
from tests.simulation.simulated_disk import SimulatedDisk
from tests.transport.peers import until


async def test_what_has_ended_is_known_at_a_start_though_nothing_is_confirmed_again() -> None:
    disk = SimulatedDisk()
    async with transaction_broker(disk, gated=True) as broker, peer(broker) as producer:
        gate = broker.store.gate
        assert gate is not None
        gate.begin_epoch(1)
        gate.confirm(2**40, epoch=1)
        ended, still_open = await producer.send_half(b"ended"), await producer.send_half(b"open")
        await producer.end(ended, Decision.COMMIT)
        await until(lambda: broker.bodies() == [b"ended"])
    async with transaction_broker(disk.crash_process(), gated=True) as again:
        transactions = again.transactions
        assert (transactions.queue.end, transactions.queue.visible_end) == (2, 0)
        assert not transactions.open.is_open(ended.queue_offset)
        assert transactions.open.is_open(still_open.queue_offset)
        assert again.bodies() == []


async def test_progress_is_saved_when_what_it_depends_on_is_confirmed() -> None:
    async with transaction_broker(gated=True) as broker, peer(broker) as producer:
        gate = broker.store.gate
        assert gate is not None
        gate.begin_epoch(1)
        sending = asyncio.ensure_future(producer.send_half(b"paid"))
        await until(lambda: broker.writer.waiting == 1)
        gate.confirm(broker.store.components.commit_log.max_offset, epoch=1)
        sent = await sending
        await producer.oneway(outcome_of(sent, Decision.ROLLBACK))
        await until(lambda: not broker.transactions.open.is_open(0))
        saving = asyncio.ensure_future(broker.checks.save_progress())
        await until(lambda: len(gate.waiters) > 0)
        assert broker.offsets.get(PROGRESS_GROUP, TRANS_HALF, HALF_QUEUE) == -1
        gate.confirm(broker.store.components.commit_log.max_offset, epoch=1)
        await saving
        assert broker.offsets.get(PROGRESS_GROUP, TRANS_HALF, HALF_QUEUE) == 1


async def test_a_half_message_is_checked_only_when_it_is_confirmed() -> None:
    async with transaction_broker(gated=True) as broker, peer(broker) as producer:
        gate, log = broker.store.gate, broker.store.components.commit_log
        assert gate is not None
        gate.begin_epoch(1)
        sending = asyncio.ensure_future(producer.send_half(b"paid"))
        await until(lambda: broker.writer.waiting == 1)
        await broker.run_pass()
        assert broker.transactions.queue.end == 1, "a check would have copied it"
        gate.confirm(log.max_offset, epoch=1)
        await sending
        checking = asyncio.ensure_future(broker.run_pass())
        await until(lambda: broker.transactions.queue.end == 2)
        gate.confirm(log.max_offset, epoch=1)
        await checking


async def test_an_outcome_that_a_cut_of_the_log_removed_is_open_again() -> None:
    disk = SimulatedDisk()
    async with transaction_broker(disk, gated=True) as broker, peer(broker) as producer:
        store, gate = broker.store, broker.store.gate
        assert gate is not None
        gate.begin_epoch(1)
        sending = asyncio.ensure_future(producer.send_half(b"paid"))
        await until(lambda: broker.writer.waiting == 1)
        gate.confirm(store.components.commit_log.max_offset, epoch=1)
        sent = await sending
        await producer.oneway(outcome_of(sent, Decision.COMMIT))
        await until(lambda: not broker.transactions.open.is_open(0))
        store.request_truncation(gate.confirmed_to, epoch=2)
    async with transaction_broker(disk.crash_process(), gated=True) as again:
        assert again.transactions.open.is_open(0)
        assert again.transactions.queue.end == 1
