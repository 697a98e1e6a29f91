"""Requests from brokers and administrators to a running consumer."""

import asyncio
from typing import Any

import pytest

from ariane.client.consumer.lite_pull import LitePullConsumer
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.errors import RequestFailed
from ariane.model.ids import QueueOffset
from ariane.wire.requests.clients import ConsumeDirectly, ConsumeOutcome, GetConsumerConnections, GetRunningInfo
from ariane.wire.requests.offsets import GetConsumerStatus, ResetOffsets
from tests.client.cluster_fixture import PATIENCE_S, LiveCluster, MessageCollector, fresh, until


def consumer_of(live_cluster: LiveCluster, **options: Any) -> PushConsumer:
    return PushConsumer(live_cluster.nameserver, **{"group": fresh("group"), "start": "earliest", **options})


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_reset_repeats_the_messages_and_the_offset_is_stored(live_cluster: LiveCluster, ordered: bool) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    consumer = consumer_of(live_cluster, handler=collector.put, ordered=ordered)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"a", b"b")
    async with consumer:
        await collector.until_count(2)
        await consumer.commit()
        await live_cluster.instance.call(
            live_cluster.broker, ResetOffsets(topic=topic, group=consumer.group, timestamp=1, is_force=True)
        )
        await collector.until_count(4)
    assert collector.bodies == [b"a", b"b", b"a", b"b"]
    assert await live_cluster.committed(consumer.group, topic) == [2]


async def test_a_reset_drops_pending_messages(live_cluster: LiveCluster) -> None:
    topic, collector, may_finish = await live_cluster.topic(queues=1), MessageCollector(), asyncio.Event()

    async def handle(message: Received) -> bool:
        collector.put(message)
        if len(collector.messages) == 2:
            await may_finish.wait()
            return False
        return True

    consumer = consumer_of(live_cluster, handler=handle, max_concurrency=1)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"a", b"b")
    async with consumer:
        await collector.until_count(2)
        await consumer.commit()
        reset = ResetOffsets(topic=topic, group=consumer.group, timestamp=1, is_force=True)
        await live_cluster.instance.call(live_cluster.broker, reset)
        await until(lambda: list(consumer._running[1].offsets.of(topic).values()) == [0])
        may_finish.set()
        await collector.until_count(4)
    assert collector.bodies == [b"a", b"b", b"a", b"b"], (
        "and not a fifth time: what failed before the reset is not sent back"
    )
    assert all(message.attempt == 1 for message in collector.messages)


async def test_the_status_has_the_offsets(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    consumer = consumer_of(live_cluster, handler=collector.put)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"a")
    async with consumer:
        await collector.until_count(1)
        await consumer.commit()
        response = await live_cluster.instance.call(live_cluster.broker, GetConsumerStatus(topic, consumer.group))
        (queue,) = await live_cluster.queues(topic)
        assert response.body.consumer_table[consumer.client_id] == {queue: QueueOffset(1)}


async def test_running_info_has_queues_subscriptions_and_counts(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    consumer = consumer_of(live_cluster, handler=collector.put, ordered=True)
    consumer.subscribe(topic, "paid")
    await live_cluster.send(topic, b"a", TAGS="paid")
    async with consumer:
        await collector.until_count(1)
        response = await live_cluster.instance.call(
            live_cluster.broker, GetRunningInfo(consumer.group, consumer.client_id)
        )
    info = response.body
    (queue,) = await live_cluster.queues(topic)
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert {item.topic: item.sub_string for item in info.subscription_set}[topic] == "paid"
    assert info.mq_table[queue].locked
    assert info.mq_table[queue].last_pull_timestamp > 0
    assert topic in info.status_table


async def test_a_message_can_be_consumed_directly(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()

    async def handle(message: Received) -> None:
        collector.put(message)
        if len(collector.messages) > 2:
            raise ValueError("enough")

    consumer = consumer_of(live_cluster, handler=handle)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"a")
    async with consumer:
        await collector.until_count(1)
        request = ConsumeDirectly(consumer.group, consumer.client_id, collector.messages[0].offset_message_id)
        done = (await live_cluster.instance.call(live_cluster.broker, request)).body
        failed = (await live_cluster.instance.call(live_cluster.broker, request)).body
    assert collector.bodies == [b"a", b"a", b"a"]
    assert (done.consume_result, done.order) == (ConsumeOutcome.CR_SUCCESS, False)
    assert failed.consume_result is ConsumeOutcome.CR_THROW_EXCEPTION
    assert "enough" in str(failed.remark)


async def test_a_pull_consumer_has_no_handler_to_call(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"a")
    async with LitePullConsumer(live_cluster.nameserver, group=fresh("group"), start="earliest") as consumer:
        consumer.subscribe(topic)
        (message,) = await consumer.poll(timeout_s=PATIENCE_S)
        request = ConsumeDirectly(consumer.group, consumer.client_id, message.offset_message_id)
        with pytest.raises(RequestFailed, match="no handler"):
            await live_cluster.instance.call(live_cluster.broker, request)


async def test_a_consumer_that_has_left_is_not_listed_any_more(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    consumer = consumer_of(live_cluster, handler=print)
    consumer.subscribe(topic)
    request = GetConsumerConnections(consumer.group)
    async with consumer:
        listed = (await live_cluster.instance.call(live_cluster.broker, request)).body.connection_set
        assert [connection.client_id for connection in listed] == [consumer.client_id]
    with pytest.raises(RequestFailed):
        await live_cluster.instance.call(live_cluster.broker, request)
