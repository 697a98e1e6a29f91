"""The lite pull consumer with a real broker: Ariane's, and Apache's if ARIANE_INTEROP=1."""

import asyncio
from typing import Any

import pytest

from ariane.client.consumer.lite_pull import LitePullConsumer
from ariane.client.consumer.message import Received
from ariane.errors import ClientClosed, ClientError
from tests.client.cluster_fixture import PATIENCE_S, LiveCluster, fresh, until


def consumer_of(live_cluster: LiveCluster, **options: Any) -> LitePullConsumer:
    return LitePullConsumer(live_cluster.nameserver, **{"group": fresh("group"), "start": "earliest", **options})


async def take(consumer: LitePullConsumer, count: int) -> list[Received]:
    messages: list[Received] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(messages) < count:
            messages += await consumer.poll()
    return messages


async def test_a_subscriber_iterates_over_all_messages_and_commits_them(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic()
    await live_cluster.send(topic, *(b"%d" % number for number in range(12)))
    bodies = []
    async with consumer_of(live_cluster) as consumer:
        consumer.subscribe(topic)
        async for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 12:
                break
    assert sorted(bodies) == sorted(b"%d" % number for number in range(12))
    assert await live_cluster.committed(consumer.group, topic) == [3, 3, 3, 3]


async def test_a_failing_block_has_not_consumed_its_message(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"a", b"b")
    consumer = consumer_of(live_cluster)

    async def fail_in_the_middle() -> None:
        async with consumer:
            consumer.subscribe(topic)
            async for message in consumer:
                if message.body == b"b":
                    raise ValueError("in the middle of b")

    with pytest.raises(ValueError, match="in the middle of b"):
        await fail_in_the_middle()
    assert await live_cluster.committed(consumer.group, topic) == [1]


async def test_without_auto_commit_only_commit_commits(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"a", b"b", b"c")
    (queue,) = await live_cluster.queues(topic)
    async with consumer_of(live_cluster, auto_commit=False) as consumer:
        consumer.assign([queue])
        assert len(await take(consumer, 3)) == 3
        consumer.seek(queue, 0)
        assert (await consumer.poll(count=2))[-1].body == b"b"
        await consumer.commit()
        assert await consumer.committed(queue) == 2
        assert (await consumer.poll())[0].body == b"c"
    assert await live_cluster.committed(consumer.group, topic) == [2]


async def test_assigned_queues_are_read_and_no_others(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic()
    await live_cluster.send(topic, b"0", b"1", b"2", b"3")
    async with consumer_of(live_cluster) as consumer:
        queues = await consumer.queues(topic)
        consumer.assign(queues[1:3])
        assert sorted(message.body for message in await take(consumer, 2)) == [b"1", b"2"]
        consumer.assign([queues[3]])
        assert [message.body for message in await take(consumer, 1)] == [b"3"]
        assert consumer.assignment == [queues[3]]


async def test_seek_goes_back_forth_to_the_begin_and_to_the_end(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"a", b"b", b"c")
    (queue,) = await live_cluster.queues(topic)
    async with consumer_of(live_cluster) as consumer:
        consumer.assign([queue])
        await take(consumer, 3)
        consumer.seek(queue, 1)
        assert [message.body for message in await take(consumer, 2)] == [b"b", b"c"]
        await consumer.seek_to_begin(queue)
        assert (await take(consumer, 3))[0].body == b"a"
        await consumer.seek_to_end(queue)
        await live_cluster.send(topic, b"d")
        assert [message.body for message in await take(consumer, 1)] == [b"d"]
        assert consumer.position(queue) == 3


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_a_seek_takes_the_group_back(live_cluster: LiveCluster, auto_commit: bool) -> None:
    topic, group = await live_cluster.topic(queues=1), fresh("group")
    await live_cluster.send(topic, b"0", b"1", b"2", b"3")
    (queue,) = await live_cluster.queues(topic)
    consumer = LitePullConsumer(live_cluster.nameserver, group=group, start="earliest", auto_commit=auto_commit)
    consumer.assign([queue])
    async with consumer:
        assert len(await consumer.poll(count=4)) == 4
        await consumer.commit()
        assert await consumer.committed(queue) == 4
        consumer.seek(queue, 1)
        await consumer.commit()
        assert await consumer.committed(queue) == 1


async def test_a_seek_right_after_assign_is_applied(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"a", b"b", b"c")
    (queue,) = await live_cluster.queues(topic)
    async with consumer_of(live_cluster) as consumer:
        consumer.assign([queue])
        consumer.seek(queue, 2)
        assert [message.body for message in await take(consumer, 1)] == [b"c"]


async def test_a_seek_beyond_the_end_is_corrected_by_the_broker(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"a", b"b")
    (queue,) = await live_cluster.queues(topic)
    async with consumer_of(live_cluster) as consumer:
        consumer.assign([queue])
        await take(consumer, 2)
        consumer.seek(queue, 1000)
        await until(lambda: consumer.position(queue) <= 2)
        await live_cluster.send(topic, b"c")
        # Back to the begin with 4.7.1 and with us, on to the end with 4.9; nothing new is missed either way.
        async for message in consumer:
            if message.body == b"c":
                break


async def test_a_paused_queue_delivers_nothing_until_it_is_resumed(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=2)
    async with consumer_of(live_cluster) as consumer:
        quiet, loud = await consumer.queues(topic)
        consumer.assign([quiet, loud])
        await until(lambda: consumer.assignment == [quiet, loud])
        consumer.pause([quiet])
        await live_cluster.send(topic, b"quiet", queue_id=0)
        await live_cluster.send(topic, b"loud", queue_id=1)
        assert [message.body for message in await take(consumer, 1)] == [b"loud"]
        assert await consumer.poll(timeout_s=0.05) == []
        consumer.resume([quiet])
        assert [message.body for message in await take(consumer, 1)] == [b"quiet"]


async def test_each_pull_carries_the_subscription(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"paid", TAGS="paid", price="500")
    await live_cluster.send(topic, b"open", TAGS="open", price="5")
    async with consumer_of(live_cluster) as by_tag, consumer_of(live_cluster) as by_sql:
        by_tag.assign(await by_tag.queues(topic), "open")
        assert [message.body for message in await take(by_tag, 1)] == [b"open"]
        by_sql.assign(await by_sql.queues(topic), sql="price > 100")
        assert [message.body for message in await take(by_sql, 1)] == [b"paid"]


async def test_members_share_queues_and_the_listener_is_called(live_cluster: LiveCluster) -> None:
    topic, group = await live_cluster.topic(), fresh("group")
    notifications: asyncio.Queue[int] = asyncio.Queue()
    first, second = consumer_of(live_cluster, group=group), consumer_of(live_cluster, group=group)
    first.on_queues_changed(lambda _topic, _everything, mine: notifications.put_nowait(len(mine)))
    async with first:
        first.subscribe(topic)
        assert await asyncio.wait_for(notifications.get(), PATIENCE_S) == 4
        async with second:
            second.subscribe(topic)
            assert await asyncio.wait_for(notifications.get(), PATIENCE_S) == 2
        assert await asyncio.wait_for(notifications.get(), PATIENCE_S) == 4


async def test_assign_and_subscribe_exclude_each_other(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic()
    queues = await live_cluster.queues(topic)
    subscriber, assigned = consumer_of(live_cluster), consumer_of(live_cluster)
    subscriber.subscribe(topic)
    with pytest.raises(ClientError, match="shares queues"):
        subscriber.assign(queues)
    assigned.assign(queues)
    with pytest.raises(ClientError, match="manually assigned"):
        assigned.subscribe(topic)


async def test_a_queue_that_is_not_assigned_cannot_be_sought(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic()
    async with consumer_of(live_cluster) as consumer:
        with pytest.raises(ClientError, match="not assigned"):
            consumer.seek((await live_cluster.queues(topic))[0], 0)


async def test_a_closed_consumer_raises_client_closed(live_cluster: LiveCluster) -> None:
    consumer = consumer_of(live_cluster)
    with pytest.raises(ClientClosed, match="not started"):
        await consumer.poll()
    async with consumer:
        pass
    with pytest.raises(ClientClosed, match="closed"):
        await consumer.poll()
