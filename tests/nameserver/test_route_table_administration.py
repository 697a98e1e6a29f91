"""The administrative operations of the route table: lists, deletion of topics, write permissions."""

import pytest

from ariane.model.route import BrokerData, ClusterMap
from ariane.model.topic import Permission, TopicConfig, TopicSysFlag
from tests.nameserver.route_table_fixture import MASTER, OTHER, SLAVE, ShortcutTable


@pytest.fixture
def table() -> ShortcutTable:
    return ShortcutTable()


def test_the_cluster_map_names_all_brokers_and_their_clusters(table: ShortcutTable) -> None:
    table.register_broker(SLAVE, broker_id=1)
    table.register_broker(MASTER)
    table.register_broker(OTHER, name="broker-b", cluster="green")
    assert table.cluster_map() == ClusterMap(
        broker_addr_table={
            "broker-a": BrokerData(cluster="blue", broker_name="broker-a", broker_addrs={0: MASTER, 1: SLAVE}),
            "broker-b": BrokerData(cluster="green", broker_name="broker-b", broker_addrs={0: OTHER}),
        },
        cluster_addr_table={"blue": ["broker-a"], "green": ["broker-b"]},
    )
    assert list(table.addresses()) == [0, 1], "the master comes first"


def test_topics_of_a_cluster_are_those_of_its_brokers_once_each(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", "payments", name="broker-a")
    table.register_broker(SLAVE, "orders", name="broker-b")
    table.register_broker(OTHER, "audit", name="broker-c", cluster="green")
    assert table.topics_of_cluster("blue") == ["orders", "payments"]
    assert table.topics_of_cluster("green") == ["audit"]
    assert table.topics_of_cluster("red") == []


def test_system_topics_are_cluster_and_broker_names_with_one_address(table: ShortcutTable) -> None:
    assert table.system_topics() == ([], None)
    table.register_broker(MASTER, "orders")
    table.register_broker(OTHER, name="broker-b")
    assert table.system_topics() == (["blue", "broker-a", "broker-b"], MASTER)


def test_unit_lists_follow_the_flags_of_the_first_broker(table: ShortcutTable) -> None:
    unit, subscribed = TopicSysFlag.UNIT, TopicSysFlag.UNIT_SUBSCRIPTION
    table.register_broker(OTHER, TopicConfig(topic_name="unit", topic_sys_flag=2), name="broker-b")
    table.register_broker(
        MASTER,
        TopicConfig(topic_name="plain"),
        TopicConfig(topic_name="unit", topic_sys_flag=1),
        TopicConfig(topic_name="subscribed", topic_sys_flag=2),
        TopicConfig(topic_name="both", topic_sys_flag=3),
    )
    assert table.flagged_topics(unit) == ["unit", "both"]
    assert table.flagged_topics(subscribed) == ["subscribed", "both"]
    assert table.flagged_topics(subscribed, lacks=unit) == ["subscribed"]


def test_a_deleted_topic_is_gone_until_a_broker_brings_it_back(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders")
    assert table.delete_topic("orders")
    assert not table.delete_topic("orders")
    table.register_broker(MASTER, "orders")
    assert table.route("orders") is None
    table.register_broker(MASTER, "orders", version=2)
    assert table.route("orders") is not None


def test_a_topic_deleted_in_one_cluster_stays_in_the_others(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", name="broker-a", cluster="blue")
    table.register_broker(OTHER, "orders", name="broker-b", cluster="green")
    before = table.route_version("orders")
    assert not table.delete_topic("orders", "red")
    assert table.route_version("orders") == before
    assert table.delete_topic("orders", "blue")
    assert [queues.broker_name for queues in table.existing_route("orders").queue_datas] == ["broker-b"]
    assert table.delete_topic("orders", "green")
    assert table.route("orders") is None


def test_a_wipe_takes_the_write_bit_of_all_topics_of_one_broker(table: ShortcutTable) -> None:
    table.register_broker(
        MASTER, "orders", TopicConfig(topic_name="TBW102", perm=7), TopicConfig(topic_name="closed", perm=4)
    )
    table.register_broker(OTHER, "orders", name="broker-b")
    assert table.wipe_write_permission("broker-a") == 3
    assert [queues.perm for queues in table.existing_route("orders").queue_datas] == [4, 6]
    assert table.permission("TBW102") == 5
    assert table.wipe_write_permission("no-such-broker") == 0


def test_a_wipe_lasts_until_the_next_changed_registration(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders")
    table.wipe_write_permission("broker-a")
    table.register_broker(MASTER, "orders")
    assert table.permission("orders") == Permission.READ
    table.register_broker(MASTER, "orders", version=2)
    assert table.permission("orders") == Permission.READ_WRITE


def test_a_wipe_can_be_undone_and_other_bits_stay(table: ShortcutTable) -> None:
    table.register_broker(MASTER, TopicConfig(topic_name="TBW102", perm=7))
    before = table.route_version("TBW102")
    table.wipe_write_permission("broker-a")
    wiped = table.route_version("TBW102")
    table.wipe_write_permission("broker-a")
    assert table.route_version("TBW102") == wiped != before
    assert table.add_write_permission("broker-a") == 1
    assert table.permission("TBW102") == 7
    assert table.route_version("TBW102") != wiped
