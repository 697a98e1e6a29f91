"""Registration: topics from masters, one broker name and id per address, filter servers by address."""

import pytest

from ariane.errors import RequestFailed
from ariane.model.topic import DataVersion, TopicConfig
from ariane.wire.codes import ResponseCode
from tests.nameserver.route_table_fixture import MASTER, OTHER, SLAVE, ShortcutTable, addresses_of


@pytest.fixture
def table() -> ShortcutTable:
    return ShortcutTable()


# -- topics


def test_topics_absent_from_a_later_registration_stay(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", "payments")
    table.register_broker(MASTER, "orders", version=2)
    assert table.topics() == ["orders", "payments"]


def test_a_changed_data_version_updates_queues(table: ShortcutTable) -> None:
    table.register_broker(MASTER, TopicConfig(topic_name="orders", read_queue_nums=4))
    table.register_broker(MASTER, TopicConfig(topic_name="orders", read_queue_nums=8), version=2)
    assert table.existing_route("orders").queue_datas[0].read_queue_nums == 8


def test_an_unchanged_data_version_updates_nothing(table: ShortcutTable) -> None:
    table.register_broker(MASTER, TopicConfig(topic_name="orders", read_queue_nums=4))
    table.register_broker(MASTER, TopicConfig(topic_name="orders", read_queue_nums=8))
    assert table.existing_route("orders").queue_datas[0].read_queue_nums == 4


def test_a_data_version_that_went_back_is_a_change_too(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", version=5)
    table.register_broker(MASTER, "payments", version=4)
    assert table.topics() == ["orders", "payments"]


def test_a_slave_brings_no_topics(table: ShortcutTable) -> None:
    table.register_broker(SLAVE, "orders", broker_id=1)
    assert table.route("orders") is None
    assert table.addresses() == {1: SLAVE}


def test_a_registration_without_a_body_leaves_topics_and_filter_servers_alone(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", filters=["10.0.0.9:1"])
    before = table.existing_route("orders"), table.route_version("orders")
    table.register_broker(MASTER, body=False)
    assert (table.existing_route("orders"), table.route_version("orders")) == before
    assert table.data_version(MASTER) == DataVersion()


def test_after_a_registration_without_a_body_the_next_table_counts(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders")
    table.register_broker(MASTER, body=False)
    table.register_broker(MASTER, "payments")
    assert table.topics() == ["orders", "payments"]


def test_a_new_topic_announced_alone_does_not_hide_the_rest_of_the_table(table: ShortcutTable) -> None:
    """A nameserver that just started gets the increment first, then the whole table under the same version."""
    table.register_broker(MASTER, "new", version=7)
    table.register_broker(MASTER, "new", "orders", "payments", version=7)
    assert table.topics() == ["new", "orders", "payments"]


def test_a_broker_that_comes_back_is_registered_again_at_the_same_version(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", connection="one")
    table.drop_connection("one")
    table.register_broker(MASTER, "orders", connection="two")
    assert table.route("orders") is not None


@pytest.mark.parametrize("name", ["", "two words", "../etc/passwd", "t" * 128])
def test_an_invalid_topic_name_is_reported_and_not_stored(table: ShortcutTable, name: str) -> None:
    result = table.register_broker(MASTER, name, "orders")
    assert list(result.refused_topics) == [name]
    assert "the topic name" in result.refused_topics[name]
    assert table.topics() == ["orders"]


@pytest.mark.parametrize("number", [-1, 2**31])
def test_numbers_beyond_32_bits_are_refused(table: ShortcutTable, number: int) -> None:
    result = table.register_broker(MASTER, TopicConfig(topic_name="orders", read_queue_nums=number))
    assert "must be between 0 and 2147483647" in result.refused_topics["orders"]
    assert table.topics() == []


def test_topics_past_the_limit_are_refused_while_known_ones_are_updated() -> None:
    table = ShortcutTable(topics_max=2)
    table.register_broker(MASTER, "one", "two")
    result = table.register_broker(MASTER, TopicConfig(topic_name="one", read_queue_nums=3), "three", version=2)
    assert result.refused_topics == {"three": "this nameserver already has 2 topics, its limit"}
    assert table.existing_route("one").queue_datas[0].read_queue_nums == 3
    table.delete_topic("two")
    assert table.register_broker(MASTER, "three", version=3).refused_topics == {}


# -- broker names and ids


def test_a_slave_gets_the_address_of_its_master_and_a_master_gets_none(table: ShortcutTable) -> None:
    first = table.register_broker(MASTER)
    assert (first.master_address, first.ha_address) == (None, None)
    slave = table.register_broker(SLAVE, broker_id=1)
    assert (slave.master_address, slave.ha_address) == (MASTER, "10.0.0.1:10912")


def test_a_slave_without_a_live_master_gets_no_address(table: ShortcutTable) -> None:
    table.register_broker(MASTER, connection="one")
    table.register_broker(SLAVE, broker_id=1)
    table.drop_connection("one")
    result = table.register_broker(SLAVE, broker_id=1)
    assert (result.master_address, result.ha_address) == (None, None)


def test_only_the_first_registration_of_a_broker_id_is_first(table: ShortcutTable) -> None:
    assert table.register_broker(SLAVE, broker_id=1).is_first
    assert not table.register_broker(SLAVE, broker_id=1, version=2).is_first
    assert table.register_broker(SLAVE, broker_id=0).is_first


def test_an_address_that_switches_role_leaves_its_former_id(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", connection="one")
    table.register_broker(SLAVE, "orders", "payments", broker_id=1)
    table.drop_connection("one")
    table.register_broker(SLAVE, "orders", "payments", broker_id=0)
    assert table.addresses() == {0: SLAVE}
    assert table.topics() == ["orders", "payments"], "the new master's table counts though its version is unchanged"


def test_the_only_address_of_a_broker_switches_role_without_losing_topics(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders")
    table.register_broker(MASTER, broker_id=2)
    assert table.addresses() == {2: MASTER}
    assert table.route("orders") is not None


def test_two_addresses_swap_roles(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders")
    table.register_broker(SLAVE, "orders", broker_id=1)
    assert addresses_of(list(table.register_broker(SLAVE, "orders", broker_id=0).displaced)) == [MASTER]
    assert table.register_broker(MASTER, "orders", broker_id=1).master_address == SLAVE
    assert table.addresses() == {0: SLAVE, 1: MASTER}


def test_a_master_that_returns_to_its_role_is_accepted_at_its_old_version(table: ShortcutTable) -> None:
    table.register_broker(MASTER, TopicConfig(topic_name="orders", read_queue_nums=4))
    table.register_broker(MASTER, TopicConfig(topic_name="orders", read_queue_nums=4), broker_id=1)
    table.register_broker(OTHER, TopicConfig(topic_name="orders", read_queue_nums=8))
    table.register_broker(MASTER, TopicConfig(topic_name="orders", read_queue_nums=4))
    assert table.existing_route("orders").queue_datas[0].read_queue_nums == 4


def test_a_second_process_with_the_same_id_displaces_the_first(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", connection="one")
    result = table.register_broker(OTHER, "orders", connection="two")
    assert addresses_of(list(result.displaced)) == [MASTER]
    assert table.addresses() == {0: OTHER}
    assert table.data_version(MASTER) is None
    assert table.drop_connection("one") == []
    assert table.route("orders") is not None


def test_an_address_that_registers_under_another_name_leaves_the_former_one(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", name="broker-a")
    result = table.register_broker(MASTER, "payments", name="broker-b")
    assert [gone.broker_name for gone in result.displaced] == ["broker-a"]
    assert table.topics() == ["payments"]
    assert table.cluster_map().cluster_addr_table == {"blue": ["broker-b"]}


def test_a_broker_that_changes_cluster_is_in_the_new_one_only(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", cluster="blue")
    before = table.route_version("orders")
    table.register_broker(MASTER, "orders", cluster="green")
    assert table.cluster_map().cluster_addr_table == {"green": ["broker-a"]}
    assert table.existing_route("orders").broker_datas[0].cluster == "green"
    assert table.route_version("orders") != before


def test_a_full_table_refuses_a_new_address_and_renews_registered_ones() -> None:
    table = ShortcutTable(brokers_max=1)
    table.register_broker(MASTER, "orders")
    with pytest.raises(RequestFailed, match="already has 1 brokers; raise brokers_max") as failure:
        table.register_broker(OTHER, "payments", name="broker-b")
    assert failure.value.code == ResponseCode.SYSTEM_ERROR
    assert table.topics() == ["orders"]
    assert not table.register_broker(MASTER, "orders").is_first


# -- filter servers


def test_filter_servers_are_listed_by_address_and_an_empty_list_removes_them(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", filters=["10.0.0.9:1", "10.0.0.9:2"])
    table.register_broker(SLAVE, broker_id=1)
    assert table.existing_route("orders").filter_server_table == {MASTER: ["10.0.0.9:1", "10.0.0.9:2"]}
    before = table.route_version("orders")
    table.register_broker(MASTER, "orders", filters=[])
    assert table.existing_route("orders").filter_server_table == {}
    assert table.route_version("orders") != before


# -- data versions


def test_a_broker_can_check_whether_its_version_is_known(table: ShortcutTable) -> None:
    table.register_broker(MASTER, "orders", version=3)
    known = table.data_version(MASTER)
    assert known == DataVersion(timestamp=1_700_000_000_000, counter=3)
    assert not table.is_changed(MASTER, known)
    assert table.is_changed(MASTER, DataVersion(timestamp=known.timestamp, counter=4))
    assert table.is_changed(MASTER, DataVersion(timestamp=known.timestamp + 1, counter=3))
    assert table.is_changed(SLAVE, known)
