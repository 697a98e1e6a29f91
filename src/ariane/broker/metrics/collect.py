"""Collects all metrics of a broker for one scrape, in small steps that do not block the event loop.

Consumer lag is computed per group and topic as in RocketMQ 5.x:

    queue    ├──── consumed ────┼──── in flight ────┼──── ready ────┤
             0              committed            pulled            end
                                └────────────── lag ───────────────┘

Unlike Apache, groups without connected members are included, by their committed offsets: their lag is what operators
want alerts for. A queue without a committed offset counts as consumed, as in Apache.

The age of messages needs their store times, which are read for many messages at once in a thread, because most are no
longer in the page cache. The oldest of several messages is the first one in the log, so each group needs one read per
topic, regardless of the number of queues.
"""

import asyncio
import errno
import platform
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ariane import __version__
from ariane.broker.components import Components
from ariane.broker.groups.lag import ConsumeProgress
from ariane.broker.metrics import exposition as catalog
from ariane.broker.metrics.exposition import Exposition
from ariane.broker.stats.counters import SIZE_BITS_MAX, Counters, Histogram
from ariane.model.group import ConsumeType
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.model.system_topics import SCHEDULE, TIMER, TRANS_HALF
from ariane.model.topic import TopicConfig
from ariane.replication.master import Master
from ariane.replication.metadata import MetadataSync
from ariane.replication.role import Replication
from ariane.replication.slave import Slave
from ariane.store.blocking_io import IoSteps, run_in_executor
from ariane.store.commit_log.log import CommitLog, Segment
from ariane.wire.codes import Language, Version
from ariane.wire.record.layout import HEAD_V4, head_of

# --- store times ---

_HEAD_BYTES_MAX = head_of(0x30).size
_SYS_FLAG, _STORE_TIMESTAMP, _PHYSICAL_OFFSET = 7, 10, 6


class RecordPosition(NamedTuple):
    """A record in the log. The segment is looked up on the event loop, where the list of segments changes."""

    segment: Segment
    physical: int


def position_of(commit_log: CommitLog, physical: int | None) -> RecordPosition | None:
    segment = None if physical is None else commit_log.segments.find(physical)
    return None if segment is None or physical is None else RecordPosition(segment, physical)


def store_times_ms(positions: Sequence[RecordPosition | None]) -> list[int | None]:
    """Blocking, for a thread. None for records that do not exist any more."""
    return [None if position is None else _store_time_ms(position) for position in positions]


def _store_time_ms(position: RecordPosition) -> int | None:
    try:
        head = position.segment.file.read(_HEAD_BYTES_MAX, position.physical - position.segment.base)
    except OSError as error:
        if error.errno == errno.EBADF:  # retention has just closed the file
            return None
        raise
    return _of_head(head, position.physical)


def _of_head(head: bytes, physical: int) -> int | None:
    if len(head) < HEAD_V4.size:
        return None
    layout = head_of(HEAD_V4.unpack_from(head)[_SYS_FLAG])
    if len(head) < layout.size:
        return None
    fields = layout.unpack_from(head)
    store_time_ms: int = fields[_STORE_TIMESTAMP]
    return store_time_ms if fields[_PHYSICAL_OFFSET] == physical else None


# --- consumer lag ---


@dataclass(slots=True)
class Lag:
    group: str
    topic: str
    messages: int = 0
    in_flight: int = 0
    ready: int = 0
    unconsumed: RecordPosition | None = None
    """The oldest message that is not consumed."""
    unpulled: RecordPosition | None = None
    """The oldest message that was not pulled."""


def lags_of(group: str, progress: ConsumeProgress, counters: Counters) -> Iterator[IoSteps[Lag]]:
    """The lag of one group by topic: topics in which it has offsets, except those its members have unsubscribed from,
    and topics that its members have just subscribed to."""
    configs = {config.topic_name: config for config in progress.topics_of(group)}
    online = progress.clients.group(group)
    for topic in () if online is None else tuple(online.subscriptions):
        config = progress.topics.get(topic)
        if config is not None:
            configs[topic] = config
    for config in configs.values():
        yield _lag(group, config, progress, counters)


