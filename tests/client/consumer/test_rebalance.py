"""Sharing out queues: when members, routes and brokers change."""

import asyncio
from pathlib import Path

from ariane.client.consumer.allocation import BY_CIRCLE
from ariane.client.consumer.push import PushConsumer
from ariane.client.consumer.queues import AssignedQueue
from ariane.model.topic import Permission
from ariane.wire.codes import RequestCode
from ariane.wire.fields import Response
from ariane.wire.requests.topics import UpdateTopic
from tests.broker.brokers import running_cluster
from tests.client.cluster_fixture import PATIENCE_S, Basket, Ground, fresh, ground_at, until
from tests.client.consumer.scripted_queue import TOPIC, ScriptedQueue, scripted_queue
from tests.client.consumer.test_push_broker_faults import consumer_of


async def test_whom_the_broker_has_forgotten_says_so_and_keeps_its_queues() -> None:
    queue = ScriptedQueue()
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, print) as consumer:
        await until(lambda: len(consumer.queues) == 2)
        queue.responses[RequestCode.HEART_BEAT] = Response()  # and so does not count us among the members
        queue.members = []
        beats = len(queue.heard_of(RequestCode.HEART_BEAT))
        consumer._running[1].member.rebalance_soon()
        await queue.until_heard(RequestCode.HEART_BEAT, beats + 1)
        assert len(consumer.queues) == 2, "not to be known is no reason to stop"


async def test_members_that_share_by_circle_get_every_other_queue(ground: Ground) -> None:
    topic, group = await ground.topic(), fresh("group")
    consumers = [PushConsumer(ground.nameserver, group=group, handler=print, allocation=BY_CIRCLE) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(topic)
    async with consumers[0], consumers[1]:
        await until(
            lambda: (
                sorted([queue.queue_id for queue in one.queues if queue.topic == topic] for one in consumers)
                == [[0, 2], [1, 3]]
            )
        )


async def test_queues_that_a_topic_gains_are_taken_from_their_first_message(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    consumer = PushConsumer(ground.nameserver, group=fresh("group"), handler=basket.put, start="latest")
    consumer.subscribe(topic)
    async with consumer:
        await until(lambda: any(queue.topic == topic for queue in consumer.queues))
        request = UpdateTopic(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=2,
            write_queue_nums=2,
            perm=Permission.READ_WRITE,
            topic_filter_type="SINGLE_TAG",
        )
        await ground.instance.call(ground.broker, request)
        await ground.send(topic, b"in the new queue", queue_id=1)
        instance = consumer._running[0]
        async with asyncio.timeout(PATIENCE_S):
            while not basket.messages:
                await instance.routes.find(topic, fresh=True)
                await asyncio.sleep(0.05)
    assert basket.bodies == [b"in the new queue"]


async def test_a_job_that_ended_by_a_mistake_is_started_anew() -> None:
    queue = ScriptedQueue()
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, print) as consumer:
        await until(lambda: len(consumer.queues) == 2)
        await queue.until_heard(RequestCode.PULL_MESSAGE, 2)  # one of each queue: the next is of the job started anew
        queues = consumer._running[1].member.assigned
        assigned: AssignedQueue = next(one for one in queues.all() if one.queue.topic == TOPIC)
        assigned._tasks.cancel()
        pulls = len(queue.heard_of(RequestCode.PULL_MESSAGE))
        consumer._running[1].member.rebalance_soon()
        await queue.until_heard(RequestCode.PULL_MESSAGE, pulls + 1)
        assert queues.get(assigned.queue) is not assigned


async def test_a_connection_that_breaks_is_opened_again_and_nothing_is_lost(tmp_path: Path) -> None:
    basket = Basket()
    async with running_cluster(tmp_path) as cluster:
        async with ground_at(cluster.nameserver, cluster.broker.address) as ground:
            topic = await ground.topic(queues=2)
            await ground.send(topic, b"a", b"b")
        consumer = PushConsumer(cluster.nameserver, group="group", handler=basket.put, start="earliest")
        consumer.subscribe(topic)
        async with consumer:
            await basket.until_count(2)
            for connection in list(cluster.broker.parts.clients.group("group").members):  # type: ignore[union-attr]
                connection.abort()
            async with ground_at(cluster.nameserver, cluster.broker.address) as ground:
                await ground.send(topic, b"c", b"d")
            await basket.until_count(4)
    assert sorted(basket.bodies) == [b"a", b"b", b"c", b"d"]
