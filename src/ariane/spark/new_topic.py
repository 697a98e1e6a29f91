"""A topic that is written to before it exists: made where brokers let sending make topics, refused elsewhere.

It is made at all of those brokers at once. A producer's first send makes it at one of them, and from then on everything
goes there.
"""

from ariane.errors import NoRoute
from ariane.model.route import MASTER_ID, TopicRoute
from ariane.model.topic import AUTO_CREATE_TEMPLATE, Permission, TopicFilterType
from ariane.spark.cluster import Cluster
from ariane.wire.requests.topics import UpdateTopic

_QUEUES = 4


def route_to_write(cluster: Cluster, topic: str, *, fresh: bool = False) -> TopicRoute:
    """NoRoute, which may be tried again, until the nameserver knows what was just made."""
    try:
        return cluster.route(topic, fresh=fresh)
    except NoRoute as missing:
        try:
            template = cluster.route(AUTO_CREATE_TEMPLATE, fresh=True)
        except NoRoute:
            raise missing from None
        for broker in template.broker_datas:
            if MASTER_ID in broker.broker_addrs:
                make_topic(cluster, broker.broker_addrs[MASTER_ID], topic, _QUEUES)
        return cluster.route(topic)


def make_topic(cluster: Cluster, address: str, topic: str, queues: int) -> None:
    ask = UpdateTopic(
        topic=topic,
        default_topic=AUTO_CREATE_TEMPLATE,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=int(Permission.READ_WRITE),
        topic_filter_type=TopicFilterType.SINGLE_TAG,
    )
    cluster.calls.call(address, ask)