def _lag(group: str, config: TopicConfig, progress: ConsumeProgress, counters: Counters) -> IoSteps[Lag]:
    topic = config.topic_name
    lag = Lag(group, topic)
    counter = counters.gets.get((topic, group))
    pulled = {} if counter is None else counter.pulled
    unconsumed: list[int] = []
    unpulled: list[int] = []
    for queue_id, queue in tuple(progress.store.components.queues.of_topic(topic).items()):
        end = queue.visible_end
        committed = progress.offsets.get(group, topic, queue_id)
        consumed = end if committed < 0 else min(max(committed, queue.min_offset), end)
        taken = min(max(pulled.get(queue_id, consumed), queue.min_offset if committed < 0 else consumed), end)
        lag.messages += end - consumed
        lag.in_flight += max(0, taken - consumed)
        lag.ready += end - taken
        unconsumed += _as_list((yield from queue.physical_offset_steps(consumed)))
        unpulled += _as_list((yield from queue.physical_offset_steps(taken)))
    log = progress.store.components.commit_log
    lag.unconsumed = position_of(log, min(unconsumed, default=None))
    lag.unpulled = position_of(log, min(unpulled, default=None))
    return lag


def _as_list(physical: int | None) -> list[int]:
    return [] if physical is None else [physical]


# --- names of client versions ---

_FIRST = int(Version.V4_1_0_SNAPSHOT)
_PATCHES = 10
_MINORS_OF_4 = 9
_AFTER_ALL = _FIRST + 2 * _PATCHES * (_MINORS_OF_4 + 10)  # after 5.9.9


def version_name(number: int) -> str:
    """The release of a version number, such as v4_9_8; the number itself if it is older than 4.1.0 or unknown.

    In Apache's MQVersion the numbers have no gaps from 4.1.0 on: ten patch releases per minor version up to 4.9, a
    snapshot before each release, and 5.0.0 after 4.9.9.
    """
    if not _FIRST <= number < _AFTER_ALL:
        return str(number)
    release, is_release = divmod(number - _FIRST, 2)
    minor, patch = divmod(release, _PATCHES)
    major, minor = (4, minor + 1) if minor < _MINORS_OF_4 else (5, minor - _MINORS_OF_4)
    return f"v{major}_{minor}_{patch}" + ("" if is_release else "_snapshot")


# --- collector ---

TIMES_MAX = 2_000
"""Messages whose store time is read per scrape: more could take longer than Prometheus waits."""

_STEPS_PER_YIELD = 100
_LOCAL_DISK = ("local", "disk")
_REMOTING = "remoting"
_SIZE_BOUNDS = (1024, 4096, 512 * 1024, 1024 * 1024, 2 * 1024 * 1024, 4 * 1024 * 1024)
_TYPE_OF_TOPIC = {SCHEDULE: "delay", TIMER: "delay", TRANS_HALF: "transaction"}
_MODES = {ConsumeType.CONSUME_ACTIVELY: "pull", ConsumeType.CONSUME_PASSIVELY: "push", ConsumeType.CONSUME_POP: "pop"}
_SYSTEM_GROUPS = "cid_rmq_sys_"


