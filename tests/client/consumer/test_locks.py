"""Queue locks of a member: renewed, in doubt, lost, and given back when an assignment fails."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ariane.client.consumer.locks import QueueLockClient
from ariane.client.consumer.message import Received
from ariane.client.consumer.offsets import OffsetTable, RemoteBrokerOffsetStore, StartOffset
from ariane.client.consumer.push import PushConsumer
from ariane.client.consumer.queues import AssignedQueue, AssignedQueues
from ariane.errors import CallTimeout
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.requests.clients import LockQueues, QueueLocks, UnlockQueues
from ariane.wire.requests.offsets import UpdateConsumerOffset
from tests.broker.brokers import running_broker
from tests.client.cluster_fixture import LiveCluster, MessageCollector, ariane_cluster, live_cluster_at, until
from tests.nameserver.servers import nameserver

GROUP = "group"
NOBODY = MessageQueue(topic="topic", broker_name="unknown", queue_id=0)


async def lock_as(cluster: LiveCluster, client_id: str, queue: MessageQueue) -> bool:
    body = QueueLocks(consumer_group=GROUP, client_id=client_id, mq_set=[queue])
    return queue in (await cluster.instance.call(cluster.broker, LockQueues(body))).body.locked


async def unlock_as(cluster: LiveCluster, client_id: str, queue: MessageQueue) -> None:
    body = QueueLocks(consumer_group=GROUP, client_id=client_id, mq_set=[queue])
    await cluster.instance.call(cluster.broker, UnlockQueues(body))


def assigned_queue(queue: MessageQueue, locked_until: float) -> AssignedQueue:
    assigned = AssignedQueue(queue, 0, [])
    assigned.locked_until = locked_until
    return assigned


async def test_a_renewal_keeps_what_was_in_doubt_for_a_while_and_gives_up_what_another_may_have_had(
    tmp_path: Path,
) -> None:
    """Trusted for 30 s of the 60 s that the broker keeps a lock."""
    async with ariane_cluster(tmp_path) as cluster:
        queues = await cluster.queues(await cluster.topic(queues=4))
        now = cluster.instance.clock.monotonic()
        assigned = [
            assigned_queue(queue, now + trusted_s) for queue, trusted_s in zip(queues, (5, -25, -31, 5), strict=True)
        ]
        assert await lock_as(cluster, "another", queues[3])
        renewal = await QueueLockClient(cluster.instance, GROUP, 1.0).renew(assigned)
        assert renewal.lost == queues[2:]
        assert renewal.is_complete
        assert [item.locked_until > now + 29 for item in assigned] == [True, True, False, False]
        assert [item.locked_until for item in assigned[2:]] == [0.0, 0.0]


async def test_a_broker_that_cannot_be_asked_is_asked_again_and_takes_no_lock_away(tmp_path: Path) -> None:
    async with ariane_cluster(tmp_path) as cluster:
        (queue,) = await cluster.queues(await cluster.topic(queues=1))
        now = cluster.instance.clock.monotonic()
        assigned = [assigned_queue(queue, now + 5), assigned_queue(NOBODY, now + 5)]
        renewal = await QueueLockClient(cluster.instance, GROUP, 1.0).renew(assigned)
        assert (renewal.lost, renewal.is_complete) == ([], False)
        assert assigned[1].locked_until == now + 5


async def test_a_queue_whose_assignment_fails_is_free_for_others(tmp_path: Path) -> None:
    """Its lock was granted, and would keep the queue from all members for a minute."""

    async def no_start_offset(queue: MessageQueue) -> StartOffset:
        raise CallTimeout("the broker is too slow")

    async with ariane_cluster(tmp_path) as cluster:
        (queue,) = await cluster.queues(await cluster.topic(queues=1))
        offsets = OffsetTable(RemoteBrokerOffsetStore(cluster.instance, GROUP))
        assigned = AssignedQueues(
            offsets, no_start_offset, [], QueueLockClient(cluster.instance, GROUP, handler_timeout_s=1.0)
        )
        with pytest.raises(CallTimeout):
            await assigned.assign(queue)
        await assigned.revoke_all(5.0)
        assert await lock_as(cluster, "another", queue)


async def test_a_queue_that_another_member_had_meanwhile_continues_at_the_offset_of_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ariane.client.consumer.push.RENEW_INTERVAL_S", 0.2)
    collector, may_end = MessageCollector(), asyncio.Event()

    async def slowly(message: Received) -> None:
        collector.put(message)
        await may_end.wait()

    async with ariane_cluster(tmp_path) as cluster:
        topic = await cluster.topic(queues=1)
        (queue,) = await cluster.queues(topic)
        await cluster.send(topic, b"0", b"1", b"2", b"3")
        consumer = PushConsumer(
            cluster.nameserver, group=GROUP, ordered=True, start="earliest", handler=slowly, limits=None
        )
        consumer.subscribe(topic)
        async with consumer:
            await collector.until_count(1)
            me = consumer._running[0].client_id
            await unlock_as(cluster, me, queue)  # as if this member had not been heard of for a minute
            assert await lock_as(cluster, "another", queue)
            assigned = consumer._running[1].member.assigned
            await until(lambda: assigned.get(queue) is None)
            assert collector.bodies == [b"0"]
            request = UpdateConsumerOffset(GROUP, topic, 0, QueueOffset(3), seek=False)
            await cluster.instance.call(cluster.broker, request)
            may_end.set()
            await unlock_as(cluster, "another", queue)
            await collector.until_count(2)
    assert collector.bodies == [b"0", b"3"]


async def test_no_handler_is_called_while_the_lock_is_in_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = MessageCollector()
    async with ariane_cluster(tmp_path) as cluster:
        topic = await cluster.topic(queues=1)
        (queue,) = await cluster.queues(topic)
        consumer = PushConsumer(cluster.nameserver, group=GROUP, ordered=True, start="earliest", handler=collector.put)
        consumer.subscribe(topic)
        async with consumer:
            await until(lambda: queue in consumer.queues)
            parts = consumer._running[1]
            assigned = parts.member.assigned.get(queue)
            assert assigned is not None
            assigned.locked_until = consumer._running[0].clock.monotonic() - 1.0  # no renewal for 31 s
            await cluster.send(topic, b"0", b"1")
            await until(lambda: len(assigned.process) == 2)
            await asyncio.sleep(0.2)
            assert collector.bodies == []
            assert parts.locks is not None
            await parts.locks.renew([assigned])
            await collector.until_count(2)


async def test_what_could_not_be_unlocked_is_unlocked_when_the_broker_is_back(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(nameserver())
        async with running_broker(tmp_path, [address]) as broker:
            cluster = await stack.enter_async_context(live_cluster_at(address, broker.address))
            (queue,) = await cluster.queues(await cluster.topic(queues=1))
            locks = QueueLockClient(cluster.instance, GROUP, 1.0)
            assert await locks.acquire(queue) is not None
        await locks.release(queue)
        await stack.enter_async_context(
            running_broker(tmp_path, [address], port=int(broker.address.rpartition(":")[2]))
        )
        assert not await lock_as(cluster, "another", queue)
        async with asyncio.timeout(30):
            while not await locks.release_again():  # noqa: ASYNC110 - as the consumer does
                await asyncio.sleep(0.05)
        assert await lock_as(cluster, "another", queue)


async def test_a_revoked_queue_keeps_its_lock_while_its_handler_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ariane.client.consumer.push.RENEW_INTERVAL_S", 0.0)
    monkeypatch.setattr("ariane.client.consumer.push.RETRY_INTERVAL_S", 0.05)
    collector, may_end = MessageCollector(), asyncio.Event()

    async def slowly(message: Received) -> None:
        collector.put(message)
        await may_end.wait()

    async with ariane_cluster(tmp_path) as cluster:
        topic = await cluster.topic(queues=1)
        (queue,) = await cluster.queues(topic)
        await cluster.send(topic, b"0")
        consumer = PushConsumer(cluster.nameserver, group=GROUP, ordered=True, start="earliest", handler=slowly)
        consumer.subscribe(topic)
        async with consumer:
            await collector.until_count(1)
            queues = consumer._running[1].member.assigned
            assigned = queues.get(queue)
            assert assigned is not None
            consumer.unsubscribe(topic)
            await until(lambda: queues.get(queue) is None)
            assert not queues.is_free(queue)
            last_ms = assigned.last_lock_ms
            await until(lambda: assigned.last_lock_ms > last_ms)
            assert not await lock_as(cluster, "another", queue)
            may_end.set()
            await until(lambda: queues.is_free(queue))
            async with asyncio.timeout(30):
                while not await lock_as(cluster, "another", queue):  # noqa: ASYNC110 - until it is unlocked
                    await asyncio.sleep(0.05)
