"""Routes, asked of a nameserver."""

from ariane.model.route import ClusterMap, TopicRoute
from ariane.wire.codes import RequestCode
from ariane.wire.declare import ServedBy, request
from ariane.wire.fields import Answer, Request


class RouteAnswer(Answer, frozen=True):
    body: TopicRoute = TopicRoute()


@request(RequestCode.GET_ROUTEINFO_BY_TOPIC, served_by=ServedBy.NAMESERVER)
class GetRoute(Request[RouteAnswer], frozen=True):
    topic: str
    accept_standard_json_only: bool | None = None
    """Set by clients from 4.9.4 on: quoted keys, please."""


class ClusterAnswer(Answer, frozen=True):
    body: ClusterMap = ClusterMap()


@request(RequestCode.GET_BROKER_CLUSTER_INFO, served_by=ServedBy.NAMESERVER)
class GetCluster(Request[ClusterAnswer], frozen=True):
    pass
