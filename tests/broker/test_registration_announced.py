"""An administrator's change of a topic is answered when the nameservers have it."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from ariane.errors import RequestFailed
from ariane.model.topic import AUTO_CREATE_TEMPLATE
from ariane.rpc.caller import Caller
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.brokers import UpdateBrokerSettings
from ariane.wire.requests.topics import DeleteTopicInBroker, DeleteTopicInNameserver, GetRoute, UpdateTopic
from tests.broker.brokers import running_broker
from tests.cluster.processes import properties, server
from tests.nameserver.servers import caller, nameserver, nameserver_process
from tests.transport.peers import until

TOPICS = 60


def create(topic: str, queues: int = 4, perm: int = 6) -> UpdateTopic:
    return UpdateTopic(
        topic=topic,
        default_topic=AUTO_CREATE_TEMPLATE,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
    )


async def has_route(client: Caller, nameserver_address: str, topic: str) -> bool:
    try:
        await client.call(nameserver_address, GetRoute(topic))
    except RequestFailed as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return False
    return True


async def failures(client: Caller, broker: str, nameservers: list[str], topics: int = TOPICS) -> int:
    """Creates topics, asks each nameserver for the route immediately, and counts the routes that are missing."""
    missing = 0
    for number in range(topics):
        await client.call(broker, create(f"topic-{number}"))
        for address in nameservers:
            missing += not await has_route(client, address, f"topic-{number}")
    return missing


@pytest.mark.parametrize("forced", [True, False])
async def test_a_created_topic_has_a_route_at_every_nameserver_when_the_response_arrives(
    tmp_path: Path, forced: bool
) -> None:
    conf = properties(tmp_path / "broker.conf", {"brokerName": "broker-a", "forceRegister": str(forced).lower()})
    listen, store = ("--listen", "127.0.0.1:0"), ("--store", str(tmp_path / "store"))
    with nameserver_process() as (_, first), nameserver_process() as (_, second):
        arguments = ("broker", "-c", str(conf), "-n", f"{first};{second}", *listen, *store)
        async with server(tmp_path / "broker.log", *arguments) as broker, caller() as client:
            assert await failures(client, broker.address, [first, second]) == 0


async def test_changed_queues_and_permissions_are_in_the_route_when_the_response_arrives(tmp_path: Path) -> None:
    with nameserver_process() as (_, address):
        async with running_broker(tmp_path, [address]) as broker, caller() as client:
            for queues in (4, 8, 2) * 5:
                await client.call(broker.address, create("orders", queues))
                route = (await client.call(address, GetRoute("orders"))).body
                assert route.queue_datas[0].write_queue_nums == queues
            for perm in (4, 6) * 5:
                await client.call(broker.address, UpdateBrokerSettings(body=f"brokerPermission={perm}"))
                route = (await client.call(address, GetRoute("orders"))).body
                assert route.queue_datas[0].perm == perm


async def test_a_topic_deleted_at_broker_and_nameserver_does_not_return(tmp_path: Path) -> None:
    """Nothing that still has the topic is on its way to the nameserver when the broker has answered."""
    with nameserver_process() as (_, address):
        async with running_broker(tmp_path, [address]) as broker, caller() as client:
            for number in range(20):
                topic = f"topic-{number}"
                await client.call(broker.address, create(topic))
                await client.call(broker.address, DeleteTopicInBroker(topic))
                await client.call(address, DeleteTopicInNameserver(topic))
            await client.call(broker.address, create("last"))  # its registration is the last one
            assert [n for n in range(20) if await has_route(client, address, f"topic-{n}")] == []


async def test_a_nameserver_that_is_down_neither_fails_nor_delays_a_topic(tmp_path: Path) -> None:
    down = "127.0.0.1:1"
    async with (
        nameserver() as alive,
        running_broker(tmp_path, [down, alive], announce_timeout_s=60.0) as broker,
        caller() as client,
    ):
        began = time.monotonic()
        assert await failures(client, broker.address, [alive], topics=5) == 0
        assert time.monotonic() - began < 60


async def test_a_nameserver_that_stopped_responding_delays_a_topic_by_the_timeout_only(tmp_path: Path) -> None:
    with nameserver_process() as (process, frozen):
        async with (
            nameserver() as alive,
            running_broker(tmp_path, [frozen, alive], announce_timeout_s=0.2, register_timeout_s=30.0) as broker,
            caller() as client,
        ):
            assert await failures(client, broker.address, [frozen, alive], topics=2) == 0
            os.kill(process.pid, signal.SIGSTOP)
            began = time.monotonic()
            await client.call(broker.address, create("while-frozen"), 20.0)
            assert time.monotonic() - began < 20
            assert await has_route(client, alive, "while-frozen")
            os.kill(process.pid, signal.SIGCONT)


async def test_a_stop_does_not_wait_for_a_nameserver_that_stopped_responding(tmp_path: Path) -> None:
    with nameserver_process() as (process, frozen):
        async with caller() as client, asyncio.TaskGroup() as group:
            settings = {"announce_timeout_s": 60.0, "register_timeout_s": 60.0}
            async with running_broker(tmp_path, [frozen], None, **settings) as broker:
                os.kill(process.pid, signal.SIGSTOP)
                change = group.create_task(client.call(broker.address, create("orders"), 60.0))
                await until(lambda: broker.parts.topics.get("orders") is not None)
                began = time.monotonic()
            assert time.monotonic() - began < 30
            await change


async def test_a_nameserver_that_is_killed_does_not_fail_a_topic(tmp_path: Path) -> None:
    with nameserver_process() as (process, first):
        async with nameserver() as second, running_broker(tmp_path, [first, second]) as broker, caller() as client:
            process.kill()
            assert await failures(client, broker.address, [second], topics=5) == 0


async def test_a_broker_without_nameservers_answers_immediately(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        await client.call(broker.address, create("orders"))
        assert broker.parts.topics.get("orders") is not None
