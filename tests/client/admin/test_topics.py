"""Admin API for topics and nameservers, with a real broker: Ariane's, and Apache's if ARIANE_INTEROP=1."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ariane.client.admin import Admin
from ariane.errors import ClientClosed, ClientError, ConnectFailed, NoRoute, RequestFailed
from ariane.model.topic import Permission, TopicConfig
from tests.broker.brokers import running_cluster
from tests.client.cluster_fixture import LiveCluster, fresh
from tests.nameserver.servers import caller, registration


@pytest.fixture
async def admin(live_cluster: LiveCluster) -> AsyncIterator[Admin]:
    async with Admin(live_cluster.nameserver) as admin:
        yield admin


async def test_a_topic_has_a_route_when_create_returns(admin: Admin) -> None:
    topic = fresh("topic")
    (broker,) = await admin.topics.create(topic, queues=8)
    route = await admin.topics.route(topic)
    assert [(data.broker_name, data.read_queue_nums) for data in route.queue_datas] == [(broker.name, 8)]
    assert topic in await admin.topics.names()
    assert topic in await admin.topics.names(cluster=broker.cluster)
    assert await admin.topics.clusters(topic) == [broker.cluster]


async def test_a_topic_that_exists_is_not_created_again(admin: Admin) -> None:
    topic = fresh("topic")
    await admin.topics.create(topic)
    with pytest.raises(ClientError, match=r"exists at .*: change it, for example with"):
        await admin.topics.create(topic, queues=16)
    (config,) = (await admin.topics.configs(topic)).responses.values()
    assert config.read_queue_nums == 4


async def test_update_changes_only_the_given_settings(admin: Admin) -> None:
    topic = fresh("topic")
    await admin.topics.create(topic, read_queues=8, write_queues=6)
    await admin.topics.update(topic, write_queues=2)
    await admin.topics.set_permission(topic, Permission.READ)
    (config,) = (await admin.topics.configs(topic)).responses.values()
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (8, 2, Permission.READ)


async def test_put_creates_and_overwrites(admin: Admin) -> None:
    config = TopicConfig(topic_name=fresh("topic"), read_queue_nums=2, write_queue_nums=2)
    await admin.topics.put(config)
    await admin.topics.put(TopicConfig(topic_name=config.topic_name, read_queue_nums=3, write_queue_nums=3))
    (found,) = (await admin.topics.configs(config.topic_name)).responses.values()
    assert found.read_queue_nums == 3


async def test_statistics_have_the_bounds_of_each_queue(live_cluster: LiveCluster, admin: Admin) -> None:
    topic = await live_cluster.topic(queues=2)
    await live_cluster.send(topic, b"a", b"b", b"c", queue_id=1)
    stats = await admin.topics.stats(topic)
    empty, full = stats.queues
    assert (empty.queue.queue_id, empty.max_offset, empty.last_stored_ms) == (0, 0, None)
    assert (full.min_offset, full.max_offset, full.count) == (0, 3, 3)
    assert full.last_stored_ms is not None
    assert stats.count == 3


async def test_a_deleted_topic_is_gone_at_broker_and_nameserver(admin: Admin) -> None:
    topic = fresh("topic")
    await admin.topics.create(topic)
    await admin.topics.delete(topic)
    with pytest.raises(NoRoute):
        await admin.topics.route(topic)
    assert (await admin.topics.configs(topic)).responses == {}


async def test_a_misspelt_topic_is_an_error_that_names_similar_topics(admin: Admin) -> None:
    topic = fresh("orders-of-the-day")
    await admin.topics.create(topic)
    with pytest.raises(NoRoute, match=topic):
        await admin.topics.delete(topic.replace("orders", "order"))
    with pytest.raises(NoRoute):
        await admin.topics.update(fresh("nowhere"), perm=4)
    with pytest.raises(NoRoute):
        await admin.topics.stats(fresh("nowhere"))


async def test_an_ordered_topic_has_its_queues_at_the_nameserver(admin: Admin) -> None:
    topic = fresh("ordered")
    (broker,) = await admin.topics.create(topic, queues=2, order=True)
    assert await admin.topics.order_conf(topic) == {broker.name: 2}
    await admin.topics.set_order_conf(topic, {broker.name: 1, "broker-z": 3})
    assert await admin.topics.order_conf(topic) == {broker.name: 1, "broker-z": 3}
    assert await admin.nameservers.get("ORDER_TOPIC_CONFIG", topic) == f"{broker.name}:1;broker-z:3"
    await admin.topics.delete_order_conf(topic)
    assert await admin.topics.order_conf(topic) is None


async def test_an_order_conf_that_cannot_be_read_is_an_error(admin: Admin) -> None:
    topic = fresh("topic")
    await admin.nameservers.put("ORDER_TOPIC_CONFIG", topic, "broker-a:many")
    with pytest.raises(ClientError, match="set it again"):
        await admin.topics.order_conf(topic)
    await admin.nameservers.delete("ORDER_TOPIC_CONFIG", topic)


async def test_system_topics_are_listed(admin: Admin) -> None:
    assert {"SELF_TEST_TOPIC", "BenchmarkTest"} <= set(await admin.topics.system_names())


async def test_pairs_are_kept_by_namespace(admin: Admin) -> None:
    namespace = fresh("namespace")
    assert await admin.nameservers.pairs(namespace) == {}
    await admin.nameservers.put(namespace, "a", "1")
    await admin.nameservers.put(namespace, "b", "2")
    assert await admin.nameservers.pairs(namespace) == {"a": "1", "b": "2"}
    await admin.nameservers.delete(namespace, "a")
    assert await admin.nameservers.get(namespace, "a") is None
    assert await admin.nameservers.get(namespace, "b") == "2"


async def test_nameserver_settings_are_read(admin: Admin) -> None:
    ((address, settings),) = (await admin.nameservers.config()).responses.items()
    assert admin.nameservers.addresses == (address,)
    assert settings["listenPort"].isdigit()


async def test_ariane_nameservers_refuse_to_change_settings(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Admin(cluster.nameserver) as admin:
        with pytest.raises(RequestFailed, match="UPDATE_NAMESRV_CONFIG"):
            await admin.nameservers.set_config({"orderMessageEnable": "true"})
        with pytest.raises(ClientError, match="not a valid setting name"):
            await admin.nameservers.set_config({"a=b\nlistenPort": "1"})


# --- two brokers ----------------------------------------------------------------------------------------------------


async def test_a_topic_is_created_at_all_or_at_selected_brokers(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=2) as cluster, Admin(cluster.nameserver) as admin:
        both = await admin.topics.create("both", order=True)
        assert [broker.name for broker in both] == ["broker-a", "broker-b"]
        assert await admin.topics.order_conf("both") == {"broker-a": 4, "broker-b": 4}
        (broker,) = await admin.topics.create("one", broker="broker-b")
        assert broker.name == "broker-b"
        (by_address,) = await admin.topics.create("other", broker=cluster.brokers[0].address)
        assert by_address.name == "broker-a"
        assert [data.broker_name for data in (await admin.topics.route("one")).broker_datas] == ["broker-b"]
        with pytest.raises(ClientError, match=r"no broker broker-x: the nameserver knows broker-a, broker-b"):
            await admin.topics.create("one", broker="broker-x")
        with pytest.raises(ClientError, match="knows the clusters DefaultCluster"):
            await admin.topics.create("one", cluster="elsewhere")


async def test_a_broker_that_is_down_is_reported_and_not_counted_as_zero(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Admin(cluster.nameserver, timeout_s=2) as admin, caller() as dead:
        await admin.topics.create("T", queues=1)
        await dead.call(cluster.nameserver, registration("T", broker="broker-b", address="127.0.0.1:1"))
        stats = await admin.topics.stats("T")
        assert [queue.queue.broker_name for queue in stats.queues] == ["broker-a"]
        assert stats.count is None
        assert not stats.is_complete
        (failure,) = stats.failures
        assert failure.server == "broker-b (127.0.0.1:1)"
        with pytest.raises(ClientError, match=r"failed at broker-b .*done at broker-a"):
            await admin.topics.put(TopicConfig(topic_name="U"))
        with pytest.raises(ConnectFailed):
            await admin.topics.create("V", broker="broker-b")


async def test_an_admin_that_is_not_open_raises_client_closed() -> None:
    admin = Admin("127.0.0.1:1")
    with pytest.raises(ClientClosed, match="not started"):
        await admin.topics.names()
    async with admin:
        with pytest.raises(NoRoute, match="no nameserver answers"):
            await admin.topics.names()
    with pytest.raises(ClientClosed, match="is closed"):
        await admin.topics.names()
