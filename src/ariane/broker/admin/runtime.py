"""Admin requests about the running broker: runtime information, statistics, delay offsets and clean-up on demand.

The keys are those of Apache 4.9's broker, which mqadmin, RocketMQ's dashboard and exporters read. The sizes of Apache's
thread pool queues are 0, because here no request waits in a thread pool; their capacities are what bounds the requests
in flight here. Apache has no key for the role of a broker: `brokerRole`, and `masterAddr` at a slave, are Ariane's.
"""

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ariane import __version__
from ariane.broker.schedule.delay_levels import DelayedDelivery
from ariane.broker.schedule.timer import TimerDelivery
from ariane.broker.send.flow_control import WAITING_MAX
from ariane.broker.settings import BrokerSettings
from ariane.broker.stats.counters import Counters, Histogram, WindowTotals
from ariane.broker.stats.statistics import Statistics
from ariane.broker.topics import Topics
from ariane.broker.writer import MessageWriter
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.lifecycle import Slices
from ariane.replication.role import Replication
from ariane.rpc.handlers import Call, handles
from ariane.store.blocking_io import run_in_executor
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.wire.codes import ResponseCode, Version
from ariane.wire.fields import Response
from ariane.wire.record.read import RecordView, verify
from ariane.wire.requests.brokers import (
    BrokerStats,
    BrokerStatsResponse,
    CleanExpiredConsumeQueues,
    CleanUnusedTopics,
    DeleteExpiredCommitLog,
    GetBrokerStats,
    GetRuntimeInfo,
    KeyValueTable,
    RuntimeInfoResponse,
    StatsItem,
)
from ariane.wire.requests.offsets import (
    TIMER_PROGRESS,
    DelayOffsetsResponse,
    DelayOffsetTable,
    GetAllDelayOffsets,
    GetTimerProgress,
    TimerProgressResponse,
)

# --- traffic part of GET_BROKER_RUNTIME_INFO ---

# Apache's buckets of append times, with their upper bounds in seconds.
_PUT_TIMES = (
    ("[<=0ms]", 0.001),
    ("[0~10ms]", 0.01),
    ("[10~50ms]", 0.05),
    ("[50~100ms]", 0.1),
    ("[100~200ms]", 0.2),
    ("[200~500ms]", 0.5),
    ("[500ms~1s]", 1.0),
    ("[1~2s]", 2.0),
    ("[2~3s]", 3.0),
    ("[3~4s]", 4.0),
    ("[4~5s]", 5.0),
    ("[5~10s]", 10.0),
)


def traffic(statistics: Statistics) -> dict[str, object]:
    counters, day_start = statistics.counters, statistics.rates.day_start
    return {
        **statistics.rates.texts(),
        **_puts(counters),
        "getMessageEntireTimeMax": round(counters.cold_read_s.largest * 1000),
        "msgPutTotalYesterdayMorning": day_start.yesterday[0],
        "msgPutTotalTodayMorning": day_start.today[0],
        "msgPutTotalTodayNow": counters.messages_in,
        "msgGetTotalYesterdayMorning": day_start.yesterday[1],
        "msgGetTotalTodayMorning": day_start.today[1],
        "msgGetTotalTodayNow": counters.messages_out,
    }


def _puts(counters: Counters) -> dict[str, object]:
    total = counters.messages_in
    return {
        "putMessageTimesTotal": total,
        "putMessageSizeTotal": counters.bytes_in,
        "putMessageAverageSize": counters.bytes_in / max(1, total),
        "putMessageFailedTimes": counters.rejected_sends.total(),
        "putMessageEntireTimeMax": round(counters.append_s.largest * 1000),
        "putMessageDistributeTime": _distribution(counters.append_s),
        "putLatency99": f"{counters.append_s.quantile(0.99) * 1000:.2f}",
        "putLatency999": f"{counters.append_s.quantile(0.999) * 1000:.2f}",
    }


def _distribution(times: Histogram) -> str:
    below = 0
    words = []
    for name, bound in _PUT_TIMES:
        up_to = times.up_to(bound)
        words.append(f"{name}:{up_to - below}")
        below = up_to
    return " ".join([*words, f"[10s~]:{times.count - below}"])


# --- runtime information and clean-up ---

log = logging.getLogger(__name__)

_GiB = 1024**3
_TOPICS_CLEANED_AT_ONCE = 16
_POOLS = ("send", "pull", "query", "endTransaction")
_NO_TRANSIENT_POOL = 2**31 - 1
"""What Apache's broker reports without a transient store pool."""


