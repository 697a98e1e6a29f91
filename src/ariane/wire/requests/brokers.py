"""Requests about brokers and nameservers: registration, settings, key-value pairs, statistics, maintenance.

Settings are sent as the text of a Java properties file: `name=value` lines.
"""

from msgspec import field

from ariane.model.topic import DataVersion
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import ServedBy, request
from ariane.wire.fields import Int32, Int64, Request, Response
from ariane.wire.json.body import JsonBody

# --- key-value pairs of a nameserver ---


@request(RequestCode.PUT_KV_CONFIG, served_by=ServedBy.NAMESERVER)
class PutKeyValue(Request[Response], frozen=True):
    namespace: str
    key: str
    value: str


class KeyValueResponse(Response, frozen=True):
    value: str | None = None


@request(RequestCode.GET_KV_CONFIG, served_by=ServedBy.NAMESERVER)
class GetKeyValue(Request[KeyValueResponse], frozen=True):
    namespace: str
    key: str


@request(RequestCode.DELETE_KV_CONFIG, served_by=ServedBy.NAMESERVER)
class DeleteKeyValue(Request[Response], frozen=True):
    namespace: str
    key: str


class KeyValueTable(JsonBody, frozen=True):
    table: dict[str, str] = {}


class KeyValueTableResponse(Response, frozen=True):
    body: KeyValueTable = KeyValueTable()


@request(RequestCode.GET_KVLIST_BY_NAMESPACE, served_by=ServedBy.NAMESERVER)
class ListKeyValues(Request[KeyValueTableResponse], frozen=True):
    namespace: str


# --- settings ---


class SettingsResponse(Response, frozen=True):
    body: str = ""


@request(RequestCode.GET_NAMESRV_CONFIG, served_by=ServedBy.NAMESERVER)
class GetNameserverSettings(Request[SettingsResponse], frozen=True):
    pass


@request(RequestCode.UPDATE_NAMESRV_CONFIG, served_by=ServedBy.NAMESERVER)
class UpdateNameserverSettings(Request[Response], frozen=True):
    body: str = ""


class BrokerSettingsResponse(Response, frozen=True):
    version: str | None = None
    """A DataVersion as JSON text."""
    body: str = ""


@request(RequestCode.GET_BROKER_CONFIG, served_by=ServedBy.BROKER)
class GetBrokerSettings(Request[BrokerSettingsResponse], frozen=True):
    pass


@request(RequestCode.UPDATE_BROKER_CONFIG, served_by=ServedBy.BROKER)
class UpdateBrokerSettings(Request[Response], frozen=True):
    body: str = ""


# --- registration of brokers ---


class RegisterResponse(Response, frozen=True):
    """For a slave the address of its master; for every broker the ordered-topic configuration, if there is any."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    body: KeyValueTable | None = None


@request(RequestCode.REGISTER_BROKER, served_by=ServedBy.NAMESERVER)
class RegisterBroker(Request[RegisterResponse], frozen=True, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    ha_server_addr: str = ""
    compressed: bool = False
    body_crc32: Int32 = 0
    """0: unchecked."""
    heartbeat_timeout_millis: Int64 | None = None
    """From 5.x: drop the broker after this time without a heartbeat."""
    enable_acting_master: bool | None = None
    """From 5.x."""
    zone_name: str | None = field(name="__ZONE_NAME", default=None)
    """From 5.x."""
    body: bytes = b""
    """Its format depends on the header: `ariane.wire.registration` encodes and decodes it."""


@request(RequestCode.UNREGISTER_BROKER, served_by=ServedBy.NAMESERVER)
class UnregisterBroker(Request[Response], frozen=True, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class DataVersionResponse(Response, frozen=True, kw_only=True):
    changed: bool
    """Whether the broker should register in full."""
    body: DataVersion | None = None
    """The version that the nameserver has."""


@request(RequestCode.QUERY_DATA_VERSION, served_by=ServedBy.NAMESERVER)
class QueryDataVersion(Request[DataVersionResponse], frozen=True, kw_only=True):
    """Also a heartbeat, so a broker without changes need not send its whole table."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    body: DataVersion | None = None


@request(RequestCode.BROKER_HEARTBEAT, served_by=ServedBy.NAMESERVER)
class BrokerHeartbeat(Request[Response], frozen=True, kw_only=True):
    """A plain heartbeat, from brokers of 5.x."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


# --- write permissions, changed in the nameserver's memory ---


class WipedResponse(Response, frozen=True, kw_only=True):
    wipe_topic_count: Int32


@request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, served_by=ServedBy.NAMESERVER)
class WipeWritePermission(Request[WipedResponse], frozen=True):
    """Keeps producers away from a broker, so that it can be stopped without failed sends."""

    broker_name: str


class AddedResponse(Response, frozen=True, kw_only=True):
    add_topic_count: Int32


@request(RequestCode.ADD_WRITE_PERM_OF_BROKER, served_by=ServedBy.NAMESERVER)
class AddWritePermission(Request[AddedResponse], frozen=True):
    broker_name: str


# --- statistics and maintenance of a broker ---


class RuntimeInfoResponse(Response, frozen=True):
    body: KeyValueTable = KeyValueTable()
    """Names and values as the administration tool prints them."""


@request(RequestCode.GET_BROKER_RUNTIME_INFO, served_by=ServedBy.BROKER)
class GetRuntimeInfo(Request[RuntimeInfoResponse], frozen=True):
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


class BrokerStatsResponse(Response, frozen=True):
    body: BrokerStats = BrokerStats()


@request(RequestCode.VIEW_BROKER_STATS_DATA, served_by=ServedBy.BROKER)
class GetBrokerStats(Request[BrokerStatsResponse], frozen=True):
    """`stats_name` is a counter such as TOPIC_PUT_NUMS, `stats_key` a topic or another dimension of that counter."""

    stats_name: str
    stats_key: str


@request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, served_by=ServedBy.BROKER)
class CleanExpiredConsumeQueues(Request[Response], frozen=True):
    pass


@request(RequestCode.CLEAN_UNUSED_TOPIC, served_by=ServedBy.BROKER)
class CleanUnusedTopics(Request[Response], frozen=True):
    """Removes the queues of topics that no longer exist."""


@request(RequestCode.DELETE_EXPIRED_COMMITLOG, served_by=ServedBy.BROKER)
class DeleteExpiredCommitLog(Request[Response], frozen=True):
    pass
