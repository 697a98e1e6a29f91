"""What a broker can be told. The RocketMQ keys that it knows but does not use are in unsupported_settings.py."""

import socket
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ariane.errors import SettingsError
from ariane.model.address import Address
from ariane.model.system_topics import TRACE
from ariane.model.topic import Permission
from ariane.settings import Key, setting
from ariane.store.settings import StoreSettings
from ariane.transport.settings import TlsSettings, TransportSettings

NAME_LENGTH_MAX = 255
DAY_S = 86_400
VIP_PORT_DISTANCE = 2
"""Clients that use the VIP channel take 2 from the port that the route tells them."""


class BrokerRole(StrEnum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class MetricsExporter(StrEnum):
    DISABLE = "DISABLE"
    PROM = "PROM"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    # --- who it is and where it listens

    cluster: str = setting("DefaultCluster", key="brokerClusterName", doc="The cluster that this broker belongs to.")
    name: str = setting(
        "",
        key="brokerName",
        doc="Name of this broker in routes. Two brokers of one name and id push each other out of the nameserver, so "
        "the name of the host stands in for a name that is not given, as in Apache.",
    )
    broker_id: int = setting(
        0, key="brokerId", minimum=0, maximum=2**31 - 1, doc="0 is a master; a slave needs replication, not built yet."
    )
    role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER,
        key="brokerRole",
        doc="SYNC_MASTER and SLAVE promise a copy on another machine. There is no replication yet, so both are refused "
        "rather than taken for something weaker.",
    )
    host: str = setting(
        "127.0.0.1",
        key="bindAddress",
        doc="Address to listen on; 0.0.0.0 or :: for every one. Apache's default is 0.0.0.0; ours is this machine only,"
        " because without access control a broker obeys whoever reaches it.",
    )
    port: int = setting(
        10911,
        key="listenPort",
        minimum=0,
        maximum=65_535,
        doc="Port to listen on, and two below it for the VIP channel of clients. 0 takes a free pair.",
    )
    advertised_host: str | None = setting(
        None,
        key="brokerIP1",
        doc="Address that clients are told: an IP address, or a name that resolves. Not set: the address listened on, "
        "or, when that is every address, the one from which the first nameserver is reached.",
    )
    advertised_port: int | None = setting(
        None,
        minimum=1,
        maximum=65_535,
        doc="Port that clients are told, when a proxy or a container maps it. Not set: the port listened on.",
    )
    namesrv_addr: str | None = setting(
        None,
        key="namesrvAddr",
        doc="Nameservers to register with, HOST:PORT, several separated by semicolons. Not set: clients must be given "
        "a route by other means, so this is for tests.",
    )

    # --- topics

    permission: int = setting(
        int(Permission.READ_WRITE),
        key="brokerPermission",
        minimum=0,
        maximum=6,
        reloadable=True,
        doc="What this broker lets do with all of its topics: 6 read and write, 4 read only, 2 write only. 4 takes it "
        "out of all sends before it is stopped for good.",
    )
    auto_create_topics: bool = setting(
        False,
        key="autoCreateTopicEnable",
        doc="Make a topic when somebody sends to it. Apache's default is true; ours is false, because such topics "
        "exist only on the brokers that got the first messages, and a misspelt name becomes a topic.",
    )
    default_topic_queues: int = setting(
        8,
        key="defaultTopicQueueNums",
        minimum=1,
        maximum=1024,
        doc="Most queues of a topic that is made by sending; the producer may ask for fewer (4 by default).",
    )
    cluster_topic: bool = setting(
        True, key="clusterTopicEnable", doc="Whether the topic named after the cluster can be read and written."
    )
    broker_topic: bool = setting(
        True, key="brokerTopicEnable", doc="Whether the topic named after the broker can be read and written."
    )
    topics_max: int = setting(
        100_000,
        minimum=100,
        maximum=1_000_000,
        doc="Most topics. More are refused: retry topics are made by clients, and memory is not endless.",
    )
    trace_topic: str = setting(TRACE, key="msgTraceTopicName", doc="Topic that message traces go to.")
    trace_topic_enable: bool = setting(
        True, key="traceTopicEnable", doc="Make the trace topic at start. Apache's default is false."
    )

    # --- sending

    accept_sends_from_ms: int = setting(
        0,
        key="startAcceptSendRequestTimeStamp",
        minimum=0,
        doc="Sends before this time (ms since 1970) are refused; 0 refuses none.",
    )
    send_wait_max_ms: int = setting(
        200,
        key="waitTimeMillsInSendQueue",
        minimum=1,
        maximum=600_000,
        reloadable=True,
        doc="A send that would wait longer than this for its turn is refused with SYSTEM_BUSY.",
    )
    region_id: str = setting("DefaultRegion", key="regionId", doc="Region that messages and answers are marked with.")
    trace_on: bool = setting(True, key="traceOn", reloadable=True, doc="Whether clients are told to report traces.")
    store_replies: bool = setting(
        True,
        key="storeReplyMessageEnable",
        reloadable=True,
        doc="Whether replies of request-reply are stored as well as pushed, so that they can be looked up.",
    )

    # --- pulling

    long_polling: bool = setting(
        True,
        key="longPollingEnable",
        reloadable=True,
        doc="Let a pull that finds nothing wait for a message as long as the client asks; false: short_polling_ms.",
    )
    short_polling_ms: int = setting(
        1_000,
        key="shortPollingTimeMills",
        minimum=1,
        maximum=60_000,
        reloadable=True,
        doc="How long a pull that finds nothing waits when long polling is off.",
    )
    slave_read: bool = setting(
        False, key="slaveReadEnable", doc="Whether consumers that are far behind are sent to a slave."
    )
    property_filter: bool = setting(
        True,
        key="enablePropertyFilter",
        doc="Allow SQL92 subscriptions. Apache's default is false, and its users find that out by a failing consumer.",
    )
    filter_retries: bool = setting(
        False, key="filterSupportRetry", doc="Whether SQL92 filters also apply to messages that are tried again."
    )

    # --- groups

    auto_create_groups: bool = setting(
        True,
        key="autoCreateSubscriptionGroup",
        reloadable=True,
        doc="Make a consumer group when its first member appears.",
    )
    notify_ids_changed: bool = setting(
        True,
        key="notifyConsumerIdsChangedEnable",
        reloadable=True,
        doc="Tell the members of a group at once when it changes, so that they share out its queues again.",
    )
    offsets_save_interval_s: float = setting(
        5.0,
        key=Key("flushConsumerOffsetInterval", per_unit=1000),
        minimum=0.01,
        maximum=600,
        doc="Time between two saves of consumer offsets: what a crash makes groups consume again.",
    )

    # --- delay and transactions

    delay_offsets_save_interval_s: float = setting(
        10.0,
        key=Key("flushDelayOffsetInterval", per_unit=1000),
        minimum=0.01,
        maximum=600,
        doc="Time between two saves of how far each delay level has been delivered.",
    )
    timer_enable: bool = setting(
        True, key="timerWheelEnable", doc="Take messages with a delivery time of their own (deliver_at)."
    )
    timer_delay_max_s: int = setting(
        7 * DAY_S,
        key="timerMaxDelaySec",
        minimum=1,
        maximum=365 * DAY_S,
        doc="Longest delay of a message with a delivery time. Apache's default is 3 days.",
    )
    reject_transactions: bool = setting(
        False, key="rejectTransactionMessage", reloadable=True, doc="Refuse transactional messages."
    )
    transaction_timeout_s: float = setting(
        6.0,
        key=Key("transactionTimeOut", per_unit=1000),
        minimum=0.001,
        maximum=DAY_S,
        reloadable=True,
        doc="Age at which a half message without an outcome is asked about.",
    )
    transaction_check_max: int = setting(
        15,
        key="transactionCheckMax",
        minimum=1,
        maximum=1_000,
        reloadable=True,
        doc="How often the producer is asked before the message is given up and put aside.",
    )
    transaction_check_interval_s: float = setting(
        60.0,
        key=Key("transactionCheckInterval", per_unit=1000),
        minimum=0.001,
        maximum=DAY_S,
        doc="Time between two rounds of such questions.",
    )

    # --- nameservers

    register_interval_s: float = setting(
        30.0,
        key=Key("registerNameServerPeriod", per_unit=1000),
        minimum=10,
        maximum=60,
        doc="Time between two registrations. A nameserver forgets a broker after 120 s.",
    )
    register_timeout_s: float = setting(
        6.0,
        key=Key("registerBrokerTimeoutMills", per_unit=1000),
        minimum=0.1,
        maximum=60,
        doc="Time for a nameserver's answer to a registration.",
    )
    force_register: bool = setting(
        True,
        key="forceRegister",
        doc="Register with the whole topic table each time; false: only when the nameserver has another version.",
    )
    compressed_register: bool = setting(
        False,
        key="compressedRegister",
        doc="Send the topic table compressed. That form has no room for the flags of ordered and unit topics.",
    )

    # --- access

    acl_enable: bool = setting(
        False, key="aclEnable", doc="Demand a signature of every request and look up what its account may do."
    )
    acl_file: Path = setting(
        Path("conf/plain_acl.yml"),
        key="rocketmq.acl.plain.file",
        doc="Accounts and white lists, in Apache's format. The key is the Java property that names it for Apache.",
    )

    # --- metrics

    metrics_exporter: MetricsExporter = setting(
        MetricsExporter.DISABLE,
        key="metricsExporterType",
        doc="PROM serves the numbers of docs/metrics.md at http://HOST:PORT/metrics. Off by default, as in Apache: the "
        "page names topics and groups and asks nobody who they are.",
    )
    metrics_host: str | None = setting(
        None,
        key="metricsPromExporterHost",
        doc="Address to serve the page of metrics on. Not set: the one that the broker listens on.",
    )
    metrics_port: int = setting(
        5557,
        key="metricsPromExporterPort",
        minimum=0,
        maximum=65_535,
        doc="Port of the page of metrics; 0 takes a free one, which is told in the log.",
    )
    metrics_series_max: int = setting(
        10_000,
        key="metricsOtelCardinalityLimit",
        minimum=100,
        maximum=1_000_000,
        doc="Most label sets of one metric. What is left out is counted in ariane_metrics_cut_series. Apache's default "
        "is 50000.",
    )

    store: StoreSettings = field(default_factory=StoreSettings)
    transport: TransportSettings = field(default_factory=TransportSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", socket.gethostname() or "broker-a")
        _check_name("brokerName", self.name)
        _check_name("brokerClusterName", self.cluster)
        _check_is_master(self.role, self.broker_id)
        _check_port(self.port)
        self.nameservers  # noqa: B018 - an address that cannot be read is told now, not at the first registration

    @property
    def nameservers(self) -> tuple[str, ...]:
        return _nameservers(self.namesrv_addr or "")

    @property
    def advertised(self) -> Address:
        """What clients are told. Checked, and with the real port, once the broker has started (advertise.py)."""
        return Address(self.advertised_host or self.host, self.advertised_port or self.port)


def _check_name(key: str, name: str) -> None:
    if len(name) > NAME_LENGTH_MAX or not name.isprintable() or any(char in name for char in " ;:@"):
        raise SettingsError(
            f"{key} = {name[:80]!r}: expected 1 to {NAME_LENGTH_MAX} printable characters without blanks, ';', ':' and "
            "'@', which part names in routes and tables"
        )


def _check_is_master(role: BrokerRole, broker_id: int) -> None:
    if role is not BrokerRole.ASYNC_MASTER:
        raise SettingsError(
            f"brokerRole = {role}: replication is not built yet, so messages would not be where this promises them; "
            "set brokerRole to ASYNC_MASTER"
        )
    if broker_id != 0:
        raise SettingsError(f"brokerId = {broker_id} is a slave's, and replication is not built yet; set brokerId to 0")


def _check_port(port: int) -> None:
    if 0 < port <= VIP_PORT_DISTANCE:
        raise SettingsError(f"listenPort = {port}: the VIP port is two below it; take 3 or above, or 0 for a free pair")


def _nameservers(text: str) -> tuple[str, ...]:
    words = [word.strip() for word in text.split(";") if word.strip()]
    for word in words:
        try:
            address = Address.parse(word)
        except ValueError as error:
            raise SettingsError(f"namesrvAddr: {error}; several are separated by semicolons") from error
        if "," in word or " " in word:
            raise SettingsError(f"namesrvAddr: {word!r} is no address; several are separated by semicolons")
        if not address.host or not address.port:
            raise SettingsError(f"namesrvAddr: {word!r} lacks a host or a port, for example 127.0.0.1:9876")
    return tuple(dict.fromkeys(words))
