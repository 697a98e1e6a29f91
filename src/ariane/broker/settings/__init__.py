"""Broker settings. rocketmq_keys.py lists the RocketMQ keys that are recognised but not used."""

import socket
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ariane.errors import SettingsError
from ariane.model.address import Address
from ariane.model.system_topics import TRACE
from ariane.model.topic import Permission
from ariane.replication.settings import ReplicationSettings
from ariane.settings import Key, Secret, setting
from ariane.store.settings import StoreSettings
from ariane.transport.reserved_ports import PortSet
from ariane.transport.settings import TlsSettings, TransportSettings

NAME_LENGTH_MAX = 255
DAY_S = 86_400
VIP_PORT_DISTANCE = 2
"""Clients that use the VIP channel subtract 2 from the port in the route."""


_PORT_MAX = 65_535
HA_PORT_DISTANCE = 1
"""The replication port is one above the main port, whatever the file says: as in Apache 4."""


class BrokerRole(StrEnum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class MetricsExporter(StrEnum):
    DISABLE = "DISABLE"
    PROM = "PROM"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    # --- identity and addresses

    cluster: str = setting("DefaultCluster", key="brokerClusterName", doc="Cluster that this broker belongs to.")
    name: str = setting(
        "",
        key="brokerName",
        doc="Name of this broker in routes. Two brokers with the same name and id replace each other at the "
        "nameserver, so the default is the host name, as in Apache.",
    )
    broker_id: int = setting(
        0,
        key="brokerId",
        minimum=0,
        maximum=2**31 - 1,
        doc="0 is the master of its brokerName; each of its slaves has another id.",
    )
    role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER,
        key="brokerRole",
        doc="SYNC_MASTER: a send waits until a slave has the message. ASYNC_MASTER: slaves get it a moment later. "
        "SLAVE: a copy of the master, which serves consumers and takes no messages.",
    )
    host: str = setting(
        "127.0.0.1",
        key="bindAddress",
        doc="Address to listen on; 0.0.0.0 or :: for all addresses. Apache's default is 0.0.0.0. Here it is the "
        "loopback address, because without access control a broker trusts every client. Another address needs "
        "aclEnable or insecure.",
    )
    insecure: bool = setting(
        False,
        key="insecure",
        doc="Listen beyond the loopback address without access control. The log says so every hour.",
    )
    port: int = setting(
        10911,
        key="listenPort",
        minimum=0,
        maximum=65_535,
        doc="Port to listen on; the broker also listens on this port - 2, the VIP channel of clients. 0 takes a free "
        "pair.",
    )
    advertised_host: str | None = setting(
        None,
        key="brokerIP1",
        doc="Address advertised to clients: an IP address or a resolvable host name. Default: the listen address or, "
        "if that is all addresses, the local address of the route to the first nameserver.",
    )
    advertised_port: int | None = setting(
        None,
        minimum=1,
        maximum=65_535,
        doc="Port advertised to clients, if a proxy or container maps it. Default: the listen port.",
    )
    namesrv_addr: str | None = setting(
        None,
        key="namesrvAddr",
        doc="Nameservers to register with, HOST:PORT, separated by semicolons. Without one, clients cannot find the "
        "broker, which is useful only in tests.",
    )

    # --- topics

    permission: int = setting(
        int(Permission.READ_WRITE),
        key="brokerPermission",
        minimum=0,
        maximum=6,
        reloadable=True,
        doc="Permission that limits all topics of this broker: 6 read and write, 4 read only, 2 write only. Set 4 to "
        "drain the broker before it is removed: producers stop using it as they learn the new route.",
    )
    refuse_unpermitted_sends: bool = setting(
        False,
        doc="Refuse sends to a topic, or at a broker, without write permission at once. By default they are stored, as "
        "by Apache 4.9, until producers know the new route (30 s); only ordered topics of a read-only broker refuse.",
    )
    auto_create_topics: bool = setting(
        False,
        key="autoCreateTopicEnable",
        doc="Create a missing topic on the first send. Apache's default is true. Here it is false, because such topics "
        "exist only on the brokers that got the first messages, and a misspelt name creates a topic.",
    )
    default_topic_queues: int = setting(
        8,
        key="defaultTopicQueueNums",
        minimum=1,
        maximum=1024,
        doc="Maximum number of queues of a topic created by a send; the producer may request fewer (4 by default).",
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
        doc="Maximum number of topics. Limits memory, because clients cause the creation of retry topics.",
    )
    auto_create_rate: float = setting(
        20.0,
        minimum=0,
        maximum=1_000_000,
        reloadable=True,
        doc="Topics and groups that one connection may create per second by merely using them; those of ten seconds at "
        "once after a pause. Beyond that it gets SYSTEM_BUSY, which clients retry. 0 is no limit.",
    )
    trace_topic: str = setting(TRACE, key="msgTraceTopicName", doc="Topic for message traces.")
    trace_topic_enable: bool = setting(
        True, key="traceTopicEnable", doc="Create the trace topic at start. Apache's default is false."
    )

    # --- sending

    accept_sends_from_ms: int = setting(
        0,
        key="startAcceptSendRequestTimeStamp",
        minimum=0,
        doc="Reject sends before this time (ms since 1970); 0 rejects none.",
    )
    send_wait_max_ms: int = setting(
        200,
        key="waitTimeMillsInSendQueue",
        minimum=1,
        maximum=600_000,
        reloadable=True,
        doc="Reject a send with SYSTEM_BUSY if it would wait longer than this.",
    )
    region_id: str = setting("DefaultRegion", key="regionId", doc="Region written to messages and responses.")
    trace_on: bool = setting(
        True, key="traceOn", reloadable=True, doc="Whether responses ask clients to send message traces."
    )
    store_replies: bool = setting(
        True,
        key="storeReplyMessageEnable",
        reloadable=True,
        doc="Whether request-reply replies are stored as well as pushed, so that they can be queried.",
    )

    # --- pulling

    long_polling: bool = setting(
        True,
        key="longPollingEnable",
        reloadable=True,
        doc="Let a pull without messages wait as long as the client requests; false: short_polling_ms.",
    )
    short_polling_ms: int = setting(
        1_000,
        key="shortPollingTimeMills",
        minimum=1,
        maximum=60_000,
        reloadable=True,
        doc="How long a pull without messages waits if long polling is disabled.",
    )
    slave_read: bool = setting(
        False, key="slaveReadEnable", doc="Whether consumers that are far behind are redirected to a slave."
    )
    property_filter: bool = setting(
        True,
        key="enablePropertyFilter",
        doc="Allow SQL92 subscriptions. Apache's default is false, so that consumers with SQL92 filters fail.",
    )
    filter_retries: bool = setting(
        False, key="filterSupportRetry", doc="Whether SQL92 filters also apply to retried messages."
    )

    # --- groups

    auto_create_groups: bool = setting(
        True,
        key="autoCreateSubscriptionGroup",
        reloadable=True,
        doc="Create a consumer group when its first member connects.",
    )
    invented_groups_kept_s: int = setting(
        7 * DAY_S,
        minimum=60,
        maximum=3650 * DAY_S,
        doc="A group that exists only because someone committed an offset for it is deleted with its offsets when "
        "nobody has joined it, pulled for it or committed for so long.",
    )
    notify_ids_changed: bool = setting(
        True,
        key="notifyConsumerIdsChangedEnable",
        reloadable=True,
        doc="Notify the members of a group immediately when it changes, so that they rebalance.",
    )
    offsets_save_interval_s: float = setting(
        5.0,
        key=Key("flushConsumerOffsetInterval", per_unit=1000),
        minimum=0.01,
        maximum=600,
        doc="Interval between saves of consumer offsets, and of topics and groups that nobody waits for. After a "
        "machine crash, groups consume messages again that they committed since the last save.",
    )

    # --- delay and transactions

    delay_offsets_save_interval_s: float = setting(
        10.0,
        key=Key("flushDelayOffsetInterval", per_unit=1000),
        minimum=0.01,
        maximum=600,
        doc="Interval between saves of the delivery offset of each delay level.",
    )
    timer_enable: bool = setting(True, key="timerWheelEnable", doc="Accept messages with a delivery time (deliver_at).")
    timer_delay_max_s: int = setting(
        7 * DAY_S,
        key="timerMaxDelaySec",
        minimum=1,
        maximum=365 * DAY_S,
        doc="Maximum delay of a message with a delivery time. Apache's default is 3 days.",
    )
    reject_transactions: bool = setting(
        False, key="rejectTransactionMessage", reloadable=True, doc="Reject transactional messages."
    )
    transaction_timeout_s: float = setting(
        6.0,
        key=Key("transactionTimeOut", per_unit=1000),
        minimum=0.001,
        maximum=DAY_S,
        reloadable=True,
        doc="Age at which the broker checks back an undecided half message with its producer.",
    )
    transaction_check_max: int = setting(
        15,
        key="transactionCheckMax",
        minimum=1,
        maximum=1_000,
        reloadable=True,
        doc="Maximum number of checks before the half message is given up and moved to a system topic.",
    )
    transaction_check_interval_s: float = setting(
        60.0,
        key=Key("transactionCheckInterval", per_unit=1000),
        minimum=0.001,
        maximum=DAY_S,
        doc="Interval between two rounds of transaction checks.",
    )

    # --- nameservers

    register_interval_s: float = setting(
        30.0,
        key=Key("registerNameServerPeriod", per_unit=1000),
        minimum=10,
        maximum=60,
        doc="Interval between registrations. A nameserver removes a broker after 120 s.",
    )
    register_timeout_s: float = setting(
        6.0,
        key=Key("registerBrokerTimeoutMills", per_unit=1000),
        minimum=0.1,
        maximum=60,
        doc="Timeout of a registration request.",
    )
    namesrv_access_key: str | None = setting(
        None,
        key="namesrvAccessKey",
        doc="The account that registrations are signed for, at nameservers with access control. It has this broker's "
        "name in its `brokers`.",
    )
    namesrv_secret_key: Secret | None = setting(
        None, key="namesrvSecretKey", doc="The secret of that account. Never shown; keep its file readable by you only."
    )
    announce_timeout_s: float = setting(
        2.0,
        minimum=0.01,
        maximum=60,
        doc="How long the response to an administrator's change of a topic waits until the nameservers have it. A "
        "nameserver that is known to be down is not waited for.",
    )
    force_register: bool = setting(
        True,
        key="forceRegister",
        doc="Send the whole topic table at each registration; false: only if the nameserver has another version.",
    )
    compressed_register: bool = setting(
        False,
        key="compressedRegister",
        doc="Send the topic table compressed. This format does not contain the flags of ordered and unit topics.",
    )

    # --- access

    acl_enable: bool = setting(
        False, key="aclEnable", doc="Require a signature on every request and check the permissions of its account."
    )
    acl_require_v2: bool = setting(
        False,
        key="aclRequireV2",
        doc="Refuse Apache's signatures, which can be replayed. Only clients of Ariane sign with version 2, so Java, "
        "Go and C++ clients are refused.",
    )
    acl_file: Path = setting(
        Path("conf/plain_acl.yml"),
        key="rocketmq.acl.plain.file",
        doc="File with accounts and white lists, in Apache's format. The key is the Java property that Apache uses "
        "for it.",
    )

    # --- metrics

    metrics_exporter: MetricsExporter = setting(
        MetricsExporter.DISABLE,
        key="metricsExporterType",
        doc="PROM serves the metrics of docs/metrics.md at http://HOST:PORT/metrics. Disabled by default, as in "
        "Apache: metrics contain topic and group names, and the endpoint has no authentication.",
    )
    metrics_host: str | None = setting(
        None,
        key="metricsPromExporterHost",
        doc="Listen address of the metrics endpoint. Default: the address that the broker listens on.",
    )
    metrics_port: int = setting(
        5557,
        key="metricsPromExporterPort",
        minimum=0,
        maximum=65_535,
        doc="Port of the metrics endpoint; 0 takes a free port, which is logged.",
    )
    metrics_series_max: int = setting(
        10_000,
        key="metricsOtelCardinalityLimit",
        minimum=100,
        maximum=1_000_000,
        doc="Maximum number of label sets per metric. ariane_metrics_cut_series counts the dropped ones. Apache's "
        "default is 50000.",
    )

    store: StoreSettings = field(default_factory=StoreSettings)
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    transport: TransportSettings = field(default_factory=TransportSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", socket.gethostname() or "broker-a")
        _check_name("brokerName", self.name)
        _check_name("brokerClusterName", self.cluster)
        _check_role(self.role, self.broker_id)
        _check_port(self.port)
        if self.is_slave and not self.nameservers and self.replication.master_address is None:
            raise SettingsError(
                "brokerRole = SLAVE, and nothing says where its master is: set namesrvAddr (or -n), or haMasterAddress "
                "to HOST:PORT of the master's replication port"
            )
        if not self.is_slave and self.replication_port > _PORT_MAX:
            raise SettingsError(f"listenPort = {self.port}: the replication port is this port + 1; use another one")
        if (self.namesrv_access_key is None) != (self.namesrv_secret_key is None):
            raise SettingsError("namesrvAccessKey and namesrvSecretKey come together: set both or none")
        self.nameservers  # noqa: B018 - an invalid address is reported now, not at the first registration

    @property
    def nameservers(self) -> tuple[str, ...]:
        return _nameservers(self.namesrv_addr or "")

    @property
    def is_slave(self) -> bool:
        return self.role is BrokerRole.SLAVE

    @property
    def ports(self) -> PortSet:
        """The main port, the VIP port, and for a master the one where its slaves connect."""
        ports = PortSet(self.host, self.port).with_distance(-VIP_PORT_DISTANCE, "the VIP port, 2 below the main one")
        if self.is_slave:
            return ports
        port, note = self.replication.port, "where slaves connect: replication.port"
        return ports.with_port(port, note) if port else ports.with_distance(HA_PORT_DISTANCE, note)

    @property
    def replication_port(self) -> int:
        """Where slaves connect; 0 while the main port is not known."""
        return self.replication.port or (self.port + HA_PORT_DISTANCE if self.port else 0)

    @property
    def advertised_replication(self) -> Address:
        """The replication port for slaves."""
        return Address(self.replication.advertised_host or self.advertised.host, self.replication_port)

    @property
    def advertised(self) -> Address:
        """The address for clients. Checked, and with the actual port, once the broker has started (registration.py)."""
        return Address(self.advertised_host or self.host, self.advertised_port or self.port)


def _check_name(key: str, name: str) -> None:
    if len(name) > NAME_LENGTH_MAX or not name.isprintable() or any(char in name for char in " ;:@"):
        raise SettingsError(
            f"{key} = {name[:80]!r}: expected 1 to {NAME_LENGTH_MAX} printable characters without blanks, ';', ':' and "
            "'@', which are separators in routes and tables"
        )


def _check_role(role: BrokerRole, broker_id: int) -> None:
    if role is BrokerRole.SLAVE and broker_id == 0:
        raise SettingsError("brokerRole = SLAVE needs a brokerId above 0, another one for each slave of a brokerName")
    if role is not BrokerRole.SLAVE and broker_id != 0:
        raise SettingsError(
            f"brokerId = {broker_id} is a slave's: set brokerRole = SLAVE, or brokerId = 0 for a master"
        )


def _check_port(port: int) -> None:
    if 0 < port <= VIP_PORT_DISTANCE:
        raise SettingsError(f"listenPort = {port}: the VIP port is this port - 2; use 3 or above, or 0 for a free pair")


def _nameservers(text: str) -> tuple[str, ...]:
    words = [word.strip() for word in text.split(";") if word.strip()]
    for word in words:
        try:
            address = Address.parse(word)
        except ValueError as error:
            raise SettingsError(f"namesrvAddr: {error}; separate several addresses by semicolons") from error
        if "," in word or " " in word:
            raise SettingsError(f"namesrvAddr: {word!r} is not an address; separate several addresses by semicolons")
        if not address.host or not address.port:
            raise SettingsError(f"namesrvAddr: {word!r} has no host or no port; an example is 127.0.0.1:9876")
    return tuple(dict.fromkeys(words))
