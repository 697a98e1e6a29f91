"""How a broker is doing, and house-keeping on demand."""

from ariane.wire.body import JsonBody
from ariane.wire.codes import RequestCode
from ariane.wire.declare import ServedBy, request
from ariane.wire.fields import Answer, Request
from ariane.wire.requests.configs import KeyValueTable


class RuntimeInfoAnswer(Answer, frozen=True):
    body: KeyValueTable = KeyValueTable()
    """Names and values as the administration tool prints them."""


@request(RequestCode.GET_BROKER_RUNTIME_INFO, served_by=ServedBy.BROKER)
class GetRuntimeInfo(Request[RuntimeInfoAnswer], frozen=True):
    pass


class StatsItem(JsonBody, frozen=True):
    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0
    """The average of one event: bytes, or milliseconds."""


class BrokerStats(JsonBody, frozen=True):
    stats_minute: StatsItem = StatsItem()
    stats_hour: StatsItem = StatsItem()
    stats_day: StatsItem = StatsItem()


class BrokerStatsAnswer(Answer, frozen=True):
    body: BrokerStats = BrokerStats()


@request(RequestCode.VIEW_BROKER_STATS_DATA, served_by=ServedBy.BROKER)
class GetBrokerStats(Request[BrokerStatsAnswer], frozen=True):
    """`stats_name` is a counter such as TOPIC_PUT_NUMS, `stats_key` a topic or what else that counter counts by."""

    stats_name: str
    stats_key: str


@request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, served_by=ServedBy.BROKER)
class CleanExpiredConsumeQueues(Request[Answer], frozen=True):
    pass


@request(RequestCode.CLEAN_UNUSED_TOPIC, served_by=ServedBy.BROKER)
class CleanUnusedTopics(Request[Answer], frozen=True):
    """Removes the queues of topics that no longer exist."""


@request(RequestCode.DELETE_EXPIRED_COMMITLOG, served_by=ServedBy.BROKER)
class DeleteExpiredCommitLog(Request[Answer], frozen=True):
    pass
