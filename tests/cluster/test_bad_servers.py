"""Wrong ports, nameservers that are down, a broker that is killed: through the public client and real servers."""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.errors import NoRoute, SendFailed, SettingsError
from ariane.model.address import Address
from ariane.nameserver.settings import NameserverSettings
from tests.broker.brokers import running_broker
from tests.client.cluster_fixture import MessageCollector, ariane_cluster, fresh, live_cluster_at
from tests.cluster.error_fixtures import FAST_POLLING, assert_fails, bodies_of, send_with_retries, unused_port
from tests.cluster.processes import ServerProcess, properties, server
from tests.nameserver.servers import nameserver

# --- wrong port -------------------------------------------------------------------------------------------------------


async def test_a_port_without_a_listener_is_named_with_a_hint() -> None:
    with unused_port() as address:
        async with Producer(address, group="senders") as producer:
            words = ("no nameserver answers", address, "start one", "correct the list of nameservers")
            await assert_fails(producer.send("orders", b"x"), NoRoute, *words, retriable=True, exit_status=3)


async def test_a_port_with_another_protocol_is_named() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as web:
        address = "{}:{}".format(*web.sockets[0].getsockname())
        async with Producer(address, group="senders") as producer:
            words = ("no nameserver answers", address, "correct the list of nameservers")
            await assert_fails(producer.send("orders", b"x"), NoRoute, *words, retriable=True, exit_status=3)


async def test_a_broker_port_instead_of_a_nameserver_port_is_reported(tmp_path: Path) -> None:
    async with ariane_cluster(tmp_path) as live_cluster, Producer(live_cluster.broker, group="senders") as producer:
        words = (live_cluster.broker, "is not a nameserver", "correct the list")
        await assert_fails(producer.send("orders", b"x"), NoRoute, *words, retriable=True, exit_status=3)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:0x1", "127.0.0.1:99999", ""])
def test_an_invalid_address_is_refused_immediately(address: str) -> None:
    with pytest.raises(SettingsError, match=r"HOST:PORT.*for example 127\.0\.0\.1:9876") as caught:
        Producer(address, group="senders")
    assert (caught.value.retriable, caught.value.exit_status) == (False, 2)


# --- nameservers ------------------------------------------------------------------------------------------------------


def settings_at(address: str) -> NameserverSettings:
    where = Address.parse(address)
    return NameserverSettings(host=where.host, port=where.port)


async def test_clients_and_brokers_started_before_the_nameserver_find_it_later(tmp_path: Path) -> None:
    collector = MessageCollector()
    async with AsyncExitStack() as stack:
        with unused_port() as address:
            await stack.enter_async_context(running_broker(tmp_path, [address], auto_create_topics=True))
            producer = Producer(address, group="senders", settings=FAST_POLLING)
            consumer = PushConsumer(address, group="readers", handler=collector.put, settings=FAST_POLLING)
            consumer.subscribe("orders")
            await stack.enter_async_context(producer)
            await stack.enter_async_context(consumer)
            words = ("no nameserver answers", "start one")
            await assert_fails(producer.send("orders", b"x"), NoRoute, *words, retriable=True, exit_status=3)
        await stack.enter_async_context(nameserver(settings_at(address)))
        await send_with_retries(producer, "orders", b"in the end")
        await collector.until_count(1)
    assert collector.bodies == [b"in the end"]


async def test_sends_and_consumption_continue_without_the_nameserver_and_new_topics_wait_for_it(
    tmp_path: Path,
) -> None:
    collector = MessageCollector()
    async with AsyncExitStack() as stack:
        async with nameserver() as address:
            broker = await stack.enter_async_context(running_broker(tmp_path, [address], register_interval_s=10))
            async with live_cluster_at(address, broker.address) as live_cluster:
                topic, other = await live_cluster.topic(), await live_cluster.topic()
            producer = Producer(address, group="senders", settings=FAST_POLLING)
            consumer = PushConsumer(
                address, group="readers", start="earliest", handler=collector.put, settings=FAST_POLLING
            )
            consumer.subscribe(topic)
            await stack.enter_async_context(producer)
            await stack.enter_async_context(consumer)
            await producer.send(topic, b"before")
            await collector.until_count(1)
        for number in range(10):
            await producer.send(topic, b"%d" % number)
        await collector.until_count(11)
        await assert_fails(producer.send(other, b"x"), NoRoute, "no nameserver answers", retriable=True, exit_status=3)
        await stack.enter_async_context(nameserver(settings_at(address)))
        await send_with_retries(producer, other, b"after")
        assert await bodies_of(address, other, 1) == [b"after"]
    assert sorted(collector.bodies) == sorted([b"before", *(b"%d" % number for number in range(10))])


# --- a broker that dies -----------------------------------------------------------------------------------------------

SENDERS = 20
ENOUGH = 200


@dataclass
class Outcomes:
    acknowledged: list[bytes] = field(default_factory=list)
    failures: list[SendFailed] = field(default_factory=list)
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def send_until_it_fails(self, producer: Producer, sender: int) -> None:
        for number in count():
            body = b"%d-%d" % (sender, number)
            try:
                await producer.send("orders", body)
            except SendFailed as error:
                self.failures.append(error)
                return
            self.acknowledged.append(body)
            if len(self.acknowledged) == ENOUGH:
                self.enough.set()


async def test_a_broker_killed_during_sends_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    outcomes = Outcomes()
    async with AsyncExitStack() as stack:
        names, broker = await _servers(stack, tmp_path)
        producer = Producer(names.address, group="senders", retries=1, send_timeout_s=2, settings=FAST_POLLING)
        await stack.enter_async_context(producer)
        await send_with_retries(producer, "orders", b"first")
        async with asyncio.TaskGroup() as tasks:
            for sender in range(SENDERS):
                tasks.create_task(outcomes.send_until_it_fails(producer, sender))
            await outcomes.enough.wait()
            await broker.kill()
        await broker.start()
        await send_with_retries(producer, "orders", b"last")
        wanted = {b"first", b"last", *outcomes.acknowledged}
        lost = wanted - await _received(names.address, wanted)
    assert not lost
    assert len(outcomes.failures) == SENDERS
    for failure in outcomes.failures:
        assert (failure.retriable, failure.exit_status) == (True, 3)
        for word in ("broker-a", "It may have been stored nevertheless", "check that the brokers run"):
            assert word in str(failure)


async def _servers(stack: AsyncExitStack, root: Path) -> tuple[ServerProcess, ServerProcess]:
    names = await stack.enter_async_context(server(root / "namesrv.log", "namesrv", "--listen", "127.0.0.1:0"))
    conf = properties(
        root / "broker.conf",
        {
            "brokerName": "broker-a",
            "storePathRootDir": root / "store",
            "mappedFileSizeCommitLog": 16 * 1024 * 1024,
            "autoCreateTopicEnable": "true",
        },
    )
    arguments = ("broker", "-c", str(conf), "-n", names.address, "--listen", "127.0.0.1:0")
    broker = await stack.enter_async_context(server(root / "broker.log", *arguments))
    broker.keep_address()
    return names, broker


async def _received(address: str, expected: set[bytes]) -> set[bytes]:
    """Reads until all of `expected` are there, or until the timeout."""
    collector = MessageCollector()
    consumer = PushConsumer(
        address, group=fresh("readers"), start="earliest", handler=collector.put, settings=FAST_POLLING
    )
    consumer.subscribe("orders")
    async with consumer:
        with suppress(TimeoutError):
            await collector.until(lambda: expected <= set(collector.bodies))
    return set(collector.bodies)
