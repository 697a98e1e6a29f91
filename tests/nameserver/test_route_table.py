"""Routes, their versions, and how brokers leave. `test_route_table_model.py` checks the same against a model."""

import pytest

from ariane.model.route import BrokerData, ClusterMap, QueueData, TopicRoute
from ariane.model.topic import Permission, TopicConfig
from tests.nameserver.route_table_fixture import MASTER, OTHER, SLAVE, ShortcutTable, addresses_of


@pytest.fixture
def table() -> ShortcutTable:
    return ShortcutTable()


# -- routes


def test_a_route_names_the_brokers_that_registered_it(table: ShortcutTable) -> None:
    table.register_broker(
        MASTER, TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=4, topic_sys_flag=1)
    )
    assert table.route("orders") == TopicRoute(
        queue_datas=[
            QueueData(broker_name="broker-a", read_queue_nums=8, write_queue_nums=4, perm=6, topic_sys_flag=1),
        ],
        broker_datas=[BrokerData(cluster="blue", broker_name="broker-a", broker_addrs={0: MASTER})],
    )


def test_an_unknown_topic_has_no_route_and_version_zero(table: ShortcutTable) -> None:
    assert table.route("orders") is None
    assert table.route_version("orders") == 0


def test_a_route_lists_brokers_by_name_whatever_order_they_registered_in(table: ShortcutTable) -> None:
    table.register_broker(OTHER, "orders", name="broker-b")
    table.register_broker(MASTER, "orders", name="broker-a")
    route = table.existing_route("orders")
    assert [queues.broker_name for queues in route.queue_datas] == ["broker-a", "broker-b"]
    assert [broker.broker_name for broker in route.broker_datas] == ["broker-a", "broker-b"]


def test_the_order_conf_of_the_caller_goes_into_the_route(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders")
    route = table.route("orders", order_conf="broker-a:4")
    assert route is not None
    assert route.order_topic_conf == "broker-a:4"


def test_a_route_handed_out_does_not_change_later(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders")
    route = table.existing_route("orders")
    table.register_broker(SLAVE, broker_id=1)
    assert route.broker_datas[0].broker_addrs == {0: MASTER}


def test_permissions_in_a_route_are_plain_numbers(table: ShortcutTable) -> None:
    table.register_broker(MASTER, TopicConfig(topic_name="TBW102", perm=Permission.READ_WRITE | Permission.INHERIT))
    assert type(table.permission("TBW102")) is int
    table.wipe_write_permission("broker-a")
    assert type(table.permission("TBW102")) is int


# -- route versions


def test_an_unchanged_registration_keeps_every_route_version(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", "payments", connection="old", filters=["10.0.0.9:1"])
    before = table.route_version("orders"), table.route_version("payments")
    table.register_broker(MASTER, "orders", "payments", connection="new", filters=["10.0.0.9:1"], now=30.0)
    assert (table.route_version("orders"), table.route_version("payments")) == before


def test_a_changed_table_moves_the_versions_of_changed_topics_only(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", "payments")
    orders, payments = table.route_version("orders"), table.route_version("payments")
    table.register_broker(MASTER, "orders", TopicConfig(topic_name="payments", perm=Permission.READ), version=2)
    assert table.route_version("orders") == orders
    assert table.route_version("payments") != payments


def test_a_new_slave_moves_the_versions_of_its_master_topics_only(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", name="broker-a")
    table.register_broker(OTHER, "payments", name="broker-b")
    orders, payments = table.route_version("orders"), table.route_version("payments")
    table.register_broker(SLAVE, name="broker-a", broker_id=1)
    assert table.route_version("orders") != orders
    assert table.route_version("payments") == payments


def test_a_topic_that_returns_does_not_return_to_an_old_version(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", connection="one")
    before = table.route_version("orders")
    table.drop_connection("one")
    table.register_broker(MASTER, "orders", connection="two")
    assert table.route_version("orders") not in (0, before)


# -- leaving


def test_an_unregistered_broker_leaves_nothing_behind(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", filters=["10.0.0.9:1"])
    assert table.unregister("blue", "broker-a", 0, MASTER)
    assert table.route("orders") is None
    assert table.route_version("orders") == 0
    assert table.topics() == []
    assert table.cluster_map() == ClusterMap()
    assert table.data_version(MASTER) is None


def test_other_brokers_keep_a_topic_when_one_leaves(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", "payments", name="broker-a")
    table.register_broker(OTHER, "orders", name="broker-b")
    table.unregister("blue", "broker-a", 0, MASTER)
    assert [broker.broker_name for broker in table.existing_route("orders").broker_datas] == ["broker-b"]
    assert table.route("payments") is None


def test_a_live_slave_keeps_the_routes_of_a_lost_master(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", connection="one")
    table.register_broker(SLAVE, broker_id=1)
    before = table.route_version("orders")
    assert addresses_of(table.drop_connection("one")) == [MASTER]
    assert table.existing_route("orders").broker_datas[0].broker_addrs == {1: SLAVE}
    assert table.route_version("orders") != before


@pytest.mark.parametrize(
    "wrong",
    [
        ("green", "broker-a", 0, MASTER),
        ("blue", "broker-b", 0, MASTER),
        ("blue", "broker-a", 1, MASTER),
        ("blue", "broker-a", 0, SLAVE),
    ],
)
def test_a_broker_is_unregistered_only_by_its_exact_identity(
    table: ShortcutTable, wrong: tuple[str, str, int, str]
) -> None:
    table.register_broker(MASTER, "orders")
    assert not table.unregister(*wrong)
    assert table.route("orders") is not None


def test_a_closed_connection_drops_every_broker_registered_over_it(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", name="broker-a", connection="shared")
    table.register_broker(OTHER, "orders", name="broker-b", connection="shared")
    assert addresses_of(table.drop_connection("shared")) == [MASTER, OTHER]
    assert table.route("orders") is None
    assert table.drop_connection("shared") == []


def test_the_late_close_of_an_old_connection_drops_no_broker(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", connection="old")
    table.register_broker(MASTER, "orders", connection="new")
    assert table.drop_connection("old") == []
    assert table.route("orders") is not None
    assert addresses_of(table.drop_connection("new")) == [MASTER]


def test_the_connection_of_a_client_drops_no_broker(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders")
    assert table.drop_connection("a client") == []


# -- expiry


def test_a_broker_expires_after_its_own_timeout_and_not_before(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", now=100.0, connection="one")
    table.register_broker(OTHER, "orders", name="broker-b", now=100.0, expiry_seconds=10.0)
    assert addresses_of(table.expire(now=110.5)) == [OTHER]
    assert table.expire(now=220.0) == []
    dropped = table.expire(now=220.5)
    assert [(broker.address, broker.connection) for broker in dropped] == [(MASTER, "one")]
    assert table.route("orders") is None


def test_registrations_and_heartbeats_keep_a_broker_alive(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", now=0.0)
    table.register_broker(MASTER, "orders", now=100.0)
    assert table.expire(now=200.0) == []
    assert table.touch(MASTER, now=200.0)
    assert table.expire(now=320.0) == []


def test_a_heartbeat_of_an_unknown_broker_does_not_register_it(table: ShortcutTable) -> None:
    assert not table.touch(MASTER, now=0.0)
    assert table.cluster_map() == ClusterMap()


def test_a_heartbeat_keeps_the_connection_and_the_route_version(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", connection="one")
    before = table.route_version("orders")
    table.touch(MASTER, now=1.0)
    assert table.route_version("orders") == before
    assert addresses_of(table.drop_connection("one")) == [MASTER]
