"""A sink whose topic does not exist yet."""

import pytest

from ariane.client.producer.queue_selection import publish_queues
from ariane.client.settings import ClientSettings
from ariane.errors import NoRoute
from ariane.spark.cluster import Cluster
from ariane.spark.write.sender import route_to_write
from ariane.testing.broker import running_broker


def test_it_is_made_where_sending_makes_topics() -> None:
    with running_broker(auto_create_topics=True) as broker:
        cluster = Cluster(ClientSettings(nameservers=broker.namesrv))
        route = cluster.patiently(lambda: route_to_write(cluster, "brand-new"), 30, "brand-new")
        assert len(publish_queues("brand-new", route)) == 4
        cluster.calls.close()


def test_it_is_refused_elsewhere_and_not_made() -> None:
    with running_broker(auto_create_topics=False) as broker:
        cluster = Cluster(ClientSettings(nameservers=broker.namesrv))
        with pytest.raises(NoRoute, match="no route for topic brand-new"):
            route_to_write(cluster, "brand-new")
        with pytest.raises(NoRoute):
            cluster.route("brand-new", fresh=True)
        cluster.calls.close()
