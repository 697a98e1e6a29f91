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
from tests.client.cluster_fixture import Basket, Ground, fresh, until


def consumer_of(ground: Ground, **options: Any) -> PushConsumer:
    options = {"group": fresh("group"), "start": "earliest", "ordered": True, "suspend_s": 0.01, **options}
    return PushConsumer(ground.nameserver, **options)


async def test_each_queue_is_consumed_in_order_by_one_handler_at_a_time(ground: Ground) -> None:
    topic, basket = await ground.topic(), Basket()
    at_work: set[MessageQueue] = set()
    bodies = [b"%03d" % number for number in range(60)]

    async def handle(message: Received) -> None:
        assert message.queue not in at_work
        at_work.add(message.queue)
        await asyncio.sleep(0)
        at_work.discard(message.queue)
        basket.put(message)

    consumer = consumer_of(ground, handler=handle)
    consumer.subscribe(topic)
    await ground.send(topic, *bodies)
    async with consumer:
        await basket.until_count(60)
    by_queue: defaultdict[int, list[bytes]] = defaultdict(list)
    for message in basket.messages:
        by_queue[message.queue.queue_id].append(message.body)
    assert by_queue == {queue_id: bodies[queue_id::4] for queue_id in range(4)}
    assert consumer.counts[topic].failed == 0
    assert await ground.committed(consumer.group, topic) == [15] * 4


async def test_a_failure_holds_back_what_is_behind_it(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()

    async def handle(message: Received) -> None:
        basket.put(message)
        if message.body == b"b" and message.attempt < 3:
            raise ValueError("not now")

    consumer = consumer_of(ground, handler=handle)
    consumer.subscribe(topic)
    await ground.send(topic, b"a", b"b", b"c")
    async with consumer:
        await basket.until_count(5)
    assert basket.bodies == [b"a", b"b", b"b", b"b", b"c"]
    assert [message.attempt for message in basket.messages] == [1, 1, 2, 3, 1]


async def test_after_its_last_attempt_a_message_is_a_dead_letter_and_the_queue_goes_on(ground: Ground) -> None:
    topic, basket, letters = await ground.topic(queues=1), Basket(), Basket()

    async def handle(message: Received) -> Retry | None:
        basket.put(message)
        return Retry(suspend_s=0.0) if message.body == b"b" else None

    consumer = consumer_of(ground, handler=handle, max_reconsume=2)
    consumer.subscribe(topic)
    await ground.send(topic, b"a", b"b", b"c")
    reader = consumer_of(ground, handler=letters.put, ordered=False)
    reader.subscribe(f"{DEAD_LETTER_PREFIX}{consumer.group}")
    async with consumer:
        await basket.until_count(5)
        async with reader:
            await letters.until_count(1)
    assert basket.bodies == [b"a", b"b", b"b", b"b", b"c"]
    assert letters.bodies == [b"b"]


async def test_a_queue_locked_by_another_client_is_not_touched_until_it_is_free(ground: Ground) -> None:
    topic, basket, group = await ground.topic(queues=2), Basket(), fresh("group")
    await ground.send(topic, b"locked", queue_id=0)
    await ground.send(topic, b"free", queue_id=1)
    locked, _free = await ground.queues(topic)
    lock = QueueLocks(consumer_group=group, client_id="somebody else", mq_set=[locked])
    await ground.instance.call(ground.broker, LockQueues(lock))
    consumer = consumer_of(ground, group=group, handler=basket.put)
    consumer.subscribe(topic)
    async with consumer:
        await basket.until_count(1)
        assert basket.bodies == [b"free"]
        await ground.instance.call(ground.broker, UnlockQueues(lock))
        await basket.until_count(2)
    assert basket.bodies == [b"free", b"locked"]


async def test_a_queue_changes_hands_only_when_its_handler_is_done(ground: Ground) -> None:
    topic, group = await ground.topic(queues=2), fresh("group")
    one, other, may_finish = Basket(), Basket(), asyncio.Event()

    async def slowly(message: Received) -> None:
        one.put(message)
        await may_finish.wait()

    first = consumer_of(ground, group=group, handler=slowly)
    second = consumer_of(ground, group=group, handler=other.put)
    for consumer in (first, second):
        consumer.subscribe(topic)
    await ground.send(topic, b"0a", b"1a", b"0b", b"1b")
    async with first:
        await one.until_count(2)
        async with second:
            await until(lambda: len([queue for queue in first.queues if queue.topic == topic]) == 1)
            assert other.messages == []
            may_finish.set()
            await other.until_count(1)
            await one.until_count(3)
    assert len(one.messages) + len(other.messages) == 4, "nothing came twice, because the handler was waited for"