@dataclass(frozen=True)
class RuntimeHandlers:
    settings: BrokerSettings
    topics: Topics
    service: StoreService
    clock: Clock
    booted_ms: int
    statistics: Statistics
    writer: MessageWriter
    replication: Replication

    @property
    def store(self) -> MessageStore:
        return self.service.store

    @handles(GetRuntimeInfo)
    async def info(self, request: GetRuntimeInfo, call: Call) -> RuntimeInfoResponse:
        earliest_ms = await self._earliest_ms()
        info = self._process() | self._log(earliest_ms) | self._disk() | self._idle_pools() | self._pending_sends()
        info |= traffic(self.statistics)
        return RuntimeInfoResponse(body=KeyValueTable(table={key: str(value) for key, value in info.items()}))

    def _process(self) -> dict[str, object]:
        return {
            "bootTimestamp": self.booted_ms,
            "brokerVersion": int(Version.V4_7_1),
            "brokerVersionDesc": f"Ariane-{__version__}",
            "brokerActive": "true",
            "runtime": _duration(self.clock.now_ms() - self.booted_ms),
            "startAcceptSendRequestTimeStamp": self.settings.accept_sends_from_ms,
            "pid": os.getpid(),
            "brokerRole": str(self.settings.role),
            **self._master(),
        }

    def _master(self) -> dict[str, object]:
        """The main port of a slave's master, when a nameserver knows it."""
        directory = self.replication.directory
        known = None if directory is None else directory.master_address
        return {} if known is None else {"masterAddr": known}

    def _idle_pools(self) -> dict[str, object]:
        in_flight = self.settings.transport.in_flight_max
        sizes = {f"{pool}ThreadPoolQueueSize": 0 for pool in _POOLS}
        waits = {f"{pool}ThreadPoolQueueHeadWaitTimeMills": 0 for pool in _POOLS}
        capacities = {f"{pool}ThreadPoolQueueCapacity": in_flight for pool in ("pull", "query", "EndTransaction")}
        return {**sizes, **waits, **capacities, "EndTransactionQueueSize": 0}

    def _pending_sends(self) -> dict[str, object]:
        """Sends that wait for a disk sync: the closest equivalent of the queue of Apache's send thread pool."""
        return {
            "sendThreadPoolQueueSize": self.writer.waiting,
            "sendThreadPoolQueueHeadWaitTimeMills": self.writer.longest_wait_ms,
            "sendThreadPoolQueueCapacity": WAITING_MAX,
        }

    def _log(self, earliest_ms: int | None) -> dict[str, object]:
        commit_log, flusher = self.store.components.commit_log, self.store.flusher
        return {
            "commitLogMinOffset": commit_log.min_offset,
            "commitLogMaxOffset": commit_log.max_offset,
            "remainHowManyDataToFlush": f"{commit_log.max_offset - flusher.flushed_to} B",
            "dispatchBehindBytes": commit_log.max_offset - commit_log.dispatched_to,  # 0 at a master
            "dispatchMaxBuffer": 0,
            "remainTransientStoreBufferNumbs": _NO_TRANSIENT_POOL,
            "pageCacheLockTimeMills": round(self.store.append_s * 1000) if self.store.is_busy else 0,
            **({} if earliest_ms is None else {"earliestMessageTimeStamp": earliest_ms}),
        }

    async def _earliest_ms(self) -> int | None:
        """Store time of the first record in the log; None for an empty store."""
        first = self.store.components.commit_log.min_offset
        record = await self.service.run(self.store.lookup.record_at_steps(first))
        view = None if record is None else verify(record, check_body_crc=False)
        return view.store_timestamp_ms if isinstance(view, RecordView) else None

    def _disk(self) -> dict[str, object]:
        layout = self.store.components.layout
        usage = shutil.disk_usage(layout.commit_log)
        return {
            "commitLogDiskRatio": self.store.components.disk.used_ratio(layout.commit_log),
            "consumeQueueDiskRatio": self.store.components.disk.used_ratio(layout.root),
            "commitLogDirCapacity": f"Total : {usage.total / _GiB:.1f} GiB, Free : {usage.free / _GiB:.1f} GiB.",
        }

    # --- clean-up ---------------------------------------------------------------------------------------------------

    @handles(CleanExpiredConsumeQueues)
    async def clean_queues(self, request: CleanExpiredConsumeQueues, call: Call) -> Response:
        """Removes queues whose messages are all deleted from the log and that belong to no topic any more.

        Apache removes those of existing topics too; their offsets then restart at 0, below the offsets that consumers
        have committed.
        """
        queues, removed = self.store.components.queues, 0
        async with Slices() as slices:
            for topic in queues.topics():
                for queue in tuple(queues.of_topic(topic).values()):
                    if self._is_unused(queue):
                        queues.delete_queue(queue.topic, queue.queue_id)
                        removed += 1
                    await slices.pause()
        log.info("unused queues removed", extra={"queues": removed, "peer": call.connection.peer})
        return Response()

    def _is_unused(self, queue: ConsumeQueue) -> bool:
        if queue.max_physical > self.store.components.commit_log.min_offset or self.topics.is_system(queue.topic):
            return False
        config = self.topics.get(queue.topic)
        return config is None or queue.queue_id >= max(config.read_queue_nums, config.write_queue_nums)

    @handles(CleanUnusedTopics)
    async def clean_topics(self, request: CleanUnusedTopics, call: Call) -> Response:
        stored = self.store.components.queues.topics()
        unused = [topic for topic in stored if self.topics.get(topic) is None and not self.topics.is_system(topic)]
        for start in range(0, len(unused), _TOPICS_CLEANED_AT_ONCE):
            some = unused[start:][:_TOPICS_CLEANED_AT_ONCE]
            for topic in await self.topics.between_saves(partial(self._delete_unknown, some)):
                fields = {"topic": topic, "peer": call.connection.peer}
                log.warning("queues of an unknown topic removed", extra=fields)
        return Response()

    async def _delete_unknown(self, topics: Sequence[str]) -> Sequence[str]:
        """Others had their turn: one of the topics may have been created again."""
        gone = [topic for topic in topics if self.topics.get(topic) is None]
        await run_in_executor(self.store.delete_topics_steps(*gone))
        return gone

    @handles(DeleteExpiredCommitLog)
    async def clean_log(self, request: DeleteExpiredCommitLog, call: Call) -> Response:
        cleaned = await self.service.clean(manual=True)
        log.info("commit log cleaned by request", extra={"files": cleaned.files, "peer": call.connection.peer})
        return Response()


