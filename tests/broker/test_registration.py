"""Registration with real nameservers that start, stop and restart."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.registration import Registration
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.lifecycle import background
from ariane.model.address import Address
from ariane.model.route import TopicRoute
from ariane.model.topic import TopicConfig
from ariane.nameserver.settings import NameserverSettings
from ariane.rpc.caller import Caller
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.brokers import PutKeyValue, UpdateBrokerSettings
from ariane.wire.requests.topics import GetRoute
from tests.broker.brokers import running_broker
from tests.nameserver.servers import caller, nameserver
from tests.transport.peers import until

ORDERS = TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4)


async def route(client: Caller, address: str, topic: str = "orders") -> TopicRoute | None:
    try:
        return (await client.call(address, GetRoute(topic))).body
    except RequestFailed as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return None


async def until_routed(
    client: Caller, address: str, topic: str = "orders", like: Callable[[TopicRoute], bool] = lambda found: True
) -> TopicRoute:
    """Polls until the nameserver has the route: there is no event to wait for."""
    async with asyncio.timeout(20):
        while True:
            found = await route(client, address, topic)
            if found is not None and like(found):
                return found
            await asyncio.sleep(0.005)


@asynccontextmanager
async def registered(*nameservers: str, **settings: Any) -> AsyncIterator[tuple[Topics, Registration]]:
    """A registration without the rest of a broker."""
    settings_ = BrokerSettings(name="broker-a", namesrv_addr=";".join(nameservers), **settings)
    topics = Topics(settings_, None, Clock())
    topics.put(ORDERS)
    async with Registration.open(settings_, topics, Clock()) as registration:
        yield topics, registration


async def test_a_broker_that_is_ready_is_known_to_every_nameserver() -> None:
    async with nameserver() as first, nameserver() as second, caller() as client:
        async with registered(first, second) as (_, registration):
            assert registration.registered == [first, second]
            for address in (first, second):
                found = await route(client, address)
                assert found is not None
                assert found.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}
                assert found.queue_datas[0].write_queue_nums == 4


async def test_a_topic_change_is_registered_immediately() -> None:
    async with nameserver() as address, caller() as client, registered(address) as (topics, _):
        topics.put(TopicConfig(topic_name="new", read_queue_nums=2, write_queue_nums=2))
        assert (await until_routed(client, address, "new")).queue_datas[0].read_queue_nums == 2


async def test_a_clean_stop_takes_the_broker_out_of_the_routes() -> None:
    async with nameserver() as address, caller() as client:
        async with registered(address):
            assert await route(client, address) is not None
        assert await route(client, address) is None


async def test_a_stop_is_not_followed_by_another_registration(caplog: pytest.LogCaptureFixture) -> None:
    """A slave that has lost its master registers again and again, to hear of a new one."""

    async def lose_masters(registration: Registration) -> None:
        while True:
            registration.make_due()
            await asyncio.sleep(0)

    async with nameserver() as address, caller() as client:
        for _ in range(10):
            async with AsyncExitStack() as losing:
                async with registered(address, force_register=True) as (_, registration):
                    await losing.enter_async_context(background(partial(lose_masters, registration)))
                assert await route(client, address) is None
    assert not [record for record in caplog.records if "broker dropped" in record.message]


async def test_a_nameserver_that_is_down_does_not_delay_others_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ariane.broker.registration")
    async with nameserver() as address, caller() as client:
        async with registered("127.0.0.1:1", address) as (topics, registration):
            assert registration.registered == [address]
            topics.put(TopicConfig(topic_name="new"))
            await until_routed(client, address, "new")
    settings_ = [record for record in caplog.records if "registration failed" in record.message]
    assert [vars(record)["nameserver"] for record in settings_] == ["127.0.0.1:1"]


async def test_the_broker_registers_again_at_a_restarted_nameserver() -> None:
    async with caller() as client:
        async with nameserver() as address:
            port = Address.parse(address).port
            opened = registered(address)
            topics, registration = await opened.__aenter__()
            assert await route(client, address) is not None
        await until(lambda: not registration.registered)
        topics.put(TopicConfig(topic_name="meanwhile"))
        async with nameserver(NameserverSettings(port=port)) as again:
            await until_routed(client, again)
            await until_routed(client, again, "meanwhile")
            await opened.__aexit__(None, None, None)
            assert await route(client, again) is None


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("forced", [False, True])
async def test_both_table_formats_and_both_registration_modes_work(compressed: bool, forced: bool) -> None:
    async with (
        nameserver() as address,
        caller() as client,
        registered(address, compressed_register=compressed, force_register=forced) as (topics, registration),
    ):
        registration.make_due()
        topics.put(TopicConfig(topic_name="new"))
        await until_routed(client, address, "new")


async def test_a_read_only_broker_registers_no_writable_topic() -> None:
    async with nameserver() as address, caller() as client, registered(address, permission=4):
        found = await route(client, address)
        assert found is not None
        assert found.queue_datas[0].perm == 4


async def test_a_permission_changed_while_it_runs_reaches_the_routes(tmp_path: Path) -> None:
    async with nameserver() as address, caller() as client, running_broker(tmp_path, [address]) as broker:
        broker.parts.topics.put(ORDERS)
        await until_routed(client, address)
        await client.call(broker.address, UpdateBrokerSettings(body="brokerPermission=4"))
        await until_routed(client, address, like=lambda found: found.queue_datas[0].perm == 4)


async def test_the_nameserver_decides_which_topics_are_ordered() -> None:
    async with nameserver() as address, caller() as client:
        await client.call(address, PutKeyValue("ORDER_TOPIC_CONFIG", "orders", "broker-a:4"))
        async with registered(address) as (topics, _):
            await until(lambda: topics.all()["orders"].order)
