"""Rebalance: when members, routes and brokers change."""

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
from tests.client.cluster_fixture import PATIENCE_S, LiveCluster, MessageCollector, fresh, live_cluster_at, until
from tests.client.consumer.scripted_queue import TOPIC, ScriptedQueue, scripted_queue
from tests.client.consumer.test_push_broker_faults import consumer_of


async def test_a_member_that_the_broker_lost_sends_a_heartbeat_and_keeps_its_queues() -> None:
    queue = ScriptedQueue()
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, print) as consumer:
        await until(lambda: len(consumer.queues) == 2)
        queue.responses[RequestCode.HEART_BEAT] = Response()  # and so does not count us among the members
        queue.members = []
        beats = len(queue.received_of(RequestCode.HEART_BEAT))
        consumer._running[1].member.rebalance_soon()
        await queue.wait_for_request(RequestCode.HEART_BEAT, beats + 1)
        assert len(consumer.queues) == 2, "not to be known is no reason to stop"


async def test_members_with_by_circle_get_every_other_queue(live_cluster: LiveCluster) -> None:
    topic, group = await live_cluster.topic(), fresh("group")
    consumers = [
        PushConsumer(live_cluster.nameserver, group=group, handler=print, allocation=BY_CIRCLE) for _ in range(2)
    ]
    for consumer in consumers:
        consumer.subscribe(topic)
    async with consumers[0], consumers[1]:
        await until(
            lambda: (
                sorted([queue.queue_id for queue in consumer.queues if queue.topic == topic] for consumer in consumers)
                == [[0, 2], [1, 3]]
            )
        )


async def test_new_queues_of_a_topic_are_consumed_from_their_first_message(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    consumer = PushConsumer(live_cluster.nameserver, group=fresh("group"), handler=collector.put, start="latest")
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
        await live_cluster.instance.call(live_cluster.broker, request)
        await live_cluster.send(topic, b"in the new queue", queue_id=1)
        instance = consumer._running[0]
        async with asyncio.timeout(PATIENCE_S):
            while not collector.messages:
                await instance.routes.find(topic, fresh=True)
                await asyncio.sleep(0.05)
    assert collector.bodies == [b"in the new queue"]


async def test_a_queue_task_that_ended_unexpectedly_is_restarted() -> None:
    queue = ScriptedQueue()
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, print) as consumer:
        await until(lambda: len(consumer.queues) == 2)
        await queue.wait_for_request(
            RequestCode.PULL_MESSAGE, 2
        )  # one of each queue: the next is of the restarted task
        queues = consumer._running[1].member.assigned
        assigned: AssignedQueue = next(item for item in queues.all() if item.queue.topic == TOPIC)
        assigned._tasks.cancel()
        pulls = len(queue.received_of(RequestCode.PULL_MESSAGE))
        consumer._running[1].member.rebalance_soon()
        await queue.wait_for_request(RequestCode.PULL_MESSAGE, pulls + 1)
        assert queues.get(assigned.queue) is not assigned


async def test_a_connection_that_breaks_is_opened_again_and_nothing_is_lost(tmp_path: Path) -> None:
    collector = MessageCollector()
    async with running_cluster(tmp_path) as cluster:
        async with live_cluster_at(cluster.nameserver, cluster.broker.address) as live_cluster:
            topic = await live_cluster.topic(queues=2)
            await live_cluster.send(topic, b"a", b"b")
        consumer = PushConsumer(cluster.nameserver, group="group", handler=collector.put, start="earliest")
        consumer.subscribe(topic)
        async with consumer:
            await collector.until_count(2)
            for connection in list(cluster.broker.parts.clients.group("group").members):  # type: ignore[union-attr]
                connection.abort()
            async with live_cluster_at(cluster.nameserver, cluster.broker.address) as live_cluster:
                await live_cluster.send(topic, b"c", b"d")
            await collector.until_count(4)
    assert sorted(collector.bodies) == [b"a", b"b", b"c", b"d"]
