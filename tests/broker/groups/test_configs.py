"""The group table, its file, and the requests of administrators."""

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from ariane.broker.groups.configs import Groups
from ariane.broker.json_table import JsonTable
from ariane.errors import RequestFailed, StoreCorrupt, StoreError
from ariane.model.group import GroupConfig
from ariane.model.topic import DataVersion
from ariane.store.disk import replace_all
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.groups import DeleteGroup, GetGroupConfig, GetGroupTable, ListGroupsOfTopic, UpdateGroup
from tests.broker.consumer_group_fixtures import (
    SETTINGS,
    connected_client,
    consumer,
    group_broker,
    heartbeat,
    running,
    subscription,
)
from tests.simulation.simulated_disk import SimulatedDisk

PATH = Path("/store/config/subscriptionGroup.json")
GOLDEN = Path(__file__).parents[2] / "golden" / "apache-4.9.8-clean-store.tar.gz"


def groups_on(disk: SimulatedDisk, clock: FakeClock | None = None) -> Groups:
    return Groups(SETTINGS, JsonTable(disk, PATH), clock or FakeClock())


def disk_with(content: bytes, path: Path = PATH) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(path.parent)
    replace_all(disk, path, content)
    return disk


def test_a_group_is_created_on_first_use() -> None:
    groups = groups_on(SimulatedDisk())
    assert groups.get("g") is None
    assert groups.find("g") == groups.get("g") == GroupConfig(group_name="g")
    assert groups.version.counter == 1


def test_the_groups_of_apaches_tools_are_always_there() -> None:
    groups = groups_on(SimulatedDisk())
    assert {"TOOLS_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"} <= set(groups.all())
    assert groups.version == DataVersion()


def test_without_auto_creation_only_system_groups_are_created() -> None:
    groups = Groups(replace(SETTINGS, auto_create_groups=False), None, FakeClock())
    with pytest.raises(RequestFailed, match="set autoCreateSubscriptionGroup=true") as refused:
        groups.find("g")
    assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert groups.find("CID_RMQ_SYS_TRANS").group_name == "CID_RMQ_SYS_TRANS"


@pytest.mark.parametrize("name", ["", "a@b", "a b", "g" * 121, "../x"])
def test_an_invalid_name_is_rejected(name: str) -> None:
    groups = groups_on(SimulatedDisk())
    for use in (lambda: groups.find(name), lambda: groups.put(GroupConfig(group_name=name))):
        with pytest.raises(RequestFailed):
            use()
    assert groups.get(name) is None


async def test_a_change_by_an_administrator_can_be_waited_for() -> None:
    disk, clock = SimulatedDisk(), FakeClock()
    groups = groups_on(disk, clock)
    groups.put(GroupConfig(group_name="g", retry_max_times=3, consume_enable=False))
    await groups.saved()
    again = groups_on(disk.crash_process())
    assert again.get("g") == GroupConfig(group_name="g", retry_max_times=3, consume_enable=False)
    assert again.version == groups.version == DataVersion(timestamp=clock.now_ms(), counter=1)
    assert groups.delete("g")
    assert not groups.delete("g")
    await groups.saved()
    assert groups_on(disk.crash_process()).get("g") is None


async def test_a_change_that_cannot_be_saved_fails_and_is_saved_later() -> None:
    disk = SimulatedDisk()
    groups = groups_on(disk)
    disk.fail_writes(OSError(28, "No space left on device"))
    groups.put(GroupConfig(group_name="g"))
    with pytest.raises(StoreError, match="No space left"):
        await groups.saved()
    disk.fail_writes(None)
    await groups.saved()
    assert groups_on(disk).get("g") is not None


async def test_auto_created_groups_are_saved_periodically_and_at_the_end() -> None:
    disk, clock = SimulatedDisk(), FakeClock()
    groups = groups_on(disk, clock)
    async with groups.autosave(clock, 5):
        groups.find("timer")
        assert groups_on(disk).get("timer") is None
        groups.find("end")
    assert set(groups_on(disk).all()) >= {"timer", "end"}


def test_a_file_of_apache_is_read_and_written_back_the_same() -> None:
    with tarfile.open(GOLDEN) as archive:
        content = archive.extractfile("store/config/subscriptionGroup.json")
        assert content is not None
        original = content.read()
    disk = disk_with(original)
    groups = groups_on(disk)
    assert groups.get("golden_retry_group") == GroupConfig(group_name="golden_retry_group")
    assert groups.version.counter == 3
    assert groups.table().to_bytes() == original.replace(b"\n", b"").replace(b"\t", b"")


def test_additions_of_5x_are_accepted() -> None:
    disk = disk_with(
        b'{"dataVersion":{"counter":7,"stateVersion":0,"timestamp":5},"forbiddenTable":{},"subscriptionGroupTable":{'
        b'"g":{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"g",'
        b'"groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":2,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}'
    )
    assert groups_on(disk).get("g") == GroupConfig(group_name="g", retry_max_times=2)


def test_a_file_that_is_something_else_stops_the_start() -> None:
    with pytest.raises(StoreCorrupt, match="not a valid group table"):
        groups_on(disk_with(b'{"subscriptionGroupTable":{"g":7}}'))


async def test_administrators_create_change_show_and_delete_groups() -> None:
    broker = group_broker()
    async with running(broker) as server, connected_client(server) as admin:
        await admin.call(UpdateGroup(body=GroupConfig(group_name="g", retry_max_times=5)))
        assert (await admin.call(GetGroupConfig("g"))).body == GroupConfig(group_name="g", retry_max_times=5)
        table = (await admin.call(GetGroupTable())).body
        assert table.subscription_group_table["g"].retry_max_times == 5
        assert table.data_version == broker.groups.version
        assert (await admin.error_response(UpdateGroup(body=GroupConfig(group_name="no good"))))[
            0
        ] == ResponseCode.SYSTEM_ERROR
        assert (await admin.error_response(UpdateGroup()))[0] == ResponseCode.SYSTEM_ERROR
        broker.offsets.commit("g", "orders", 0, 5)
        await admin.call(DeleteGroup("g"))
        assert (await admin.error_response(GetGroupConfig("g")))[0] == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert broker.offsets.get("g", "orders", 0) == 5
        await admin.call(DeleteGroup("g", remove_offset=True))
        assert broker.offsets.get("g", "orders", 0) == -1
        broker.offsets.commit("g", "orders", 0, 5)
        await admin.call(DeleteGroup("g", clean_offset=True))
        assert broker.offsets.groups_of("orders") == set()


async def test_the_groups_of_a_topic_are_those_connected_and_those_with_offsets() -> None:
    broker = group_broker()
    broker.offsets.commit("past", "orders", 0, 5)
    async with running(broker) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("here", subscription("orders")), consumer("else", subscription("x"))))
        assert (await client.call(ListGroupsOfTopic("orders"))).body.group_list == ["here", "past"]
