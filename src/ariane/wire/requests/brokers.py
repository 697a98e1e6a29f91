"""What brokers tell nameservers: that they live, and which topics they hold."""

from msgspec import field

from ariane.model.topic import DataVersion
from ariane.wire.codes import RequestCode
from ariane.wire.declare import ServedBy, request
from ariane.wire.fields import Answer, Int32, Int64, Request
from ariane.wire.requests.configs import KeyValueTable


class RegisterAnswer(Answer, frozen=True):
    """A slave learns where its master is; every broker gets the order settings of topics, if there are any."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    body: KeyValueTable | None = None


@request(RequestCode.REGISTER_BROKER, served_by=ServedBy.NAMESERVER)
class RegisterBroker(Request[RegisterAnswer], frozen=True, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    ha_server_addr: str = ""
    compressed: bool = False
    body_crc32: Int32 = 0
    """0: unchecked."""
    heartbeat_timeout_millis: Int64 | None = None
    """From 5.x: forget me after so long a silence."""
    enable_acting_master: bool | None = None
    """From 5.x."""
    zone_name: str | None = field(name="__ZONE_NAME", default=None)
    """From 5.x."""
    body: bytes = b""
    """Its form depends on the header: `ariane.wire.registration` reads and writes it."""


@request(RequestCode.UNREGISTER_BROKER, served_by=ServedBy.NAMESERVER)
class UnregisterBroker(Request[Answer], frozen=True, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class DataVersionAnswer(Answer, frozen=True, kw_only=True):
    changed: bool
    """Whether the broker should register in full."""
    body: DataVersion | None = None
    """The version that the nameserver knows."""


@request(RequestCode.QUERY_DATA_VERSION, served_by=ServedBy.NAMESERVER)
class QueryDataVersion(Request[DataVersionAnswer], frozen=True, kw_only=True):
    """Also a sign of life, so a broker with nothing new to tell need not send its whole table."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    body: DataVersion | None = None


@request(RequestCode.BROKER_HEARTBEAT, served_by=ServedBy.NAMESERVER)
class BrokerHeartbeat(Request[Answer], frozen=True, kw_only=True):
    """A sign of life and nothing else, from brokers of 5.x."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


# --- permissions, changed in the nameserver's memory


class WipedAnswer(Answer, frozen=True, kw_only=True):
    wipe_topic_count: Int32


@request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, served_by=ServedBy.NAMESERVER)
class WipeWritePermission(Request[WipedAnswer], frozen=True):
    """Takes a broker out of all sends, so that it can be stopped without a failed one."""

    broker_name: str


class AddedAnswer(Answer, frozen=True, kw_only=True):
    add_topic_count: Int32


@request(RequestCode.ADD_WRITE_PERM_OF_BROKER, served_by=ServedBy.NAMESERVER)
class AddWritePermission(Request[AddedAnswer], frozen=True):
    broker_name: str
