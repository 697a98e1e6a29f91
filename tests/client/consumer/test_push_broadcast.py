"""Broadcasting: every consumer gets every message and stores its own offsets in a file."""

from pathlib import Path
from typing import Any

from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.client.settings import ClientSettings
from tests.client.cluster_fixture import LiveCluster, MessageCollector, fresh


def consumer_of(live_cluster: LiveCluster, tmp_path: Path, **options: Any) -> PushConsumer:
    options = {"start": "earliest", "model": "broadcasting", "offsets_root": tmp_path, **options}
    return PushConsumer(live_cluster.nameserver, **options)


async def test_every_member_gets_every_message(live_cluster: LiveCluster, tmp_path: Path) -> None:
    topic, group = await live_cluster.topic(), fresh("group")
    first_collector, second_collector = MessageCollector(), MessageCollector()
    first = consumer_of(live_cluster, tmp_path / "one", group=group, handler=first_collector.put)
    second = consumer_of(live_cluster, tmp_path / "other", group=group, handler=second_collector.put)
    for consumer in (first, second):
        consumer.subscribe(topic)
    await live_cluster.send(topic, b"a", b"b", b"c", b"d")
    async with first, second:
        await first_collector.until_count(4)
        await second_collector.until_count(4)
    assert sorted(first_collector.bodies) == sorted(second_collector.bodies) == [b"a", b"b", b"c", b"d"]


async def test_offsets_are_in_a_file_and_the_next_process_continues_there(
    live_cluster: LiveCluster, tmp_path: Path
) -> None:
    topic, group, collector = await live_cluster.topic(queues=1), fresh("group"), MessageCollector()
    for round_ in (b"first", b"second"):
        consumer = consumer_of(
            live_cluster, tmp_path, group=group, handler=collector.put, settings=ClientSettings(instance_name="till-1")
        )
        consumer.subscribe(topic)
        await live_cluster.send(topic, round_)
        async with consumer:
            await collector.until(lambda wanted=round_: wanted in collector.bodies)  # type: ignore[misc]
            client_id = consumer.client_id
    assert collector.bodies == [b"first", b"second"]
    assert (tmp_path / client_id / group / "offsets.json").exists()


async def test_a_failed_message_is_dropped_in_broadcasting(live_cluster: LiveCluster, tmp_path: Path) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()

    async def refuse(message: Received) -> None:
        collector.put(message)
        raise ValueError("never")

    consumer = consumer_of(live_cluster, tmp_path, group=fresh("group"), handler=refuse)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"a", b"b")
    async with consumer:
        await collector.until_count(2)
    assert consumer.counts[topic].failed == 2
    assert all(queue.topic == topic for queue in await live_cluster.queues(topic))
