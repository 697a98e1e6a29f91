"""Requests about topics: configuration at brokers, lists and routes at nameservers."""

from ariane.model.route import ClusterMap, MessageQueue, TopicRoute
from ariane.model.topic import DataVersion, TopicConfig
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import ServedBy, request
from ariane.wire.fields import Int32, Request, Response
from ariane.wire.json.body import JsonBody

# --- topics of a broker ---


@request(RequestCode.UPDATE_AND_CREATE_TOPIC, served_by=ServedBy.BROKER)
class UpdateTopic(Request[Response], frozen=True, kw_only=True):
    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False


@request(RequestCode.DELETE_TOPIC_IN_BROKER, served_by=ServedBy.BROKER)
class DeleteTopicInBroker(Request[Response], frozen=True):
    topic: str


class TopicTable(JsonBody, frozen=True):
    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = {}
    deleted_topics: dict[str, int] | None = None
    """Only for a slave that asks: by topic, the physical offset below which its messages are deleted."""


class TopicTableResponse(Response, frozen=True):
    body: TopicTable = TopicTable()


@request(RequestCode.GET_ALL_TOPIC_CONFIG, served_by=ServedBy.BROKER)
class GetTopicTable(Request[TopicTableResponse], frozen=True):
    """Also what a slave copies from its master."""

    with_deletions: bool | None = None
    """Whether `deleted_topics` is wanted; brokers of Apache do not know it."""


class TopicConfigResponse(Response, frozen=True):
    body: TopicConfig | None = None


@request(RequestCode.GET_TOPIC_CONFIG, served_by=ServedBy.BROKER)
class GetTopicConfig(Request[TopicConfigResponse], frozen=True):
    """Sent by the administration tool of 5.x."""

    topic: str


class TopicOffset(JsonBody, frozen=True):
    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStats(JsonBody, frozen=True):
    offset_table: dict[MessageQueue, TopicOffset] = {}


class TopicStatsResponse(Response, frozen=True):
    body: TopicStats = TopicStats()


@request(RequestCode.GET_TOPIC_STATS_INFO, served_by=ServedBy.BROKER)
class GetTopicStats(Request[TopicStatsResponse], frozen=True):
    topic: str


# --- lists of topic names ---


class TopicList(JsonBody, frozen=True):
    topic_list: list[str] = []
    broker_addr: str | None = None
    """With the nameserver's system topics: the address of a broker, which lists the others."""


class TopicListResponse(Response, frozen=True):
    body: TopicList = TopicList()


@request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, served_by=ServedBy.BROKER)
class ListSystemTopicsInBroker(Request[TopicListResponse], frozen=True):
    pass


@request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, served_by=ServedBy.NAMESERVER)
class ListSystemTopics(Request[TopicListResponse], frozen=True):
    """The names of clusters and brokers, which are topics too."""


@request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, served_by=ServedBy.NAMESERVER)
class ListTopics(Request[TopicListResponse], frozen=True):
    pass


@request(RequestCode.GET_TOPICS_BY_CLUSTER, served_by=ServedBy.NAMESERVER)
class ListTopicsByCluster(Request[TopicListResponse], frozen=True):
    cluster: str


@request(RequestCode.GET_UNIT_TOPIC_LIST, served_by=ServedBy.NAMESERVER)
class ListUnitTopics(Request[TopicListResponse], frozen=True):
    pass


@request(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, served_by=ServedBy.NAMESERVER)
class ListUnitSubscribedTopics(Request[TopicListResponse], frozen=True):
    pass


@request(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, served_by=ServedBy.NAMESERVER)
class ListUnitSubscribedPlainTopics(Request[TopicListResponse], frozen=True):
    """Topics with a unit subscription that are not unit topics themselves."""


@request(RequestCode.DELETE_TOPIC_IN_NAMESRV, served_by=ServedBy.NAMESERVER)
class DeleteTopicInNameserver(Request[Response], frozen=True):
    """Removes the routes; the next registration of a broker that still has the topic adds them again."""

    topic: str
    cluster_name: str | None = None
    """From 4.9 on: at the brokers of this cluster only."""


# --- routes ---


class RouteResponse(Response, frozen=True):
    body: TopicRoute = TopicRoute()


@request(RequestCode.GET_ROUTEINFO_BY_TOPIC, served_by=ServedBy.NAMESERVER)
class GetRoute(Request[RouteResponse], frozen=True):
    topic: str
    accept_standard_json_only: bool | None = None
    """Set by clients from 4.9.4 on: the route must be standard JSON, with quoted keys."""


class ClusterResponse(Response, frozen=True):
    body: ClusterMap = ClusterMap()


@request(RequestCode.GET_BROKER_CLUSTER_INFO, served_by=ServedBy.NAMESERVER)
class GetCluster(Request[ClusterResponse], frozen=True):
    pass
