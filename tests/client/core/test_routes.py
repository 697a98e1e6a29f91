"""The route cache: fetching, refreshing, and nameservers that fail."""

import asyncio

from ariane.client.core.instance import Instance
from ariane.client.core.routes import SilentBrokers
from ariane.client.settings import ClientSettings
from ariane.errors import NoRoute
from ariane.model.route import TopicRoute
from ariane.model.topic import TopicConfig
from ariane.testing import FakeClock
from ariane.wire.requests.topics import DeleteTopicInNameserver
from interop.processes import free_port
from tests.client.scripted_broker import cluster, register
from tests.nameserver.servers import caller, nameserver, nameserver_process, registration, with_settings

UNUSED_ADDRESS = "127.0.0.1:1"


async def test_a_route_has_brokers_and_queues() -> None:
    async with (
        cluster("T", brokers=2) as servers,
        Instance.open(ClientSettings(nameservers=servers.nameserver)) as instance,
    ):
        route = await instance.routes.route("T")
        assert sorted(data.broker_name for data in route.broker_datas) == ["broker-a", "broker-b"]
        assert instance.routes.master_of("broker-a") == servers.brokers[0].address
        assert instance.routes.address_of("broker-b", 0) == (servers.brokers[1].address, 0)
        assert instance.routes.address_of("broker-b", 1) == (servers.brokers[1].address, 0)
        assert instance.routes.master_of("broker-z") is None
        assert instance.routes.address_of("broker-z", 0) is None


async def test_the_error_for_a_missing_topic_has_a_hint_and_similar_names() -> None:
    async with cluster("orders", "payments") as servers:
        async with Instance.open(ClientSettings(nameservers=servers.nameserver)) as instance:
            error = await _failure(instance, "order")
    assert f"no route for topic order at {servers.nameserver}" in error
    assert f"`ariane topic create order -n {servers.nameserver}`" in error
    assert "autoCreateTopicEnable" in error
    assert "similar topics: orders" in error


async def _failure(instance: Instance, topic: str) -> str:
    try:
        await instance.routes.route(topic)
    except NoRoute as error:
        return str(error)
    raise AssertionError("a route was found")


async def test_without_any_nameserver_the_error_names_each_of_them() -> None:
    async with Instance.open(ClientSettings(nameservers=UNUSED_ADDRESS)) as instance:
        error = await _failure(instance, "T")
    assert f"cannot connect to {UNUSED_ADDRESS}" in error
    assert "ariane up" in error


async def test_the_next_nameserver_is_used_when_one_is_down() -> None:
    async with cluster("T") as servers:
        for order in (f"{UNUSED_ADDRESS};{servers.nameserver}", f"{servers.nameserver};{UNUSED_ADDRESS}"):
            async with Instance.open(ClientSettings(nameservers=order)) as instance:
                assert (await instance.routes.route("T")).broker_datas


