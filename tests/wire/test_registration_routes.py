"""The JSON of routes and cluster maps, for old and new clients."""

import json
import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import FieldError, WireError
from ariane.model.route import BrokerData, ClusterMap, QueueData, TopicRoute
from ariane.model.topic import Permission
from ariane.wire.json.body import decode_json
from ariane.wire.registration import decode_cluster_map, decode_route, encode_cluster_map, encode_route
from tests.wire.golden_bodies import bodies_of, damaged

ROUTE = TopicRoute(
    broker_datas=[
        BrokerData(cluster="c", broker_name="broker-a", broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
    ],
    queue_datas=[
        QueueData(
            broker_name="broker-a", perm=Permission.READ_WRITE, read_queue_nums=8, write_queue_nums=4, topic_sys_flag=3
        )
    ],
)
RECORDED_ROUTES = bodies_of(105, is_response=True)
RECORDED_CLUSTERS = bodies_of(106, is_response=True)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
counts = st.integers(0, 2**31 - 1)
queues = st.builds(
    QueueData,
    broker_name=names,
    perm=counts,
    read_queue_nums=counts,
    write_queue_nums=counts,
    topic_sys_flag=counts,
)
brokers = st.builds(
    BrokerData, cluster=names, broker_name=names, broker_addrs=st.dictionaries(st.integers(0, 9), names, max_size=3)
)
routes = st.builds(
    TopicRoute,
    queue_datas=st.lists(queues, max_size=3),
    broker_datas=st.lists(brokers, max_size=3),
    filter_server_table=st.dictionaries(names, st.lists(names, max_size=2), max_size=2),
    order_topic_conf=st.none() | names,
)


def test_trap_03_route_json_unquoted_ids_no_whitespace_for_old_clients() -> None:
    assert encode_route(ROUTE, standard=False) == (
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"c"}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSynFlag":3,'
        b'"topicSysFlag":3,"writeQueueNums":4}]}'
    )


def test_trap_03_old_go_clients_can_split_the_broker_addresses() -> None:
    text = encode_route(ROUTE, standard=False).decode()
    (addresses,) = re.findall(r'"brokerAddrs":\{(.*?)\}', text)
    assert {int(part.split(":", 1)[0]): part.split('"')[1] for part in addresses.split(",")} == {
        0: "10.0.0.1:10911",
        1: "10.0.0.2:10911",
    }


def test_trap_03_new_clients_get_standard_json_with_quoted_ids() -> None:
    text = encode_route(ROUTE, standard=True)
    assert json.loads(text)["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}
    assert b" " not in text


@pytest.mark.parametrize("standard", [False, True])
def test_trap_03_both_names_of_the_flag_are_written(standard: bool) -> None:
    text = encode_route(ROUTE, standard=standard)
    assert b'"topicSynFlag":3,"topicSysFlag":3,' in text


@pytest.mark.parametrize(
    "flags", ['"topicSynFlag":3', '"topicSysFlag":3', '"topicSynFlag":3,"topicSysFlag":3', '"topicSynFlag":"3"']
)
def test_trap_03_either_name_of_the_flag_is_read(flags: str) -> None:
    text = f'{{"queueDatas":[{{"brokerName":"b","perm":6,"readQueueNums":8,"writeQueueNums":8,{flags}}}]}}'.encode()
    for route in (decode_route(text), decode_json(text, TopicRoute)):
        assert route.queue_datas == [
            QueueData(broker_name="b", perm=6, read_queue_nums=8, write_queue_nums=8, topic_sys_flag=3)
        ]


@pytest.mark.parametrize("data", RECORDED_ROUTES)
def test_every_recorded_route_is_read_and_keeps_its_meaning(data: bytes) -> None:
    route = decode_route(data)
    assert decode_json(data, TopicRoute) == route
    assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:20911"}
    assert route.queue_datas[0].broker_name == route.broker_datas[0].broker_name
    for standard in (False, True):
        assert decode_route(encode_route(route, standard=standard)) == route


def test_the_recording_contains_routes_in_both_forms() -> None:
    assert any(b"{0:" in data for data in RECORDED_ROUTES)
    assert any(b'{"0":' in data for data in RECORDED_ROUTES)


def test_order_conf_and_filter_servers_are_kept() -> None:
    route = TopicRoute(order_topic_conf="broker-a:4", filter_server_table={"10.0.0.1:10911": ["10.0.0.1:30000"]})
    assert encode_route(route, standard=False) == (
        b'{"brokerDatas":[],"filterServerTable":{"10.0.0.1:10911":["10.0.0.1:30000"]},"orderTopicConf":"broker-a:4",'
        b'"queueDatas":[]}'
    )


def test_members_of_later_releases_are_ignored() -> None:
    data = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c","enableActingMaster":false}],'
        b'"filterServerTable":null,"queueDatas":[],"topicQueueMappingByBroker":{}}'
    )
    assert decode_route(data) == TopicRoute(
        broker_datas=[BrokerData(cluster="c", broker_name="b", broker_addrs={0: "a:1"})]
    )


def test_a_broker_id_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(FieldError, match=r"\$\.brokerDatas\[0\]\.brokerAddrs\.master"):
        decode_route(b'{"brokerDatas":[{"brokerAddrs":{"master":"a:1"},"brokerName":"b","cluster":"c"}]}')


@given(routes, st.booleans())
def test_any_route_is_read_back(route: TopicRoute, standard: bool) -> None:
    assert decode_route(encode_route(route, standard=standard)) == route


@given(st.binary(max_size=100) | damaged(tuple(RECORDED_ROUTES + RECORDED_CLUSTERS)))
@settings(deadline=None)
def test_any_bytes_are_a_route_or_a_wire_error(data: bytes) -> None:
    with suppress(WireError):
        route = decode_route(data)
        assert decode_route(encode_route(route, standard=False)) == route
    with suppress(WireError):
        cluster = decode_cluster_map(data)
        assert decode_cluster_map(encode_cluster_map(cluster)) == cluster


@pytest.mark.parametrize("data", RECORDED_CLUSTERS)
def test_every_recorded_cluster_map_is_written_unchanged(data: bytes) -> None:
    assert encode_cluster_map(decode_cluster_map(data)) == data


def test_a_cluster_map_is_never_standard_json() -> None:
    cluster = ClusterMap(
        broker_addr_table={"b": BrokerData(cluster="c", broker_name="b", broker_addrs={0: "10.0.0.1:10911"})},
        cluster_addr_table={"c": ["b"]},
    )
    assert encode_cluster_map(cluster) == (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"b","cluster":"c"}},'
        b'"clusterAddrTable":{"c":["b"]}}'
    )
    assert decode_cluster_map(encode_cluster_map(cluster)) == cluster
