"""Ordered consumption: one handler at a time per queue, failures in place, locks at the broker."""

import asyncio
from collections import defaultdict
from typing import Any

from ariane.client.consumer.invocation import Retry
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.model.ids import DEAD_LETTER_PREFIX
from ariane.model.route import MessageQueue
from ariane.wire.requests.clients import LockQueues, QueueLocks, UnlockQueues
from tests.client.cluster_fixture import LiveCluster, MessageCollector, fresh, until


def consumer_of(live_cluster: LiveCluster, **options: Any) -> PushConsumer:
    options = {"group": fresh("group"), "start": "earliest", "ordered": True, "suspend_s": 0.01, **options}
    return PushConsumer(live_cluster.nameserver, **options)


async def test_each_queue_is_consumed_in_order_by_one_handler_at_a_time(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(), MessageCollector()
    at_work: set[MessageQueue] = set()
    bodies = [b"%03d" % number for number in range(60)]

    async def handle(message: Received) -> None:
        assert message.queue not in at_work
        at_work.add(message.queue)
        await asyncio.sleep(0)
        at_work.discard(message.queue)
        collector.put(message)

    consumer = consumer_of(live_cluster, handler=handle)
    consumer.subscribe(topic)
    await live_cluster.send(topic, *bodies)
    async with consumer:
        await collector.until_count(60)
    by_queue: defaultdict[int, list[bytes]] = defaultdict(list)
    for message in collector.messages:
        by_queue[message.queue.queue_id].append(message.body)
    assert by_queue == {queue_id: bodies[queue_id::4] for queue_id in range(4)}
    assert consumer.counts[topic].failed == 0
    assert await live_cluster.committed(consumer.group, topic) == [15] * 4


async def test_a_failure_blocks_the_messages_after_it(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()

    async def handle(message: Received) -> None:
        collector.put(message)
        if message.body == b"b" and message.attempt < 3:
            raise ValueError("not now")

    consumer = consumer_of(live_cluster, handler=handle)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"a", b"b", b"c")
    async with consumer:
        await collector.until_count(5)
    assert collector.bodies == [b"a", b"b", b"b", b"b", b"c"]
    assert [message.attempt for message in collector.messages] == [1, 1, 2, 3, 1]


async def test_after_its_last_attempt_a_message_is_a_dead_letter_and_the_queue_continues(
    live_cluster: LiveCluster,
) -> None:
    topic, collector, letters = await live_cluster.topic(queues=1), MessageCollector(), MessageCollector()

    async def handle(message: Received) -> Retry | None:
        collector.put(message)
        return Retry(suspend_s=0.0) if message.body == b"b" else None

    consumer = consumer_of(live_cluster, handler=handle, max_reconsume=2)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"a", b"b", b"c")
    reader = consumer_of(live_cluster, handler=letters.put, ordered=False)
    reader.subscribe(f"{DEAD_LETTER_PREFIX}{consumer.group}")
    async with consumer:
        await collector.until_count(5)
        async with reader:
            await letters.until_count(1)
    assert collector.bodies == [b"a", b"b", b"b", b"b", b"c"]
    assert letters.bodies == [b"b"]


async def test_a_queue_locked_by_another_client_is_not_consumed_until_it_is_free(live_cluster: LiveCluster) -> None:
    topic, collector, group = await live_cluster.topic(queues=2), MessageCollector(), fresh("group")
    await live_cluster.send(topic, b"locked", queue_id=0)
    await live_cluster.send(topic, b"free", queue_id=1)
    locked, _free = await live_cluster.queues(topic)
    lock = QueueLocks(consumer_group=group, client_id="somebody else", mq_set=[locked])
    await live_cluster.instance.call(live_cluster.broker, LockQueues(lock))
    consumer = consumer_of(live_cluster, group=group, handler=collector.put)
    consumer.subscribe(topic)
    async with consumer:
        await collector.until_count(1)
        assert collector.bodies == [b"free"]
        await live_cluster.instance.call(live_cluster.broker, UnlockQueues(lock))
        await collector.until_count(2)
    assert collector.bodies == [b"free", b"locked"]


async def test_a_queue_changes_its_owner_only_when_its_handler_is_done(live_cluster: LiveCluster) -> None:
    topic, group = await live_cluster.topic(queues=2), fresh("group")
    first_collector, second_collector, may_finish = MessageCollector(), MessageCollector(), asyncio.Event()

    async def slowly(message: Received) -> None:
        first_collector.put(message)
        await may_finish.wait()

    first = consumer_of(live_cluster, group=group, handler=slowly)
    second = consumer_of(live_cluster, group=group, handler=second_collector.put)
    for consumer in (first, second):
        consumer.subscribe(topic)
    await live_cluster.send(topic, b"0a", b"1a", b"0b", b"1b")
    async with first:
        await first_collector.until_count(2)
        async with second:
            await until(lambda: len([queue for queue in first.queues if queue.topic == topic]) == 1)
            assert second_collector.messages == []
            may_finish.set()
            await second_collector.until_count(1)
            await first_collector.until_count(3)
    assert len(first_collector.messages) + len(second_collector.messages) == 4, (
        "nothing came twice, because the handler was waited for"
    )
