"""Requests about consumer groups: configuration, progress and lag."""

from ariane.model.group import GroupConfig
from ariane.model.route import MessageQueue
from ariane.model.topic import DataVersion
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import ServedBy, request
from ariane.wire.fields import Request, Response
from ariane.wire.json.body import JsonBody

# --- configuration ---


@request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, served_by=ServedBy.BROKER)
class UpdateGroup(Request[Response], frozen=True):
    body: GroupConfig | None = None


@request(RequestCode.DELETE_SUBSCRIPTIONGROUP, served_by=ServedBy.BROKER)
class DeleteGroup(Request[Response], frozen=True):
    group_name: str
    remove_offset: bool | None = None
    """From 4.9 on: delete its offsets too."""
    clean_offset: bool | None = None
    """The name of `remove_offset` in 5.x."""


class GroupTable(JsonBody, frozen=True):
    data_version: DataVersion = DataVersion()
    subscription_group_table: dict[str, GroupConfig] = {}


class GroupTableResponse(Response, frozen=True):
    body: GroupTable = GroupTable()


@request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, served_by=ServedBy.BROKER)
class GetGroupTable(Request[GroupTableResponse], frozen=True):
    pass


class GroupConfigResponse(Response, frozen=True):
    body: GroupConfig | None = None


@request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, served_by=ServedBy.BROKER)
class GetGroupConfig(Request[GroupConfigResponse], frozen=True):
    """Sent by the administration tool of 5.x."""

    group: str


# --- progress ---


class OffsetPair(JsonBody, frozen=True):
    """The end offset of a queue, and the committed offset of a group."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(JsonBody, frozen=True):
    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetPair] = {}


class ConsumeStatsResponse(Response, frozen=True):
    body: ConsumeStats = ConsumeStats()


@request(RequestCode.GET_CONSUME_STATS, served_by=ServedBy.BROKER)
class GetConsumeStats(Request[ConsumeStatsResponse], frozen=True):
    consumer_group: str
    topic: str | None = None
    """None or empty: every topic in which the group has offsets."""


class BrokerConsumeStats(JsonBody, frozen=True):
    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    total_diff: int = 0


class BrokerConsumeStatsResponse(Response, frozen=True):
    body: BrokerConsumeStats = BrokerConsumeStats()


@request(RequestCode.GET_BROKER_CONSUME_STATS, served_by=ServedBy.BROKER)
class GetBrokerConsumeStats(Request[BrokerConsumeStatsResponse], frozen=True):
    """The progress of every group at once."""

    is_order: bool = False


class GroupList(JsonBody, frozen=True):
    group_list: list[str] = []


class GroupListResponse(Response, frozen=True):
    body: GroupList = GroupList()


@request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, served_by=ServedBy.BROKER)
class ListGroupsOfTopic(Request[GroupListResponse], frozen=True):
    """Groups that are connected now, or have offsets."""

    topic: str


class QueueTimeSpan(JsonBody, frozen=True):
    message_queue: MessageQueue | None = None
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class ConsumeTimeSpans(JsonBody, frozen=True):
    consume_time_span_set: list[QueueTimeSpan] = []


class ConsumeTimeSpansResponse(Response, frozen=True):
    body: ConsumeTimeSpans = ConsumeTimeSpans()


@request(RequestCode.QUERY_CONSUME_TIME_SPAN, served_by=ServedBy.BROKER)
class GetConsumeTimeSpans(Request[ConsumeTimeSpansResponse], frozen=True):
    """Of each queue: the times of its oldest and newest message, and of the one that the group consumed last."""

    topic: str
    group: str
