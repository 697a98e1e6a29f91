"""What a registration changes: topics from masters, one place per address, filter servers by address."""

import pytest

from ariane.errors import RequestFailed
from ariane.model.topic import DataVersion, TopicConfig
from ariane.wire.codes import ResponseCode
from tests.nameserver.route_table_fixture import MASTER, OTHER, SLAVE, Nameserver, addresses_of


@pytest.fixture
def table() -> Nameserver:
    return Nameserver()


# -- topics


def test_topics_absent_from_a_later_registration_stay(table: Nameserver) -> None:
    table.hear(MASTER, "orders", "payments")
    table.hear(MASTER, "orders", version=2)
    assert table.topics() == ["orders", "payments"]


def test_a_changed_data_version_updates_queues(table: Nameserver) -> None:
    table.hear(MASTER, TopicConfig(topic_name="orders", read_queue_nums=4))
    table.hear(MASTER, TopicConfig(topic_name="orders", read_queue_nums=8), version=2)
    assert table.known_route("orders").queue_datas[0].read_queue_nums == 8


def test_an_unchanged_data_version_updates_nothing(table: Nameserver) -> None:
    table.hear(MASTER, TopicConfig(topic_name="orders", read_queue_nums=4))
    table.hear(MASTER, TopicConfig(topic_name="orders", read_queue_nums=8))
    assert table.known_route("orders").queue_datas[0].read_queue_nums == 4


def test_a_data_version_that_went_back_is_a_change_too(table: Nameserver) -> None:
    table.hear(MASTER, "orders", version=5)
    table.hear(MASTER, "payments", version=4)
    assert table.topics() == ["orders", "payments"]


def test_a_slave_brings_no_topics(table: Nameserver) -> None:
    table.hear(SLAVE, "orders", broker_id=1)
    assert table.route("orders") is None
    assert table.addresses() == {1: SLAVE}


def test_a_registration_without_a_body_leaves_topics_and_filter_servers_alone(table: Nameserver) -> None:
    table.hear(MASTER, "orders", filters=["10.0.0.9:1"])
    before = table.known_route("orders"), table.route_version("orders")
    table.hear(MASTER, body=False)
    assert (table.known_route("orders"), table.route_version("orders")) == before
    assert table.data_version(MASTER) == DataVersion()


def test_after_a_registration_without_a_body_the_next_table_counts(table: Nameserver) -> None:
    table.hear(MASTER, "orders")
    table.hear(MASTER, body=False)
    table.hear(MASTER, "payments")
    assert table.topics() == ["orders", "payments"]


def test_a_new_topic_announced_alone_does_not_hide_the_rest_of_the_table(table: Nameserver) -> None:
    """A nameserver that just started hears the increment first, then the whole table under the same version."""
    table.hear(MASTER, "new", version=7)
    table.hear(MASTER, "new", "orders", "payments", version=7)
    assert table.topics() == ["new", "orders", "payments"]


def test_a_broker_that_comes_back_is_heard_again_at_the_same_version(table: Nameserver) -> None:
    table.hear(MASTER, "orders", connection="one")
    table.drop_connection("one")
    table.hear(MASTER, "orders", connection="two")
    assert table.route("orders") is not None


@pytest.mark.parametrize("name", ["", "two words", "../etc/passwd", "t" * 128])
def test_an_illegal_topic_name_is_reported_and_not_stored(table: Nameserver, name: str) -> None:
    result = table.hear(MASTER, name, "orders")
    assert list(result.refused_topics) == [name]
    assert "the topic name" in result.refused_topics[name]
    assert table.topics() == ["orders"]


@pytest.mark.parametrize("number", [-1, 2**31])
def test_numbers_that_clients_can_not_hold_are_refused(table: Nameserver, number: int) -> None:
    result = table.hear(MASTER, TopicConfig(topic_name="orders", read_queue_nums=number))
    assert "must be between 0 and 2147483647" in result.refused_topics["orders"]
    assert table.topics() == []


def test_topics_past_the_limit_are_refused_while_known_ones_are_updated() -> None:
    table = Nameserver(topics_max=2)
    table.hear(MASTER, "one", "two")
    result = table.hear(MASTER, TopicConfig(topic_name="one", read_queue_nums=3), "three", version=2)
    assert result.refused_topics == {"three": "this nameserver already holds 2 topics"}
    assert table.known_route("one").queue_datas[0].read_queue_nums == 3
    table.delete_topic("two")
    assert table.hear(MASTER, "three", version=3).refused_topics == {}


# -- places


def test_a_slave_is_told_its_master_and_a_master_is_told_nobody(table: Nameserver) -> None:
    first = table.hear(MASTER)
    assert (first.master_address, first.ha_address) == (None, None)
    slave = table.hear(SLAVE, broker_id=1)
    assert (slave.master_address, slave.ha_address) == (MASTER, "10.0.0.1:10912")


def test_a_slave_without_a_live_master_is_told_nobody(table: Nameserver) -> None:
    table.hear(MASTER, connection="one")
    table.hear(SLAVE, broker_id=1)
    table.drop_connection("one")
    result = table.hear(SLAVE, broker_id=1)
    assert (result.master_address, result.ha_address) == (None, None)


