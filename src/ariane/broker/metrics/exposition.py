"""The catalog of metrics, and the collected values of one scrape (`Exposition`).

The exporter, docs/metrics.md and the tests use this catalog. Names that start with rocketmq_ are those of RocketMQ 5.x,
with its labels and meaning, so that its dashboards and alerts work; differences are in the description. It has none of
replication: rocketmq_ha_ is Ariane's. Each metric also has the labels `cluster`, `node_type` and `node_id`.

Values are collected on the event loop, which owns the tables; a thread formats the text, because twenty thousand lines
take a tenth of a second. An `Exposition` is used by one of them at a time.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ariane.broker.stats.counters import Histogram

BASE_LABELS = ("cluster", "node_type", "node_id")


_UNITS = {
    "rocketmq_consumer_lag_latency": "milliseconds",
    "rocketmq_consumer_queueing_latency": "milliseconds",
    "rocketmq_storage_message_reserve_time": "milliseconds",
    "rocketmq_storage_size": "bytes",
}


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: metrics are dict keys for many rows
class Metric:
    name: str
    kind: MetricType
    doc: str
    labels: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """RocketMQ 5.3 appends the unit to some names, earlier releases do not: these metrics have both names."""
        unit = _UNITS.get(self.name)
        return (self.name,) if unit is None else (self.name, f"{self.name}_{unit}")


def _counter(name: str, doc: str, *labels: str) -> Metric:
    return Metric(name, MetricType.COUNTER, doc, labels)


def _gauge(name: str, doc: str, *labels: str) -> Metric:
    return Metric(name, MetricType.GAUGE, doc, labels)


def _histogram(name: str, doc: str) -> Metric:
    return Metric(name, MetricType.HISTOGRAM, doc)


_IN = ("topic", "message_type", "is_system")
_OUT = ("topic", "consumer_group", "is_system")
_LAG = ("topic", "consumer_group", "is_retry", "is_system")
_STORE = ("storage_type", "storage_medium")

# --- the broker

BROKER_PERMISSION = _gauge(
    "rocketmq_broker_permission",
    "Permission of the broker, which limits all topics: 6 read and write, 4 read, 2 write.",
)
TOPICS = _gauge("rocketmq_topic_number", "Number of topics, including system topics.")
GROUPS = _gauge("rocketmq_consumer_group_number", "Number of consumer groups with a configuration.")
WATERMARK = _gauge("rocketmq_processor_watermark", "Pending requests. send: sends that wait for a sync.", "processor")

# --- messages

MESSAGES_IN = _counter(
    "rocketmq_messages_in_total",
    "Messages appended to the log, by their topic in the log: a delayed or transactional message counts for the system "
    "topic when it is sent, and for its own topic when it is delivered. message_type is normal, fifo (with a sharding "
    "key), delay or transaction.",
    *_IN,
)
THROUGHPUT_IN = _counter("rocketmq_throughput_in_total", "Bytes of their records.", *_IN)
MESSAGE_SIZE = _histogram("rocketmq_message_size", "Record sizes of incoming messages in bytes, all topics.")
MESSAGES_OUT = _counter("rocketmq_messages_out_total", "Messages returned to pull requests.", *_OUT)
THROUGHPUT_OUT = _counter("rocketmq_throughput_out_total", "Bytes of their records.", *_OUT)
SENT_TO_DLQ = _counter(
    "rocketmq_send_to_dlq_messages_total",
    "Messages moved to a dead-letter topic, by original topic.",
    "consumer_group", "topic", "is_system",
)  # fmt: skip

# --- clients

PRODUCER_CONNECTIONS = _gauge(
    "rocketmq_producer_connections",
    "Members of producer groups. version is for example v4_9_8, or a number for releases before 4.1.",
    "language", "version", "protocol_type",
)  # fmt: skip
CONSUMER_CONNECTIONS = _gauge(
    "rocketmq_consumer_connections",
    "Members of consumer groups.",
    "consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system",
)  # fmt: skip

# --- consumer lag

LAG_MESSAGES = _gauge(
    "rocketmq_consumer_lag_messages",
    "Messages after the committed offsets, including those that filters would skip. Includes groups without connected "
    "members, which Apache omits. A queue without an offset counts as consumed.",
    *_LAG,
)
LAG_LATENCY = _gauge(
    "rocketmq_consumer_lag_latency",
    "Age in ms of the oldest unconsumed message; 0 if there is none.",
    *_LAG,
)
INFLIGHT = _gauge("rocketmq_consumer_inflight_messages", "Messages that are pulled but not committed.", *_LAG)
READY = _gauge("rocketmq_consumer_ready_messages", "Messages that are not pulled yet.", *_LAG)
QUEUEING_LATENCY = _gauge(
    "rocketmq_consumer_queueing_latency",
    "Age in ms of the oldest message that is not pulled; 0 if there is none.",
    *_LAG,
)

# --- transactions

HALF_MESSAGES = _gauge("rocketmq_half_messages", "Half messages without commit or rollback, all topics.")
COMMITS = _counter("rocketmq_commit_messages_total", "Committed transactions.", "topic")
ROLLBACKS = _counter("rocketmq_rollback_messages_total", "Rolled back transactions.", "topic")

# --- the store

STORAGE_SIZE = _gauge(
    "rocketmq_storage_size", "Used bytes of the file system that contains the store, by all files on it.", *_STORE
)
FLUSH_BEHIND = _gauge("rocketmq_storage_flush_behind_bytes", "Bytes of the log that are not yet synced.", *_STORE)
DISPATCH_BEHIND = _gauge(
    "rocketmq_storage_dispatch_behind_bytes",
    "Bytes of the log not yet in the consume queues: 0 at a master, as the append itself updates them.",
    *_STORE,
)
RESERVE_TIME = _gauge("rocketmq_storage_message_reserve_time", "Age in ms of the oldest message in the log.", *_STORE)
TIMER_ENQUEUE_LAG = _gauge(
    "rocketmq_timer_enqueue_lag", "Messages of the timer topic that are not yet in the timer wheel.", *_STORE
)
TIMING_MESSAGES = _gauge("rocketmq_timing_messages", "Messages that wait for their delivery time.", *_STORE)
TIMER_ENQUEUED = _counter(
    "rocketmq_timer_enqueue_total", "Messages appended to the timer topic, including rolled ones.", *_STORE
)
TIMER_DEQUEUED = _counter("rocketmq_timer_dequeue_total", "Messages delivered by the timer.", *_STORE)

# --- replication; what is not known is left out

HA_ROLE = _gauge("rocketmq_ha_role", "Always 1; the label has the role: ASYNC_MASTER, SYNC_MASTER or SLAVE.", "role")
HA_CONNECTED = _gauge("rocketmq_ha_connected_slaves", "Slaves that follow this master now. At a master.")
HA_IN_SYNC = _gauge(
    "rocketmq_ha_in_sync_slaves", "Slaves that are behind by less than haSlaveFallbehindMax. At a master."
)
HA_LAG_BYTES = _gauge(
    "rocketmq_ha_slave_lag_bytes",
    "Bytes of the master's log that a slave does not have. At a master, of each connected slave: member is its "
    "brokerId, or for a slave of Apache the address of its connection. At a slave, of itself.",
    "member",
)
HA_LAG_SECONDS = _gauge(
    "rocketmq_ha_slave_lag_seconds",
    "How long ago that slave had everything that the master had; 0 if it has. Grows at a slave that does not follow.",
    "member",
)
HA_SENT = _counter("rocketmq_ha_sent_bytes_total", "Bytes of the log sent to slaves. At a master.")
HA_ACKS = _histogram(
    "rocketmq_ha_ack_seconds", "Time that sends waited until a slave had the message, or for a time-out (SYNC_MASTER)."
)
HA_FOLLOWING = _gauge("rocketmq_ha_following", "1 while this slave is connected to its master, else 0. At a slave.")
HA_METADATA_AGE = _gauge(
    "rocketmq_ha_metadata_age_seconds",
    "Time since topics, groups and offsets were last copied from the master. At a slave, once they were.",
)

# --- metrics only of Ariane

BUILD = _gauge("ariane_build_info", "Always 1; the labels contain the versions.", "version", "python")
BOOTED = _gauge("ariane_boot_timestamp_seconds", "Start time of the broker in seconds since 1970.")
WRITABLE = _gauge("ariane_store_writable", "1 if the store accepts messages; 0 on a full disk or after a failed sync.")
DAMAGED_BLOCKS = _counter(
    "ariane_store_damaged_blocks_total",
    "Blocks of the log whose bytes are not those that were written, found when they were read; each counted once.",
)
WITHHELD_RECORDS = _counter(
    "ariane_store_withheld_records_total",
    "Messages that no consumer gets because they may be damaged; each counted once, when a reader came to it.",
)
REJECTED_SENDS = _counter(
    "ariane_rejected_sends_total",
    "Rejected sends, by response code or by flow control reason (REJECTREQUEST, OVERLOAD, TIMEOUT_CLEAN_QUEUE).",
    "reason",
)
PULLS = _counter("ariane_pulls_total", "Pull requests, by result: found or nothing.", "result")
CONNECTION_MEMORY = _gauge(
    "ariane_connection_memory_bytes",
    "Memory of all connections that counts against memory_bytes_max: frames half received, responses not yet read, "
    "waiting pulls.",
)
CLOSED_FOR_MEMORY = _counter(
    "ariane_connections_closed_for_memory_total", "Connections that were closed because memory_bytes_max was used up."
)
PARKED_PULLS = _gauge("ariane_parked_pulls", "Pull requests that wait for messages (long polling).")
COLD_READS = _histogram(
    "ariane_cold_read_seconds", "Time that pull requests waited for disk reads of messages outside the page cache."
)
APPENDS = _histogram("ariane_append_seconds", "Time to append a single message to the log; batches are not measured.")
SYNCS = _histogram("ariane_sync_wait_seconds", "Time that sends waited for a disk sync (SYNC_FLUSH).")
LOG_SYNCS = _counter("ariane_log_syncs_total", "Syncs of the commit log, by the event loop or by a thread.", "by")
LOG_SYNC_SECONDS = _counter(
    "ariane_log_sync_seconds_total",
    "Time that these syncs took; that of a thread contains its waits for the interpreter lock.",
    "by",
)
LOG_SYNCS_ON_LOOP = _gauge(
    "ariane_log_syncs_on_loop", "1 while syncs of the commit log are so short that the event loop does them; else 0."
)
SEND_BACKS = _counter(
    "ariane_send_backs_total",
    "Messages that consumers sent back for a retry, by original topic.",
    "consumer_group", "topic",
)  # fmt: skip
DELAY_DELIVERIES = _counter("ariane_delay_deliveries_total", "Messages delivered by a delay level.", "level")
TIMER_DROPPED = _counter("ariane_timer_dropped_total", "Timer messages that could not be delivered.")
BAD_SIGNATURES = _counter(
    "ariane_bad_signatures_total", "Requests with a wrong signature or of an unknown account. With access control."
)
REPLAYS = _counter(
    "ariane_replayed_requests_total",
    "Requests whose signature of version 2 was used before, or was made for another connection. With access control.",
)
LOCKED = _gauge(
    "ariane_access_locked",
    "Locked now because of too many bad signatures: addresses (what=address), and accounts at one address "
    "(what=account_at_address). With access control.",
    "what",
)
DISAGREEMENTS = _counter(
    "ariane_subscription_disagreements_total",
    "Heartbeats of members with other subscriptions than another member of their group: messages are missed.",
)
DROPPED_SERIES = _gauge(
    "ariane_metrics_cut_series",
    "Label sets of a metric dropped beyond metricsOtelCardinalityLimit or the limit of store time reads.",
    "metric",
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


# --- values of one scrape ---

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The format that every scraper reads; Prometheus accepts it even if it prefers a newer one."""


class Exposition:
    """The values of one scrape."""

    def __init__(self, base: Sequence[str], series_max: int) -> None:
        """`base`: the values of BASE_LABELS. Rows of one metric beyond `series_max` are dropped and counted."""
        self.base = tuple(base)
        self._series_max = series_max
        self.rows: dict[Metric, list[tuple[tuple[str, ...], float]]] = {}
        self.histograms: dict[Metric, Histogram] = {}
        self.dropped: Counter[str] = Counter()

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        rows = self.rows.setdefault(metric, [])
        if len(rows) < self._series_max:
            rows.append((labels, value))
        else:
            self.dropped[metric.name] += 1

    def add_histogram(self, metric: Metric, histogram: Histogram) -> None:
        """Stores a copy: the event loop keeps counting while the thread formats."""
        copy = Histogram(histogram.bounds)
        copy.counts, copy.total = list(histogram.counts), histogram.total
        self.histograms[metric] = copy

    def text(self) -> bytes:
        """Blocking, for a thread. The first call imports prometheus_client, which would slow down the start."""
        from ariane.broker.metrics.prometheus_text import text_of

        for name, count in self.dropped.items():
            self.rows.setdefault(DROPPED_SERIES, []).append(((name,), count))
        return text_of(self)
