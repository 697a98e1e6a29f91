"""A broker's life: boot, both ports, a stop under load, and what it refuses to begin with."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.server import serve
from ariane.clock import Clock
from ariane.errors import ArianeError, ListenFailed, RequestFailed, SettingsError, StoreInUse, TransportError
from ariane.model.address import Address
from ariane.model.topic import TopicConfig
from ariane.rpc.caller import Caller
from ariane.store.commit_log.scan import list_files, walk_records
from ariane.store.disk import RealDisk
from ariane.wire.codes import ResponseCode
from ariane.wire.record.read import decode
from ariane.wire.requests.brokers import (
    CleanExpiredConsumeQueues,
    CleanUnusedTopics,
    DeleteExpiredCommitLog,
    GetBrokerSettings,
    GetRuntimeInfo,
    UpdateBrokerSettings,
)
from ariane.wire.requests.send import SendMessage
from ariane.wire.requests.topics import (
    DeleteTopicInBroker,
    GetTopicConfig,
    GetTopicStats,
    GetTopicTable,
    ListSystemTopicsInBroker,
    UpdateTopic,
)
from tests.broker.brokers import RunningBroker, broker_settings, running_broker
from tests.nameserver.servers import caller


def update(topic: str = "orders", **changes: Any) -> UpdateTopic:
    wanted = {"read_queue_nums": 4, "write_queue_nums": 4, "perm": 6, "topic_filter_type": "SINGLE_TAG"}
    return UpdateTopic(topic=topic, default_topic="TBW102", **{**wanted, **changes})


def message(body: bytes = b"hello", topic: str = "orders", queue_id: int = 0) -> SendMessage:
    return SendMessage(
        producer_group="producers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="",
        body=body,
    )


async def refusal(call: Any) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await call
    return caught.value


def vip(broker: RunningBroker) -> str:
    address = Address.parse(broker.address)
    return str(Address(address.host, address.port - 2))


# --- boot and stop


async def test_both_ports_are_served_alike(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        for address in (broker.address, vip(broker)):
            assert (await client.call(address, GetRuntimeInfo())).body.table


async def test_a_port_or_vip_port_in_use_is_reported_before_the_store_is_touched(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a") as broker:
        port = broker.settings.port
        for taken in (port, port + 2):  # the second one's VIP port is the first one's main port
            with pytest.raises(ListenFailed, match="--listen"):
                async with running_broker(tmp_path / "b", port=taken):
                    pass
        assert not (tmp_path / "b").exists()


async def test_a_store_in_use_is_reported_with_the_fix(tmp_path: Path) -> None:
    async with running_broker(tmp_path):
        with pytest.raises((StoreInUse, ExceptionGroup), match="in use") as caught:
            async with running_broker(tmp_path):
                pass
    assert "stop that one" in str(caught.value)


async def test_a_stop_under_load_loses_no_message_that_was_acknowledged(tmp_path: Path) -> None:
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    acknowledged: set[bytes] = set()
    settings = broker_settings(tmp_path)

    async def send_until_refused(client: Caller, address: str, name: int) -> None:
        number = 0
        try:
            while True:
                body = b"%d-%d" % (name, number)
                await client.call(address, message(body))
                acknowledged.add(body)
                number += 1
                if number == 20:
                    stop.set()
        except (TransportError, RequestFailed):
            pass  # the broker has gone: this one was not acknowledged

    async with asyncio.TaskGroup() as group, caller() as client:
        group.create_task(serve(settings, stop, ready=ready.set_result))
        address = str(await ready)
        await client.call(address, update())
        async with asyncio.timeout(30), asyncio.TaskGroup() as senders:
            for name in range(8):
                senders.create_task(send_until_refused(client, address, name))
    assert not (tmp_path / "store" / "abort").exists()  # a clean exit
    disk = RealDisk()
    found = walk_records(disk, list_files(disk, tmp_path / "store" / "commitlog"))
    stored = {decode(record.raw).body for record in found}
    assert len(acknowledged) >= 20
    assert acknowledged <= stored


async def test_what_was_made_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        await client.call(broker.address, update())
        await client.call(broker.address, message())
    async with running_broker(tmp_path) as broker, caller() as client:
        stats = (await client.call(broker.address, GetTopicStats("orders"))).body.offset_table
        assert sum(offsets.max_offset for offsets in stats.values()) == 1


# --- the advertised address


async def test_a_broker_on_loopback_tells_loopback(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert str(broker.settings.advertised) == broker.address


async def test_a_broker_on_every_address_tells_the_one_that_leads_to_its_nameserver(tmp_path: Path) -> None:
    async with running_broker(tmp_path, ["127.0.0.1:1"], host="0.0.0.0", insecure=True) as broker:
        assert broker.settings.advertised == Address("127.0.0.1", broker.settings.port)


async def test_an_advertised_port_and_name_are_registered_as_given(tmp_path: Path) -> None:
    async with running_broker(tmp_path, advertised_host="localhost", advertised_port=4711) as broker:
        assert str(broker.settings.advertised) == "localhost:4711"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "not an address", "no-such-host.invalid", "10.0.0", "224.0.0.1"])
async def test_an_address_that_no_client_can_use_is_refused_with_the_fix(tmp_path: Path, host: str) -> None:
    with pytest.raises(SettingsError, match="--advertise"):
        async with running_broker(tmp_path, advertised_host=host):
            pass
    assert not (tmp_path / "store").exists()


# --- topics over the wire


async def test_a_topic_is_made_shown_and_deleted_with_its_queues(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        await client.call(broker.address, update(order=True))
        assert (await client.call(broker.address, GetTopicConfig("orders"))).body == TopicConfig(
            topic_name="orders", read_queue_nums=4, write_queue_nums=4, order=True
        )
        await client.call(broker.address, message())
        broker.parts.offsets.commit("group", "orders", 0, 1)
        await client.call(broker.address, DeleteTopicInBroker("orders"))
        assert (await refusal(client.call(broker.address, GetTopicConfig("orders")))).code == 17
        assert (await refusal(client.call(broker.address, GetTopicStats("orders")))).code == 17
        assert not broker.parts.store.store.components.queues.of_topic("orders")
        assert broker.parts.offsets.get("group", "orders", 0) == -1
        await client.call(broker.address, DeleteTopicInBroker("orders"))  # a second time is no failure


@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a", "rmq_sys_x"])
async def test_system_topics_can_neither_be_changed_nor_deleted(tmp_path: Path, topic: str) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        for request in (update(topic), DeleteTopicInBroker(topic)):
            error = await refusal(client.call(broker.address, request))
            assert error.code == ResponseCode.SYSTEM_ERROR
            assert "system" in error.remark


@pytest.mark.parametrize(
    "changes", [{"read_queue_nums": 0}, {"write_queue_nums": 5000}, {"perm": 99}, {"topic_filter_type": "NONE"}]
)
async def test_a_topic_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        assert (await refusal(client.call(broker.address, update(**changes)))).code == ResponseCode.SYSTEM_ERROR
        assert broker.parts.topics.get("orders") is None


async def test_queues_that_a_topic_no_longer_writes_are_still_in_its_statistics(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        await client.call(broker.address, update())
        await client.call(broker.address, message(queue_id=3))
        await client.call(broker.address, update(write_queue_nums=1))
        stats = (await client.call(broker.address, GetTopicStats("orders"))).body.offset_table
        assert {key.queue_id: value.max_offset for key, value in stats.items()} == {0: 0, 1: 0, 2: 0, 3: 1}


async def test_all_topics_and_the_system_s_own_are_listed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        await client.call(broker.address, update())
        table = (await client.call(broker.address, GetTopicTable())).body
        assert "orders" in table.topic_config_table
        assert table.data_version == broker.parts.topics.version
        system = (await client.call(broker.address, ListSystemTopicsInBroker())).body.topic_list
        assert "SCHEDULE_TOPIC_XXXX" in system
        assert "orders" not in system


# --- settings over the wire


async def test_settings_are_shown_under_apache_s_names_without_secrets(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        response = await client.call(broker.address, GetBrokerSettings())
        assert "brokerName=broker-a\n" in response.body
        assert f"listenPort={broker.settings.port}\n" in response.body
        assert "keyPassword" not in response.body
        assert response.version is not None


async def test_a_setting_of_the_allow_list_changes_and_is_seen_by_everyone(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        await client.call(broker.address, UpdateBrokerSettings(body="fileReservedTime=24\nlongPollingEnable=false\n"))
        assert (broker.settings.store.retention_hours, broker.settings.long_polling) == (24, False)
        assert "fileReservedTime=24\n" in (await client.call(broker.address, GetBrokerSettings())).body


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        ("listenPort=1", "cannot be changed at run time"),
        ("storePathRootDir=/etc", "cannot be changed at run time"),
        ("rocketmqHome=-c $@|sh . echo id", "there is no such setting"),  # CVE-2023-33246
        ("configStorePath=/etc/cron.d/x", "there is no such setting"),
        ("tls.server.keyPassword=x", "secret"),
        ("fileReservedTime=-1", "expected a whole number"),
        ("longPollingEnable=maybe", "expected true or false"),
        ("regionId=a\\nb", "control characters"),
        ("deleteWhen=25", "restart"),
        ("a=" + "x" * 70_000, "at most"),
    ],
)
async def test_everything_else_is_refused_with_the_reason_and_nothing_changes(
    tmp_path: Path, body: str, remark: str
) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        before = (await client.call(broker.address, GetBrokerSettings())).body
        error = await refusal(
            client.call(broker.address, UpdateBrokerSettings(body=f"shortPollingTimeMills=7\n{body}"))
        )
        assert remark in error.remark
        assert (await client.call(broker.address, GetBrokerSettings())).body == before


async def test_a_value_in_force_is_no_change_whatever_its_key(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        body = (await client.call(broker.address, GetBrokerSettings())).body
        await client.call(broker.address, UpdateBrokerSettings(body=body))


# --- runtime


async def test_the_runtime_has_what_tools_read(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        await client.call(broker.address, update())
        await client.call(broker.address, message())
        table = (await client.call(broker.address, GetRuntimeInfo())).body.table
        assert table["brokerVersionDesc"].startswith("Ariane-")
        assert int(table["commitLogMaxOffset"]) > int(table["commitLogMinOffset"])
        assert 0 < int(table["earliestMessageTimeStamp"]) <= Clock().now_ms()
        assert 0 <= float(table["commitLogDiskRatio"]) <= 1


async def test_queues_of_topics_that_are_gone_are_cleaned_and_no_others(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, caller() as client:
        for topic in ("orders", "gone"):
            await client.call(broker.address, update(topic))
            await client.call(broker.address, message(topic=topic))
        broker.parts.topics.delete("gone")  # as if its queues had come back from the log
        await client.call(broker.address, CleanExpiredConsumeQueues())
        queues = broker.parts.store.store.components.queues
        assert set(queues.topics()) >= {"orders", "gone"}  # its messages are still in the log
        await client.call(broker.address, CleanUnusedTopics())
        assert "gone" not in queues.topics()
        assert "orders" in queues.topics()


async def test_the_log_is_cleaned_on_demand_and_keeps_its_active_file(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store={"retention_hours": 3}) as broker, caller() as client:
        await client.call(broker.address, update())
        await client.call(broker.address, message())
        await client.call(broker.address, DeleteExpiredCommitLog())
        assert (await client.call(broker.address, GetTopicStats("orders"))).body.offset_table


async def test_a_broker_that_cannot_read_its_accounts_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ArianeError):
        async with running_broker(tmp_path, acl_enable=True, acl_file=tmp_path / "none.yml"):
            pass


async def test_with_access_control_nobody_is_served_without_a_signature(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts:\n- accessKey: RocketMQ\n  secretKey: '12345678'\n  admin: true\n")
    async with running_broker(tmp_path, acl_enable=True, acl_file=accounts) as broker, caller() as client:
        for address in (broker.address, vip(broker)):
            error = await refusal(client.call(address, GetRuntimeInfo()))
            assert error.code == ResponseCode.NO_PERMISSION
