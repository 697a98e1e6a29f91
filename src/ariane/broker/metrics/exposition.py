"""Every metric of the page, once: the page, docs/metrics.md and the tests read this.

Names that begin with rocketmq_ are those of RocketMQ 5.x, with its labels and its meaning, so that its dashboards and
alerts work; a difference is told in the words. Each has the labels `cluster`, `node_type` and `node_id` as well.
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


@dataclass(frozen=True, slots=True, eq=False)  # by identity: rows are kept by metric, and there are many
class Metric:
    name: str
    kind: MetricType
    doc: str
    labels: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """5.3 tells some metrics with their unit at the end, earlier releases without: here they have both names."""
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

BROKER_PERMISSION = _gauge("rocketmq_broker_permission", "What all topics allow: 6 read and write, 4 read, 2 write.")
TOPICS = _gauge("rocketmq_topic_number", "Topics, those of the system included.")
GROUPS = _gauge("rocketmq_consumer_group_number", "Consumer groups that have a configuration.")
WATERMARK = _gauge("rocketmq_processor_watermark", "Requests in hand. send: those that wait for a sync.", "processor")

# --- messages

MESSAGES_IN = _counter(
    "rocketmq_messages_in_total",
    "Messages put into the log, by the topic they have there: one that is delayed or transactional counts for the "
    "topic of its kind when it is sent, and for its own when it is delivered. message_type is normal, fifo (with a "
    "sharding key), delay or transaction.",
    *_IN,
)
THROUGHPUT_IN = _counter("rocketmq_throughput_in_total", "Bytes of their records.", *_IN)
MESSAGE_SIZE = _histogram("rocketmq_message_size", "Bytes of the records of incoming messages, of all topics.")
MESSAGES_OUT = _counter("rocketmq_messages_out_total", "Messages that pulls got.", *_OUT)
THROUGHPUT_OUT = _counter("rocketmq_throughput_out_total", "Bytes of their records.", *_OUT)
SENT_TO_DLQ = _counter(
    "rocketmq_send_to_dlq_messages_total",
    "Messages that became dead letters, by the topic that they were first sent to.",
    "consumer_group", "topic", "is_system",
)  # fmt: skip

# --- clients

PRODUCER_CONNECTIONS = _gauge(
    "rocketmq_producer_connections",
    "Members of producer groups. version is such as v4_9_8, or a number for releases before 4.1.",
    "language", "version", "protocol_type",
)  # fmt: skip
CONSUMER_CONNECTIONS = _gauge(
    "rocketmq_consumer_connections",
    "Members of consumer groups.",
    "consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system",
)  # fmt: skip

# --- how far groups are behind

LAG_MESSAGES = _gauge(
    "rocketmq_consumer_lag_messages",
    "Messages behind the committed offsets, what filters would leave out included. Also of groups that are not "
    "connected, which Apache leaves out. A queue without an offset counts as consumed.",
    *_LAG,
)
LAG_LATENCY = _gauge(
    "rocketmq_consumer_lag_latency",
    "Age in ms of the oldest message that is not consumed; 0 when there is none.",
    *_LAG,
)
INFLIGHT = _gauge("rocketmq_consumer_inflight_messages", "Messages that were pulled and are not committed.", *_LAG)
READY = _gauge("rocketmq_consumer_ready_messages", "Messages that were not pulled yet.", *_LAG)
QUEUEING_LATENCY = _gauge(
    "rocketmq_consumer_queueing_latency", "Age in ms of the oldest message that was not pulled; 0 without one.", *_LAG
)

# --- transactions

HALF_MESSAGES = _gauge("rocketmq_half_messages", "Half messages that wait for an outcome, of all topics.")
COMMITS = _counter("rocketmq_commit_messages_total", "Transactions that were committed.", "topic")
ROLLBACKS = _counter("rocketmq_rollback_messages_total", "Transactions that were rolled back.", "topic")

# --- the store

STORAGE_SIZE = _gauge("rocketmq_storage_size", "Bytes in use on the disk of the store, by whomever.", *_STORE)
FLUSH_BEHIND = _gauge("rocketmq_storage_flush_behind_bytes", "Bytes of the log that no sync has covered.", *_STORE)
DISPATCH_BEHIND = _gauge(
    "rocketmq_storage_dispatch_behind_bytes",
    "Bytes of the log that queues do not show: 0, as they are fed at once.",
    *_STORE,
)
RESERVE_TIME = _gauge("rocketmq_storage_message_reserve_time", "Age in ms of the oldest message in the log.", *_STORE)
TIMER_ENQUEUE_LAG = _gauge(
    "rocketmq_timer_enqueue_lag", "Messages of the timer topic that it has not taken yet.", *_STORE
)
TIMING_MESSAGES = _gauge("rocketmq_timing_messages", "Messages that wait for a time of their own.", *_STORE)
TIMER_ENQUEUED = _counter(
    "rocketmq_timer_enqueue_total", "Messages put into the timer topic, rolled ones again.", *_STORE
)
TIMER_DEQUEUED = _counter("rocketmq_timer_dequeue_total", "Messages that the timer delivered.", *_STORE)

# --- Ariane's own

BUILD = _gauge("ariane_build_info", "Always 1; the labels say what runs.", "version", "python")
BOOTED = _gauge("ariane_boot_timestamp_seconds", "When the broker started, in seconds since 1970.")
WRITABLE = _gauge("ariane_store_writable", "1 when messages are taken; 0 on a full disk or after a failed sync.")
REJECTED_SENDS = _counter(
    "ariane_rejected_sends_total",
    "Sends that were refused: by the name of the code, or by what flow control found (REJECTREQUEST, OVERLOAD, "
    "TIMEOUT_CLEAN_QUEUE).",
    "reason",
)
PULLS = _counter("ariane_pulls_total", "Pulls that found messages, and those that did not.", "result")
PARKED_PULLS = _gauge("ariane_parked_pulls", "Pulls that wait for a message.")
COLD_READS = _histogram(
    "ariane_cold_read_seconds", "How long pulls waited for the disk that did not find all in memory."
)
APPENDS = _histogram("ariane_append_seconds", "How long the log took a single message; batches are not timed.")
SYNCS = _histogram("ariane_sync_wait_seconds", "How long sends waited for a sync of the disk (SYNC_FLUSH).")
SEND_BACKS = _counter(
    "ariane_send_backs_total",
    "Messages that consumers gave back, by the topic that they were first sent to.",
    "consumer_group", "topic",
)  # fmt: skip
DELAY_DELIVERIES = _counter("ariane_delay_deliveries_total", "Messages that a delay level delivered.", "level")
TIMER_DROPPED = _counter("ariane_timer_dropped_total", "Waiting messages that could not be delivered.")
DISAGREEMENTS = _counter(
    "ariane_subscription_disagreements_total",
    "Heartbeats of members that subscribe unlike another one of their group: messages are missed.",
)
DROPPED_SERIES = _gauge(
    "ariane_metrics_cut_series",
    "Label sets of a metric beyond metricsOtelCardinalityLimit, or not looked up in time.",
    "metric",
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


# --- page ---
#
# Rows of numbers, as they are gathered for Prometheus.
#
# Rows are gathered on the event loop, where the tables are; the text is made of them in a thread, because twenty
# thousand lines take a tenth of a second. A page belongs to one of them at a time.

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The form that every scraper reads; Prometheus takes it too when it asks for a newer one first."""


class Exposition:
    def __init__(self, base: Sequence[str], series_max: int) -> None:
        """`base`: the values of BASE_LABELS. Beyond `series_max` rows of one metric the rest is only counted."""
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
        """A copy: the loop counts on while the thread writes."""
        copy = Histogram(histogram.bounds)
        copy.counts, copy.total = list(histogram.counts), histogram.total
        self.histograms[metric] = copy

    def text(self) -> bytes:
        """For a thread. The first one of a process also imports Prometheus's library: no start should wait for that."""
        from ariane.broker.metrics.prometheus_text import text_of

        for name, left_out in self.dropped.items():
            self.rows.setdefault(DROPPED_SERIES, []).append(((name,), left_out))
        return text_of(self)


# --- __init__ ---
#
# The page of metrics: what is declared (declared.py), gathered on the loop, written in a thread, served over HTTP.
