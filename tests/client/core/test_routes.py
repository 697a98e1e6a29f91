import asyncio

from ariane.client.core.instance import Instance
from ariane.client.settings import ClientSettings
from ariane.errors import NoRoute
from ariane.model.route import TopicRoute
from ariane.model.topic import TopicConfig
from ariane.testing import FakeClock
from ariane.wire.requests.topics import DeleteTopicInNameserver
from interop.processes import free_port
from tests.client.scripted_broker import cluster, register
from tests.nameserver.servers import caller, nameserver, nameserver_process, with_settings

NOBODY = "127.0.0.1:1"


async def test_a_route_names_brokers_and_queues() -> None:
    async with cluster("T", brokers=2) as servers, Instance.open(ClientSettings(nameservers=servers.nameserver)) as one:
        route = await one.routes.route("T")
        assert sorted(data.broker_name for data in route.broker_datas) == ["broker-a", "broker-b"]
        assert one.routes.master_of("broker-a") == servers.brokers[0].address
        assert one.routes.address_of("broker-b", 0) == (servers.brokers[1].address, 0)
        assert one.routes.address_of("broker-b", 1) == (servers.brokers[1].address, 0)
        assert one.routes.master_of("broker-z") is None
        assert one.routes.address_of("broker-z", 0) is None


async def test_a_missing_topic_names_the_cure_and_what_was_perhaps_meant() -> None:
    async with cluster("orders", "payments") as servers:
        async with Instance.open(ClientSettings(nameservers=servers.nameserver)) as one:
            error = await _failure(one, "order")
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
    async with Instance.open(ClientSettings(nameservers=NOBODY)) as one:
        error = await _failure(one, "T")
    assert f"cannot connect to {NOBODY}" in error
    assert "ariane up" in error


async def test_the_next_nameserver_is_asked_when_one_is_down() -> None:
    async with cluster("T") as servers:
        for order in (f"{NOBODY};{servers.nameserver}", f"{servers.nameserver};{NOBODY}"):
            async with Instance.open(ClientSettings(nameservers=order)) as one:
                assert (await one.routes.route("T")).broker_datas


async def test_a_nameserver_that_comes_later_is_found() -> None:
    port = free_port()
    async with Instance.open(ClientSettings(nameservers=f"127.0.0.1:{port}")) as one:
        assert "no nameserver answers" in await _failure(one, "T")
        async with nameserver(with_settings(port=port)) as names, caller() as calls, cluster() as servers:
            await register(calls, names, servers.broker, "T")
            async with asyncio.timeout(10):
                # Connections are tried again after a growing pause, which nothing announces the end of.
                while "no nameserver answers" in await _failure_or_route(one, "T"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert one.routes.cached("T") is not None


async def _failure_or_route(instance: Instance, topic: str) -> str:
    try:
        return str(await instance.routes.route(topic))
    except NoRoute as error:
        return str(error)


async def test_routes_are_kept_while_the_nameservers_are_down() -> None:
    with nameserver_process() as (process, names):
        async with caller() as calls, Instance.open(ClientSettings(nameservers=names)) as one:
            async with cluster("other") as servers:
                await register(calls, names, servers.broker, "T")
                known = await one.routes.route("T")
                process.kill()
                process.wait()
                await one.routes.refresh()
                assert await one.routes.route("T") == known
                assert one.routes.master_of("broker-a") == servers.broker.address


async def test_a_route_is_kept_when_the_nameserver_forgets_the_topic() -> None:
    async with cluster("T", "U") as servers, Instance.open(ClientSettings(nameservers=servers.nameserver)) as one:
        known = await one.routes.route("T")
        await one.call(servers.nameserver, DeleteTopicInNameserver("T"))
        assert await one.routes.route("T", fresh=True) == known


async def test_routes_are_asked_anew_every_thirty_seconds_and_changes_are_told() -> None:
    clock = FakeClock()
    changes: list[tuple[str, TopicRoute]] = []
    changed = asyncio.Event()
    async with cluster("T") as servers, caller() as calls:
        async with Instance.open(ClientSettings(nameservers=servers.nameserver), clock=clock) as one:
            await one.routes.route("T")

            def note(topic: str, route: TopicRoute) -> None:
                changes.append((topic, route))
                changed.set()

            one.routes.on_change(note)
            wider = TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=8)
            await register(calls, servers.nameserver, servers.broker, wider, counter=2)
            await clock.advance(30)
            async with asyncio.timeout(10):
                await changed.wait()
            assert [(topic, route.queue_datas[0].write_queue_nums) for topic, route in changes] == [("T", 8)]


async def test_a_watched_topic_is_fetched_without_being_asked_for() -> None:
    learned = asyncio.Event()
    async with cluster("T") as servers, Instance.open(ClientSettings(nameservers=servers.nameserver)) as one:
        one.routes.on_change(lambda topic, route: learned.set())
        one.routes.watch("T")
        async with asyncio.timeout(10):
            await learned.wait()
        assert one.routes.cached("T") is not None


async def test_callers_who_come_together_share_one_question() -> None:
    async with nameserver() as names, Instance.open(ClientSettings(nameservers=names)) as one:
        async with caller() as calls:
            async with cluster() as servers:
                await register(calls, names, servers.broker, "T")
                routes = await asyncio.gather(*(one.routes.route("T", fresh=True) for _ in range(50)))
                # Each question gets an answer of its own, so one object for all means one question.
                assert len({id(route) for route in routes}) <= 2
