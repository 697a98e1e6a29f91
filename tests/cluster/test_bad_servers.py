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
from tests.client.cluster_fixture import Basket, fresh, ground_at, our_ground
from tests.cluster.error_fixtures import IMPATIENT, bodies_of, deaf_port, refused, sent_in_the_end
from tests.cluster.processes import ServerProcess, properties, server
from tests.nameserver.servers import nameserver

# --- wrong port -------------------------------------------------------------------------------------------------------


async def test_a_port_at_which_nobody_listens_is_named_with_the_cure() -> None:
    with deaf_port() as address:
        async with Producer(address, group="senders") as producer:
            words = ("no nameserver answers", address, "start one", "correct the list of nameservers")
            await refused(producer.send("orders", b"x"), NoRoute, *words, retriable=True, exit_status=3)


async def test_a_port_that_speaks_something_else_is_named_too() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as web:
        address = "{}:{}".format(*web.sockets[0].getsockname())
        async with Producer(address, group="senders") as producer:
            words = ("no nameserver answers", address, "correct the list of nameservers")
            await refused(producer.send("orders", b"x"), NoRoute, *words, retriable=True, exit_status=3)


async def test_a_brokers_port_in_place_of_a_nameservers_is_told_as_such(tmp_path: Path) -> None:
    async with our_ground(tmp_path) as ground, Producer(ground.broker, group="senders") as producer:
        words = (ground.broker, "is not a nameserver", "correct the list")
        await refused(producer.send("orders", b"x"), NoRoute, *words, retriable=True, exit_status=3)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:0x1", "127.0.0.1:99999", ""])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(SettingsError, match=r"HOST:PORT.*for example 127\.0\.0\.1:9876") as caught:
        Producer(address, group="senders")
    assert (caught.value.retriable, caught.value.exit_status) == (False, 2)


# --- nameservers ------------------------------------------------------------------------------------------------------


def settings_at(address: str) -> NameserverSettings:
    where = Address.parse(address)
    return NameserverSettings(host=where.host, port=where.port)


async def test_clients_and_broker_that_start_before_the_nameserver_find_it_when_it_comes(tmp_path: Path) -> None:
    basket = Basket()
    async with AsyncExitStack() as stack:
        with deaf_port() as address:
            await stack.enter_async_context(running_broker(tmp_path, [address], auto_create_topics=True))
            producer = Producer(address, group="senders", settings=IMPATIENT)
            consumer = PushConsumer(address, group="readers", handler=basket.put, settings=IMPATIENT)
            consumer.subscribe("orders")
            await stack.enter_async_context(producer)
            await stack.enter_async_context(consumer)
            words = ("no nameserver answers", "start one")
            await refused(producer.send("orders", b"x"), NoRoute, *words, retriable=True, exit_status=3)
        await stack.enter_async_context(nameserver(settings_at(address)))
        await sent_in_the_end(producer, "orders", b"in the end")
        await basket.until_count(1)
    assert basket.bodies == [b"in the end"]


async def test_sends_and_consumption_go_on_without_the_nameserver_and_new_topics_wait_for_its_return(
    tmp_path: Path,
) -> None:
    basket = Basket()
    async with AsyncExitStack() as stack:
        async with nameserver() as address:
            broker = await stack.enter_async_context(running_broker(tmp_path, [address], register_interval_s=10))
            async with ground_at(address, broker.address) as ground:
                topic, other = await ground.topic(), await ground.topic()
            producer = Producer(address, group="senders", settings=IMPATIENT)
            consumer = PushConsumer(address, group="readers", start="earliest", handler=basket.put, settings=IMPATIENT)
            consumer.subscribe(topic)
            await stack.enter_async_context(producer)
            await stack.enter_async_context(consumer)
            await producer.send(topic, b"before")
            await basket.until_count(1)
        for number in range(10):
            await producer.send(topic, b"%d" % number)
        await basket.until_count(11)
        await refused(producer.send(other, b"x"), NoRoute, "no nameserver answers", retriable=True, exit_status=3)
        await stack.enter_async_context(nameserver(settings_at(address)))
        await sent_in_the_end(producer, other, b"after")
        assert await bodies_of(address, other, 1) == [b"after"]
    assert sorted(basket.bodies) == sorted([b"before", *(b"%d" % number for number in range(10))])


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
        producer = Producer(names.address, group="senders", retries=1, send_timeout_s=2, settings=IMPATIENT)
        await stack.enter_async_context(producer)
        await sent_in_the_end(producer, "orders", b"first")
        async with asyncio.TaskGroup() as tasks:
            for sender in range(SENDERS):
                tasks.create_task(outcomes.send_until_it_fails(producer, sender))
            await outcomes.enough.wait()
            await broker.kill()
        await broker.start()
        await sent_in_the_end(producer, "orders", b"last")
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


async def _received(address: str, wanted: set[bytes]) -> set[bytes]:
    """All that `wanted` asks for, or what there is when it does not come."""
    basket = Basket()
    consumer = PushConsumer(address, group=fresh("readers"), start="earliest", handler=basket.put, settings=IMPATIENT)
    consumer.subscribe("orders")
    async with consumer:
        with suppress(TimeoutError):
            await basket.until(lambda: wanted <= set(basket.bodies))
    return set(basket.bodies)
