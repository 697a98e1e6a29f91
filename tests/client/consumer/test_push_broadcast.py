"""Broadcasting: every consumer gets every message and keeps its own offsets in a file."""

from pathlib import Path
from typing import Any

from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.client.settings import ClientSettings
from tests.client.cluster_fixture import Basket, Ground, fresh


def consumer_of(ground: Ground, tmp_path: Path, **options: Any) -> PushConsumer:
    options = {"start": "earliest", "model": "broadcasting", "offsets_root": tmp_path, **options}
    return PushConsumer(ground.nameserver, **options)


async def test_every_member_gets_every_message(ground: Ground, tmp_path: Path) -> None:
    topic, group = await ground.topic(), fresh("group")
    one, other = Basket(), Basket()
    first = consumer_of(ground, tmp_path / "one", group=group, handler=one.put)
    second = consumer_of(ground, tmp_path / "other", group=group, handler=other.put)
    for consumer in (first, second):
        consumer.subscribe(topic)
    await ground.send(topic, b"a", b"b", b"c", b"d")
    async with first, second:
        await one.until_count(4)
        await other.until_count(4)
    assert sorted(one.bodies) == sorted(other.bodies) == [b"a", b"b", b"c", b"d"]


async def test_offsets_live_in_a_file_and_the_next_process_goes_on_there(ground: Ground, tmp_path: Path) -> None:
    topic, group, basket = await ground.topic(queues=1), fresh("group"), Basket()
    for round_ in (b"first", b"second"):
        consumer = consumer_of(
            ground, tmp_path, group=group, handler=basket.put, settings=ClientSettings(instance_name="till-1")
        )
        consumer.subscribe(topic)
        await ground.send(topic, round_)
        async with consumer:
            await basket.until(lambda wanted=round_: wanted in basket.bodies)  # type: ignore[misc]
            client_id = consumer.client_id
    assert basket.bodies == [b"first", b"second"]
    assert (tmp_path / client_id / group / "offsets.json").exists()


async def test_what_fails_is_dropped_because_nobody_else_could_be_given_it(ground: Ground, tmp_path: Path) -> None:
    topic, basket = await ground.topic(queues=1), Basket()

    async def refuse(message: Received) -> None:
        basket.put(message)
        raise ValueError("never")

    consumer = consumer_of(ground, tmp_path, group=fresh("group"), handler=refuse)
    consumer.subscribe(topic)
    await ground.send(topic, b"a", b"b")
    async with consumer:
        await basket.until_count(2)
    assert consumer.counts[topic].failed == 2
    assert all(queue.topic == topic for queue in await ground.queues(topic))
