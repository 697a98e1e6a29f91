"""Routes and cluster maps as text, in the form each client can read.

One flag of queue data has two names: clients before 4.9 read `topicSynFlag`, later ones `topicSysFlag`. We write both
and read either. Broker ids stand without quotes and nothing is blank in the dialect, because Go clients up to 2.1.1 cut
the text by hand; clients from 4.9.4 on may get standard JSON.

    {"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c"}],"filterServerTable":{},
     "queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSynFlag":0,"topicSysFlag":0,"writeQueueNums":8}]}
"""

import msgspec

from ariane.model.route import BrokerData, ClusterMap, QueueData, TopicRoute
from ariane.wire.body import decode_json, encode_json


class _QueueDataText(msgspec.Struct, kw_only=True, rename="camel"):
    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_syn_flag: int
    topic_sys_flag: int


class _RouteText(msgspec.Struct, kw_only=True, rename="camel"):
    queue_datas: list[_QueueDataText]
    broker_datas: list[BrokerData]
    filter_server_table: dict[str, list[str]]
    order_topic_conf: str | None


def encode_route(route: TopicRoute, *, standard: bool) -> bytes:
    """The route for one client: `standard` for those that want proper JSON, the dialect for all others."""
    text = _RouteText(
        queue_datas=[_with_both_flags(queues) for queues in route.queue_datas],
        broker_datas=route.broker_datas,
        filter_server_table=route.filter_server_table,
        order_topic_conf=route.order_topic_conf,
    )
    return encode_json(text, standard=standard)


def decode_route(data: bytes) -> TopicRoute:
    """A route in either form, from a nameserver of any release."""
    return decode_json(data, TopicRoute)


def encode_cluster_map(cluster: ClusterMap) -> bytes:
    """Always in the dialect: no release of the reference writes this body otherwise."""
    return encode_json(cluster)


def decode_cluster_map(data: bytes) -> ClusterMap:
    return decode_json(data, ClusterMap)


def _with_both_flags(queues: QueueData) -> _QueueDataText:
    return _QueueDataText(
        broker_name=queues.broker_name,
        read_queue_nums=queues.read_queue_nums,
        write_queue_nums=queues.write_queue_nums,
        perm=queues.perm,
        topic_syn_flag=queues.topic_sys_flag,
        topic_sys_flag=queues.topic_sys_flag,
    )