class MetricsCollector:
    def __init__(self, components: Components, replication: Replication, times_max: int = TIMES_MAX) -> None:
        settings, store = components.settings, components.store.store
        self._components = components
        self._replication = replication
        self._counters = components.statistics.counters
        self._times_max = times_max
        self._base = (settings.cluster, "broker", settings.name)
        self._progress = ConsumeProgress(
            settings.name, components.topics, components.offsets, components.clients, store
        )

    async def collect(self) -> Exposition:
        exposition = Exposition(self._base, self._components.settings.metrics_series_max)
        self._broker(exposition)
        self._store(exposition)
        self._roles(exposition)
        self._histograms(exposition)
        self._small_counters(exposition)
        for steps in (self._puts, self._gets, self._dead_letters, self._outcomes, self._producers, self._consumers):
            await _run_yielding(steps(exposition))
        await self._lags(exposition)
        await self._disk(exposition)
        return exposition

    # --- the broker -------------------------------------------------------------------------------------------------

    def _broker(self, exposition: Exposition) -> None:
        components = self._components
        exposition.add(catalog.BROKER_PERMISSION, components.settings.permission)
        exposition.add(catalog.TOPICS, len(components.topics.all()))
        exposition.add(catalog.GROUPS, len(components.groups.all()))
        exposition.add(catalog.WATERMARK, components.writer.waiting, "send")
        exposition.add(catalog.BUILD, 1, __version__, platform.python_version())
        exposition.add(catalog.BOOTED, components.booted_ms / 1000)
        exposition.add(catalog.CONNECTION_MEMORY, components.memory.used)
        exposition.add(catalog.CLOSED_FOR_MEMORY, components.memory.closed)
        exposition.add(catalog.PARKED_PULLS, len(components.pull_waiters))
        exposition.add(catalog.DISAGREEMENTS, components.clients.disagreements)
        if components.access is not None:
            signatures = components.access.signatures
            exposition.add(catalog.BAD_SIGNATURES, signatures.lockout.failures)
            exposition.add(catalog.REPLAYS, signatures.replays)
            for what, count in signatures.lockout.locked().items():
                exposition.add(catalog.LOCKED, count, what)

    def _store(self, exposition: Exposition) -> None:
        components, store = self._components, self._components.store.store
        behind = store.components.commit_log.max_offset - store.flusher.flushed_to
        enqueued = self._counters.puts.get(TIMER)
        transactions = components.transactions
        exposition.add(catalog.WRITABLE, store.write_error is None)
        checks = store.components.commit_log.checks
        exposition.add(catalog.DAMAGED_BLOCKS, 0 if checks is None else checks.damaged_blocks)
        exposition.add(catalog.WITHHELD_RECORDS, 0 if checks is None else checks.withheld_records)
        exposition.add(catalog.FLUSH_BEHIND, max(0, behind), *_LOCAL_DISK)
        syncs = store.flusher.policy
        exposition.add(catalog.LOG_SYNCS_ON_LOOP, syncs.on_loop)
        for by, count, seconds in (
            ("loop", syncs.loop_syncs, syncs.loop_sync_s),
            ("thread", syncs.thread_syncs, syncs.thread_sync_s),
        ):
            exposition.add(catalog.LOG_SYNCS, count, by)
            exposition.add(catalog.LOG_SYNC_SECONDS, seconds, by)
        commit_log = store.components.commit_log
        exposition.add(catalog.DISPATCH_BEHIND, commit_log.max_offset - commit_log.dispatched_to, *_LOCAL_DISK)
        exposition.add(catalog.TIMER_ENQUEUE_LAG, components.timer.behind, *_LOCAL_DISK)
        exposition.add(catalog.TIMING_MESSAGES, components.timer.pending, *_LOCAL_DISK)
        exposition.add(catalog.TIMER_ENQUEUED, 0 if enqueued is None else enqueued.messages, *_LOCAL_DISK)
        exposition.add(catalog.TIMER_DEQUEUED, self._counters.timer_deliveries, *_LOCAL_DISK)
        exposition.add(catalog.TIMER_DROPPED, components.timer.dropped)
        exposition.add(catalog.HALF_MESSAGES, transactions.open.count(transactions.queue.visible_end))

    def _roles(self, exposition: Exposition) -> None:
        exposition.add(catalog.HA_ROLE, 1, str(self._components.settings.role))
        if self._replication.master is not None:
            self._slaves(exposition, self._replication.master)
        if self._replication.slave is not None:
            self._following(exposition, self._replication.slave, self._replication.metadata)

    def _slaves(self, exposition: Exposition, master: Master) -> None:
        slaves = master.slaves()
        exposition.add(catalog.HA_CONNECTED, len(slaves))
        exposition.add(catalog.HA_IN_SYNC, sum(slave.is_in_sync for slave in slaves))
        exposition.add(catalog.HA_SENT, master.sent_bytes)
        for slave in slaves:
            member = slave.address if slave.member is None else str(slave.member)
            exposition.add(catalog.HA_LAG_BYTES, slave.behind_bytes, member)
            if slave.behind_s is not None:
                exposition.add(catalog.HA_LAG_SECONDS, slave.behind_s, member)

    def _following(self, exposition: Exposition, slave: Slave, metadata: MetadataSync | None) -> None:
        """What is not known is left out."""
        status, member = slave.status, str(self._components.settings.broker_id)
        exposition.add(catalog.HA_FOLLOWING, status.master is not None)
        if status.behind_bytes is not None:
            exposition.add(catalog.HA_LAG_BYTES, status.behind_bytes, member)
        if status.behind_s is not None:
            exposition.add(catalog.HA_LAG_SECONDS, status.behind_s, member)
        if metadata is not None and metadata.synced_ms is not None:
            age_ms = _age_ms(metadata.synced_ms, self._components.clock.now_ms())
            exposition.add(catalog.HA_METADATA_AGE, age_ms / 1000)

    def _histograms(self, exposition: Exposition) -> None:
        exposition.add_histogram(catalog.MESSAGE_SIZE, _sizes(self._counters.sizes, self._counters.bytes_in))
        exposition.add_histogram(catalog.APPENDS, self._counters.append_s)
        exposition.add_histogram(catalog.SYNCS, self._counters.sync_s)
        exposition.add_histogram(catalog.HA_ACKS, self._counters.replicated_s)
        exposition.add_histogram(catalog.COLD_READS, self._counters.cold_read_s)

    def _small_counters(self, exposition: Exposition) -> None:
        for reason, times in self._counters.rejected_sends.items():
            exposition.add(catalog.REJECTED_SENDS, times, reason)
        for level, messages in self._counters.level_deliveries.items():
            exposition.add(catalog.DELAY_DELIVERIES, messages, str(level))
        exposition.add(catalog.PULLS, self._counters.found, "found")
        exposition.add(catalog.PULLS, self._counters.missed, "nothing")

    # --- topics and groups: generators that yield after each step ---------------------------------------------------

    def _puts(self, exposition: Exposition) -> Iterator[None]:
        ordered_puts = self._counters.ordered_puts
        for topic, counter in tuple(self._counters.puts.items()):
            is_system = _flag(self._components.topics.is_system(topic))
            ordered = ordered_puts.get(topic)
            messages, size = (0, 0) if ordered is None else (ordered.messages, ordered.bytes)
            kind = _TYPE_OF_TOPIC.get(topic, "normal")
            exposition.add(catalog.MESSAGES_IN, counter.messages - messages, topic, kind, is_system)
            exposition.add(catalog.THROUGHPUT_IN, counter.bytes - size, topic, kind, is_system)
            if messages:
                exposition.add(catalog.MESSAGES_IN, messages, topic, "fifo", is_system)
                exposition.add(catalog.THROUGHPUT_IN, size, topic, "fifo", is_system)
            yield

    def _gets(self, exposition: Exposition) -> Iterator[None]:
        for (topic, group), counter in tuple(self._counters.gets.items()):
            labels = topic, group, self._is_system(topic, group)
            exposition.add(catalog.MESSAGES_OUT, counter.messages, *labels)
            exposition.add(catalog.THROUGHPUT_OUT, counter.bytes, *labels)
            yield

    def _dead_letters(self, exposition: Exposition) -> Iterator[None]:
        for (topic, group), counter in tuple(self._counters.dead_letters.items()):
            exposition.add(catalog.SENT_TO_DLQ, counter.messages, group, topic, self._is_system(topic, group))
            yield
        for (topic, group), counter in tuple(self._counters.send_backs.items()):
            exposition.add(catalog.SEND_BACKS, counter.messages, group, topic)
            yield

    def _outcomes(self, exposition: Exposition) -> Iterator[None]:
        for topic, counter in tuple(self._counters.commits.items()):
            exposition.add(catalog.COMMITS, counter.messages, topic)
            yield
        for topic, counter in tuple(self._counters.rollbacks.items()):
            exposition.add(catalog.ROLLBACKS, counter.messages, topic)
            yield

    def _lag_labels(self, topic: str, group: str) -> tuple[str, str, str, str]:
        is_retry = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        return topic, group, _flag(is_retry), self._is_system(topic, group)

    def _is_system(self, topic: str, group: str) -> str:
        return _flag(self._components.topics.is_system(topic) or group.lower().startswith(_SYSTEM_GROUPS))

    # --- clients ----------------------------------------------------------------------------------------------------

    def _producers(self, exposition: Exposition) -> Iterator[None]:
        clients = self._components.clients
        counts: Counter[tuple[str, str]] = Counter()
        for group in clients.producer_groups():
            counts.update(
                (_language(member.language), version_name(member.version)) for member in clients.producers(group)
            )
            yield
        for labels, members in counts.items():
            exposition.add(catalog.PRODUCER_CONNECTIONS, members, *labels, _REMOTING)

    def _consumers(self, exposition: Exposition) -> Iterator[None]:
        for group in tuple(self._components.clients.groups().values()):
            mode = _MODES.get(group.consume_type, "") if group.consume_type is not None else ""
            counts = Counter(
                (_language(member.language), version_name(member.version)) for member in group.members.values()
            )
            is_system = _flag(group.name.lower().startswith(_SYSTEM_GROUPS))
            for (language, version), members in counts.items():
                labels = (group.name, language, version, mode, _REMOTING, is_system)
                exposition.add(catalog.CONSUMER_CONNECTIONS, members, *labels)
            yield

    # --- values that need disk reads --------------------------------------------------------------------------------

    async def _lags(self, exposition: Exposition) -> None:
        lags: list[Lag] = []
        for group in tuple(self._components.groups.all()):
            for steps in lags_of(group, self._progress, self._counters):
                lags.append(await run_in_executor(steps))
                self._add_lag(exposition, lags[-1])
                if len(lags) % _STEPS_PER_YIELD == 0:
                    await asyncio.sleep(0)
        with_times = lags[: self._times_max // 2]
        positions = [position for lag in with_times for position in (lag.unconsumed, lag.unpulled)]
        times = iter(await asyncio.to_thread(store_times_ms, positions))
        now_ms = self._components.clock.now_ms()
        for lag in with_times:
            labels = self._lag_labels(lag.topic, lag.group)
            exposition.add(catalog.LAG_LATENCY, _age_ms(next(times), now_ms), *labels)
            exposition.add(catalog.QUEUEING_LATENCY, _age_ms(next(times), now_ms), *labels)
        for metric in (catalog.LAG_LATENCY, catalog.QUEUEING_LATENCY):
            exposition.dropped[metric.name] += len(lags) - len(with_times)

    def _add_lag(self, exposition: Exposition, lag: Lag) -> None:
        labels = self._lag_labels(lag.topic, lag.group)
        exposition.add(catalog.LAG_MESSAGES, lag.messages, *labels)
        exposition.add(catalog.INFLIGHT, lag.in_flight, *labels)
        exposition.add(catalog.READY, lag.ready, *labels)

    async def _disk(self, exposition: Exposition) -> None:
        store = self._components.store.store.components
        position = position_of(store.commit_log, store.commit_log.min_offset)
        (oldest_ms,) = await asyncio.to_thread(store_times_ms, [position])
        if oldest_ms is not None:
            exposition.add(catalog.RESERVE_TIME, _age_ms(oldest_ms, self._components.clock.now_ms()), *_LOCAL_DISK)
        exposition.add(catalog.STORAGE_SIZE, await asyncio.to_thread(_used_bytes, str(store.layout.root)), *_LOCAL_DISK)


async def _run_yielding(steps: Iterator[None]) -> None:
    for number, _ in enumerate(steps, 1):
        if number % _STEPS_PER_YIELD == 0:
            await asyncio.sleep(0)


def _sizes(by_bits: list[int], total: int) -> Histogram:
    """Converts counts per power of two to Apache's bucket bounds."""
    histogram = Histogram(_SIZE_BOUNDS)
    for bits in range(SIZE_BITS_MAX + 1):
        number = next((n for n, bound in enumerate(_SIZE_BOUNDS) if 2**bits <= bound), len(_SIZE_BOUNDS))
        histogram.counts[number] += by_bits[bits]
    histogram.total = total
    return histogram


def _age_ms(time_ms: int | None, now_ms: int) -> int:
    return 0 if time_ms is None else max(0, now_ms - time_ms)


def _used_bytes(directory: str) -> int:
    return shutil.disk_usage(directory).used


def _language(language: Language) -> str:
    return language.name.lower()


def _flag(is_so: bool) -> str:
    return "true" if is_so else "false"