def test_only_the_first_registration_of_a_place_is_first(table: Nameserver) -> None:
    assert table.hear(SLAVE, broker_id=1).is_first
    assert not table.hear(SLAVE, broker_id=1, version=2).is_first
    assert table.hear(SLAVE, broker_id=0).is_first


def test_an_address_that_switches_role_leaves_its_former_id(table: Nameserver) -> None:
    table.hear(MASTER, "orders", connection="one")
    table.hear(SLAVE, "orders", "payments", broker_id=1)
    table.drop_connection("one")
    table.hear(SLAVE, "orders", "payments", broker_id=0)
    assert table.addresses() == {0: SLAVE}
    assert table.topics() == ["orders", "payments"], "the new master's table counts though its version is unchanged"


def test_the_only_address_of_a_broker_switches_role_without_losing_topics(table: Nameserver) -> None:
    table.hear(MASTER, "orders")
    table.hear(MASTER, broker_id=2)
    assert table.addresses() == {2: MASTER}
    assert table.route("orders") is not None


def test_two_addresses_swap_roles(table: Nameserver) -> None:
    table.hear(MASTER, "orders")
    table.hear(SLAVE, "orders", broker_id=1)
    assert addresses_of(list(table.hear(SLAVE, "orders", broker_id=0).displaced)) == [MASTER]
    assert table.hear(MASTER, "orders", broker_id=1).master_address == SLAVE
    assert table.addresses() == {0: SLAVE, 1: MASTER}


def test_a_master_that_returns_to_its_role_is_heard_at_its_old_version(table: Nameserver) -> None:
    table.hear(MASTER, TopicConfig(topic_name="orders", read_queue_nums=4))
    table.hear(MASTER, TopicConfig(topic_name="orders", read_queue_nums=4), broker_id=1)
    table.hear(OTHER, TopicConfig(topic_name="orders", read_queue_nums=8))
    table.hear(MASTER, TopicConfig(topic_name="orders", read_queue_nums=4))
    assert table.known_route("orders").queue_datas[0].read_queue_nums == 4


def test_a_second_process_with_the_same_id_displaces_the_first(table: Nameserver) -> None:
    table.hear(MASTER, "orders", connection="one")
    result = table.hear(OTHER, "orders", connection="two")
    assert addresses_of(list(result.displaced)) == [MASTER]
    assert table.addresses() == {0: OTHER}
    assert table.data_version(MASTER) is None
    assert table.drop_connection("one") == []
    assert table.route("orders") is not None


def test_an_address_that_registers_under_another_name_leaves_the_former_one(table: Nameserver) -> None:
    table.hear(MASTER, "orders", name="broker-a")
    result = table.hear(MASTER, "payments", name="broker-b")
    assert [gone.broker_name for gone in result.displaced] == ["broker-a"]
    assert table.topics() == ["payments"]
    assert table.cluster_map().cluster_addr_table == {"blue": ["broker-b"]}


def test_a_broker_that_changes_cluster_is_in_the_new_one_only(table: Nameserver) -> None:
    table.hear(MASTER, "orders", cluster="blue")
    before = table.route_version("orders")
    table.hear(MASTER, "orders", cluster="green")
    assert table.cluster_map().cluster_addr_table == {"green": ["broker-a"]}
    assert table.known_route("orders").broker_datas[0].cluster == "green"
    assert table.route_version("orders") != before


def test_a_full_table_refuses_a_new_address_and_renews_known_ones() -> None:
    table = Nameserver(brokers_max=1)
    table.hear(MASTER, "orders")
    with pytest.raises(RequestFailed, match="already holds 1 brokers; raise its limit") as failure:
        table.hear(OTHER, "payments", name="broker-b")
    assert failure.value.code == ResponseCode.SYSTEM_ERROR
    assert table.topics() == ["orders"]
    assert not table.hear(MASTER, "orders").is_first


# -- filter servers


def test_filter_servers_are_told_by_address_and_an_empty_list_removes_them(table: Nameserver) -> None:
    table.hear(MASTER, "orders", filters=["10.0.0.9:1", "10.0.0.9:2"])
    table.hear(SLAVE, broker_id=1)
    assert table.known_route("orders").filter_server_table == {MASTER: ["10.0.0.9:1", "10.0.0.9:2"]}
    before = table.route_version("orders")
    table.hear(MASTER, "orders", filters=[])
    assert table.known_route("orders").filter_server_table == {}
    assert table.route_version("orders") != before


# -- data versions


def test_a_broker_asks_whether_its_version_is_known(table: Nameserver) -> None:
    table.hear(MASTER, "orders", version=3)
    known = table.data_version(MASTER)
    assert known == DataVersion(timestamp=1_700_000_000_000, counter=3)
    assert not table.is_changed(MASTER, known)
    assert table.is_changed(MASTER, DataVersion(timestamp=known.timestamp, counter=4))
    assert table.is_changed(MASTER, DataVersion(timestamp=known.timestamp + 1, counter=3))
    assert table.is_changed(SLAVE, known)