def _duration(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


# --- VIEW_BROKER_STATS_DATA: traffic in the last minute, hour and day (`mqadmin statsAll`) ---

_BYTES = "_SIZE"


@dataclass(frozen=True)
class StatsHandlers:
    statistics: Statistics

    @handles(GetBrokerStats)
    def stats(self, request: GetBrokerStats, call: Call) -> BrokerStatsResponse:
        statistic = self.statistics.find(request.stats_name, request.stats_key)
        if statistic is None:
            raise self._missing(request)
        minute, hour, day = (_item(recent, in_bytes=request.stats_name.endswith(_BYTES)) for recent in statistic)
        return BrokerStatsResponse(body=BrokerStats(stats_minute=minute, stats_hour=hour, stats_day=day))

    def _missing(self, request: GetBrokerStats) -> RequestFailed:
        """Apache's text, which mqadmin interprets as "no data yet", followed by the reason."""
        names = self.statistics.names()
        reason = (
            "nothing was counted for this key" if request.stats_name in names else f"known names are {', '.join(names)}"
        )
        return RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"The stats <{request.stats_name[:255]}> <{request.stats_key[:511]}> not exist: {reason}",
        )


def _item(recent: WindowTotals, *, in_bytes: bool) -> StatsItem:
    amount = recent.bytes if in_bytes else recent.messages
    return StatsItem(sum=amount, tps=amount / recent.seconds, avgpt=amount / recent.times if recent.times > 0 else 0.0)


# --- delay offsets ---


@dataclass(frozen=True)
class ScheduleHandlers:
    delayed: DelayedDelivery
    timer: TimerDelivery

    @handles(GetAllDelayOffsets)
    def delay_offsets(self, request: GetAllDelayOffsets, call: Call) -> DelayOffsetsResponse:
        return DelayOffsetsResponse(body=DelayOffsetTable(offset_table=self.delayed.offsets()))

    @handles(GetTimerProgress)
    def timer_progress(self, request: GetTimerProgress, call: Call) -> TimerProgressResponse:
        progress = self.timer.progress()
        body = TIMER_PROGRESS.pack(progress.known_ms, 0, progress.known_below, progress.known_below)
        return TimerProgressResponse(roll_window_ms=progress.window_ms, body=body)