async def test_a_nameserver_that_starts_later_is_found() -> None:
    port = free_port()
    async with Instance.open(ClientSettings(nameservers=f"127.0.0.1:{port}")) as instance:
        assert "no nameserver answers" in await _failure(instance, "T")
        async with nameserver(with_settings(port=port)) as names, caller() as calls, cluster() as servers:
            await register(calls, names, servers.broker, "T")
            async with asyncio.timeout(10):
                # Connections are tried again after a growing pause, which nothing announces the end of.
                while "no nameserver answers" in await _failure_or_route(instance, "T"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert instance.routes.cached("T") is not None


async def _failure_or_route(instance: Instance, topic: str) -> str:
    try:
        return str(await instance.routes.route(topic))
    except NoRoute as error:
        return str(error)


async def test_routes_are_kept_while_the_nameservers_are_down() -> None:
    with nameserver_process() as (process, names):
        async with caller() as calls, Instance.open(ClientSettings(nameservers=names)) as instance:
            async with cluster("other") as servers:
                await register(calls, names, servers.broker, "T")
                known = await instance.routes.route("T")
                process.kill()
                process.wait()
                await instance.routes.refresh()
                assert await instance.routes.route("T") == known
                assert instance.routes.master_of("broker-a") == servers.broker.address


async def test_a_route_is_kept_when_the_nameserver_forgets_the_topic() -> None:
    async with cluster("T", "U") as servers, Instance.open(ClientSettings(nameservers=servers.nameserver)) as instance:
        known = await instance.routes.route("T")
        await instance.call(servers.nameserver, DeleteTopicInNameserver("T"))
        assert await instance.routes.route("T", fresh=True) == known


async def test_a_kept_route_does_not_hide_the_new_master_that_another_topic_names() -> None:
    async with (
        cluster("A", "Z") as servers,
        caller() as calls,
        Instance.open(ClientSettings(nameservers=servers.nameserver)) as instance,
    ):
        for topic in ("A", "Z"):
            await instance.routes.route(topic)
        await calls.call(servers.nameserver, DeleteTopicInNameserver("Z"))
        await calls.call(
            servers.nameserver,
            registration(TopicConfig(topic_name="A"), broker=servers.broker.name, address=UNUSED_ADDRESS, counter=2),
        )
        await instance.routes.refresh()
        assert instance.routes.cached("Z") is not None
        assert instance.routes.master_of(servers.broker.name) == UNUSED_ADDRESS


async def test_routes_are_refreshed_every_thirty_seconds_and_listeners_are_called() -> None:
    clock = FakeClock()
    changes: list[tuple[str, TopicRoute]] = []
    changed = asyncio.Event()
    async with cluster("T") as servers, caller() as calls:
        async with Instance.open(ClientSettings(nameservers=servers.nameserver), clock=clock) as instance:
            await instance.routes.route("T")

            def note(topic: str, route: TopicRoute) -> None:
                changes.append((topic, route))
                changed.set()

            instance.routes.on_change(note)
            wider = TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=8)
            await register(calls, servers.nameserver, servers.broker, wider, counter=2)
            await clock.advance(30)
            async with asyncio.timeout(10):
                await changed.wait()
            assert [(topic, route.queue_datas[0].write_queue_nums) for topic, route in changes] == [("T", 8)]


async def test_a_watched_topic_is_fetched_in_the_background() -> None:
    learned = asyncio.Event()
    async with cluster("T") as servers, Instance.open(ClientSettings(nameservers=servers.nameserver)) as instance:
        instance.routes.on_change(lambda topic, route: learned.set())
        instance.routes.watch("T")
        async with asyncio.timeout(10):
            await learned.wait()
        assert instance.routes.cached("T") is not None


async def test_concurrent_callers_share_one_request() -> None:
    async with nameserver() as names, Instance.open(ClientSettings(nameservers=names)) as instance:
        async with caller() as calls:
            async with cluster() as servers:
                await register(calls, names, servers.broker, "T")
                routes = await asyncio.gather(*(instance.routes.route("T", fresh=True) for _ in range(50)))
                # Each question gets an answer of its own, so one object for all means one question.
                assert len({id(route) for route in routes}) <= 2


def test_a_silent_broker_is_avoided_for_longer_each_time_until_it_responds() -> None:
    now = [0.0]
    silent = SilentBrokers(lambda: now[0])
    for avoided_s in (10, 20, 40, 60, 60):
        silent.add("a")
        now[0] += avoided_s - 0.5
        assert "a" in silent
        silent.add("a")  # a heartbeat meanwhile
        now[0] += 0.5
        assert "a" not in silent
    silent.remove("a")
    silent.add("a")
    now[0] += 10
    assert "a" not in silent
    silent.add("a")
    silent.keep({"b"})
    assert "a" not in silent


async def test_readers_use_a_slave_while_the_master_is_silent_and_senders_never_do() -> None:
    async with (
        cluster("T") as servers,
        Instance.open(ClientSettings(nameservers=servers.nameserver)) as instance,
    ):
        routes, master = instance.routes, servers.brokers[0].address
        await routes.route("T")
        routes._brokers["broker-a"] = {0: master, 1: "127.0.0.1:1", 2: "127.0.0.1:2"}
        assert routes.address_of("broker-a", 0) == (master, 0)
        routes.silent.add(master)
        assert routes.address_of("broker-a", 0) == ("127.0.0.1:1", 1)
        assert routes.address_of("broker-a", 2) == ("127.0.0.1:2", 2), "the one that a broker suggested"
        assert routes.master_of("broker-a") == master
        routes.silent.add("127.0.0.1:1")
        routes.silent.add("127.0.0.1:2")
        assert routes.address_of("broker-a", 0) == (master, 0), "all are silent: as asked for"
        routes.silent.remove(master)
        assert routes.address_of("broker-a", 2) == (master, 0)
