"""Admin API for brokers, settings and accounts, with a real broker: Ariane's, and Apache's if ARIANE_INTEROP=1."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ariane.client.admin import Admin
from ariane.client.admin.cluster import Runtime
from ariane.client.producer.producer import Producer
from ariane.client.settings import ClientSettings
from ariane.errors import ClientError, RequestFailed
from ariane.model.topic import Permission
from ariane.settings import Secret
from tests.broker.brokers import running_cluster
from tests.client.cluster_fixture import PATIENCE_S, LiveCluster, fresh
from tests.nameserver.servers import caller, registration

PLAIN_ACL = """\
accounts:
- accessKey: administrator
  secretKey: twelve-letters
  admin: true
"""


@pytest.fixture
async def admin(live_cluster: LiveCluster) -> AsyncIterator[Admin]:
    async with Admin(live_cluster.nameserver) as admin:
        yield admin


async def runtime_of(admin: Admin) -> Runtime:
    """Apache's broker fails on this request in its first second, before its first sample."""
    async with asyncio.timeout(PATIENCE_S):
        while not (runtimes := await admin.cluster.runtime()).is_complete:  # noqa: ASYNC110 - there is no notification
            await asyncio.sleep(0.1)
    (runtime,) = runtimes.responses.values()
    return runtime


async def test_the_cluster_map_lists_its_brokers(live_cluster: LiveCluster, admin: Admin) -> None:
    (broker,) = await admin.cluster.brokers()
    assert (broker.address, broker.is_master) == (live_cluster.broker, True)
    assert await admin.cluster.names() == [broker.cluster]
    assert list((await admin.cluster.map()).broker_addr_table) == [broker.name]


async def test_runtime_statistics_of_a_broker(admin: Admin) -> None:
    runtime = await runtime_of(admin)
    assert runtime.version is not None
    assert runtime.booted_ms is not None
    assert runtime.commit_log_disk_ratio is not None
    assert "commitLogMaxOffset" in runtime.table


async def test_counters_are_reported_by_minute_hour_and_day(live_cluster: LiveCluster, admin: Admin) -> None:
    topic = await live_cluster.topic()
    await live_cluster.send(topic, b"counted")
    (stats,) = (await admin.cluster.stats("TOPIC_PUT_NUMS", topic)).some("statistics").responses.values()
    assert stats.stats_day.sum >= 0
    unknown = await admin.cluster.stats("NO_SUCH_COUNTER", topic)
    assert (unknown.responses, len(unknown.failures)) == ({}, 1)


def test_a_missing_runtime_value_is_none_and_not_zero() -> None:
    missing = Runtime(table={"putTps": "soon"})
    assert (missing.put_tps, missing.get_tps, missing.booted_ms, missing.version) == (None, None, None, None)


async def test_settings_are_read_and_live_settings_changed(admin: Admin) -> None:
    ((broker, settings),) = (await admin.brokers.config()).responses.items()
    assert settings["brokerName"] == broker.name
    before = settings["traceOn"]
    after = "false" if before == "true" else "true"
    await admin.brokers.set_config({"traceOn": after}, broker=broker.name)
    (settings,) = (await admin.brokers.config(broker=broker.name)).responses.values()
    assert settings["traceOn"] == after
    await admin.brokers.set_config({"traceOn": before}, cluster=broker.cluster)


async def test_housekeeping_is_done_on_demand(admin: Admin) -> None:
    (broker,) = await admin.cluster.brokers()
    assert await admin.brokers.clean_expired_queues() == [broker]
    assert await admin.brokers.clean_unused_topics(broker=broker.name) == [broker]


async def test_write_permission_is_removed_and_added_again(live_cluster: LiveCluster, admin: Admin) -> None:
    topic = await live_cluster.topic()
    (broker,) = await admin.cluster.brokers()
    (wiped,) = (await admin.cluster.wipe_write_permission(broker.name)).values()
    assert wiped > 0
    assert [data.perm for data in (await admin.topics.route(topic)).queue_datas] == [Permission.READ]
    await admin.cluster.add_write_permission(broker.name)
    assert [data.perm for data in (await admin.topics.route(topic)).queue_datas] == [Permission.READ_WRITE]


async def test_producers_are_listed(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, group = await live_cluster.topic(), fresh("producers")
    async with Producer(live_cluster.nameserver, group=group) as producer:
        await producer.send(topic, b"hello")
        await producer._lifetime.value.instance.heartbeat_now()
        (connections,) = (await admin.clients.producers(group, topic=topic)).responses.values()
        assert [connection.client_id for connection in connections] == [producer.client_id]
        (table,) = (await admin.clients.all_producers()).responses.values()
        assert [connection.client_id for connection in table[group]] == [producer.client_id]
    (connections,) = (await admin.clients.producers(fresh("producers"))).responses.values()
    assert connections == []


async def test_a_broker_that_is_down_is_among_the_failures(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Admin(cluster.nameserver, timeout_s=2) as admin, caller() as dead:
        await dead.call(cluster.nameserver, registration("T", broker="broker-b", address="127.0.0.1:1"))
        runtime = await admin.cluster.runtime()
        assert [broker.name for broker in runtime.responses] == ["broker-a"]
        assert [failure.server for failure in runtime.failures] == ["broker-b (127.0.0.1:1)"]
        await admin.brokers.delete_expired_files(broker="broker-a")


async def test_without_brokers_the_error_says_what_to_do(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster, Admin(cluster.nameserver) as admin:
        with pytest.raises(ClientError, match="no broker is registered"):
            await admin.cluster.brokers()


async def test_accounts_are_created_changed_and_deleted(tmp_path: Path) -> None:
    acl = tmp_path / "plain_acl.yml"
    acl.write_text(PLAIN_ACL, encoding="utf-8")
    settings = ClientSettings(access_key="administrator", secret_key=Secret("twelve-letters"))
    async with running_cluster(tmp_path, acl_enable=True, acl_file=acl) as cluster:
        async with Admin(cluster.nameserver, settings=settings) as admin:
            await admin.accounts.put(
                "reader-1", secret_key="another-secret", default_topic_perm="DENY", topic_perms={"orders": "SUB"}
            )
            (rules,) = (await admin.accounts.rules()).responses.values()
            reader = next(account for account in rules.plain_access_configs if account.access_key == "reader-1")
            assert (reader.topic_perms, reader.secret_key) == (["orders=SUB"], None)
            await admin.accounts.set_white_list(["10.0.0.1", "10.0.1.*"])
            (rules,) = (await admin.accounts.rules()).responses.values()
            assert rules.global_white_addrs == ["10.0.0.1", "10.0.1.*"]
            (version,) = (await admin.accounts.versions()).responses.values()
            assert version.counter > 0
            await admin.accounts.delete("reader-1")
            with pytest.raises(ClientError, match="not a valid topic"):
                await admin.accounts.put("x", topic_perms={"a,b": "PUB"})
        async with Admin(cluster.nameserver) as stranger:
            with pytest.raises(RequestFailed):
                await stranger.accounts.rules()
