"""Topics and groups that come into being by being used: durable before the response, and not too many at once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ariane.client.producer.producer import Producer
from ariane.errors import RequestFailed
from ariane.model.address import Address
from ariane.model.ids import QueueOffset
from ariane.rpc.caller import Caller
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.frame import encode_frame
from ariane.wire.record.read import decode
from ariane.wire.requests.clients import ConsumerData, Heartbeat, HeartbeatData
from ariane.wire.requests.offsets import UpdateConsumerOffset
from tests.broker.brokers import RunningBroker, running_broker, running_cluster
from tests.broker.test_server import message
from tests.nameserver.servers import caller


def topics_on_disk(broker: RunningBroker) -> set[str]:
    path = broker.settings.store.root / "config" / "topics.json"
    return set(json.loads(path.read_text())["topicConfigTable"]) if path.exists() else set()


async def create(calls: Caller, broker: RunningBroker, count: int) -> list[int]:
    """The codes of sends to so many new topics, one after the other."""
    codes = []
    for number in range(count):
        try:
            await calls.call(broker.address, message(topic=f"new-{number}"))
            codes.append(int(ResponseCode.SUCCESS))
        except RequestFailed as error:
            codes.append(error.code)
    return codes


async def test_a_topic_that_a_send_creates_is_on_the_disk_before_the_response(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_topics=True) as broker, caller() as calls:
        await calls.call(broker.address, message(topic="fresh"))
        assert "fresh" in topics_on_disk(broker)


async def test_one_way_sends_to_a_new_topic_are_stored_in_order_although_the_client_hangs_up(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_topics=True) as broker:
        sends = [message(topic="fresh", queue_id=0, body=b"%d" % number) for number in range(20)]
        store, are_stored = broker.parts.store.store, asyncio.Event()

        def on_arrival(topic: str, queue_id: int, end: int, tags_code: int) -> None:
            if end == len(sends):
                are_stored.set()

        store.components.dispatcher.on_arrival(on_arrival, topic="fresh")
        address = Address.parse(broker.address)
        _, writer = await asyncio.open_connection(address.host, address.port)
        frames = [encode_frame(request_command(send, opaque=1 + n, oneway=True)) for n, send in enumerate(sends)]
        for frame in frames:
            writer.write(frame)
            await writer.drain()
            await asyncio.sleep(0)  # some come while the table is being saved
        writer.close()
        async with asyncio.timeout(10):
            await are_stored.wait()
        stored = store.reader.read("fresh", 0, 0, 100).slices
        assert [decode(record).body for record in stored] == [send.body for send in sends]


async def test_many_new_topics_are_saved_together(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_topics=True) as broker, caller() as calls:
        path = broker.settings.store.root / "config" / "topics.json"
        sends = [calls.call(broker.address, message(topic=f"new-{number}")) for number in range(100)]
        await asyncio.gather(*sends)
        assert {f"new-{number}" for number in range(100)} <= topics_on_disk(broker)
        assert json.loads(path.read_text())["dataVersion"]["counter"] >= 100  # a change each


async def test_a_send_to_a_topic_that_cannot_be_saved_is_refused_and_not_stored(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_topics=True) as broker, caller() as calls:
        config = broker.settings.store.root / "config"
        config.rename(config.with_name("away"))
        config.write_text("not a directory")
        with pytest.raises(RequestFailed, match="cannot be saved"):
            await calls.call(broker.address, message(topic="fresh"))
        assert broker.parts.store.store.components.queues.of_topic("fresh") == {}
        config.unlink()
        config.with_name("away").rename(config)
        await calls.call(broker.address, message(topic="fresh"))
        assert "fresh" in topics_on_disk(broker)


async def test_one_connection_creates_only_so_many_topics(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"auto_create_topics": True, "auto_create_rate": 0.5}
    async with running_broker(tmp_path, **limits) as broker, caller() as one, caller() as other:
        codes = await create(one, broker, 12)
        assert codes[:5] == [ResponseCode.SUCCESS] * 5
        assert codes[-1] == ResponseCode.SYSTEM_BUSY
        await one.call(broker.address, message(topic="new-0"))  # an existing topic is open
        await other.call(broker.address, message(topic="of-another-connection"))


async def test_a_heartbeat_with_too_many_new_groups_is_to_come_again(tmp_path: Path) -> None:
    beat = Heartbeat(
        body=HeartbeatData(
            client_id="c", consumer_data_set=[ConsumerData(group_name=f"g{number}") for number in range(30)]
        )
    )
    async with running_broker(tmp_path, auto_create_rate=1.0) as broker, caller() as calls:
        with pytest.raises(RequestFailed) as caught:
            await calls.call(broker.address, beat)
        assert caught.value.code == ResponseCode.SYSTEM_BUSY
        assert "auto_create_rate" in caught.value.remark
        created = [f"g{number}" for number in range(30) if broker.parts.groups.get(f"g{number}") is not None]
        assert 10 <= len(created) < 30
        assert len(broker.parts.clients.groups()) == 30  # it is a member of all


async def test_offsets_of_invented_groups_count_too(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"auto_create_topics": True, "auto_create_rate": 0.5}
    async with running_broker(tmp_path, **limits) as broker, caller() as calls:
        await calls.call(broker.address, message(topic="orders"))
        refused = []
        for number in range(20):
            commit = UpdateConsumerOffset(
                consumer_group=f"invented-{number}", topic="orders", queue_id=0, commit_offset=QueueOffset(1)
            )
            try:
                await calls.call(broker.address, commit)
            except RequestFailed as error:
                refused.append(error.code)
        assert len(refused) >= 10
        assert set(refused) == {ResponseCode.SYSTEM_BUSY}


async def test_a_producer_waits_for_its_new_topics(tmp_path: Path) -> None:
    """SYSTEM_BUSY is retried: a job that writes to many new topics is slowed down and not failed."""
    limits: dict[str, Any] = {"auto_create_topics": True, "auto_create_rate": 4.0}
    async with running_cluster(tmp_path, **limits) as cluster, Producer(cluster.nameserver, group="g") as producer:
        for number in range(42):
            await producer.send(f"new-{number}", b"x")
