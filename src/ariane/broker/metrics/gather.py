"""All numbers of a broker, as rows of a page. In small steps: between them others get their turn on the loop."""

import asyncio
import platform
import shutil
from collections import Counter
from collections.abc import Iterator

from ariane import __version__
from ariane.broker.consume_stats import ConsumeProgress
from ariane.broker.counters import SIZE_BITS_MAX
from ariane.broker.metrics import declared
from ariane.broker.metrics.client_versions import version_name
from ariane.broker.metrics.consumer_lag import Lag, lags_of
from ariane.broker.metrics.page import Page
from ariane.broker.metrics.store_times import place_of, stored_ms
from ariane.broker.parts import Parts
from ariane.broker.system_topics import SCHEDULE, TIMER, TRANS_HALF
from ariane.broker.tallies import Histogram
from ariane.model.group import ConsumeType
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.store.steps import off_the_loop
from ariane.wire.codes import Language

TIMES_MAX = 2_000
"""Messages whose age is looked up for one page: more might keep the disk busy for longer than Prometheus waits."""

_STEPS_IN_A_TURN = 100
_LOCAL_DISK = ("local", "disk")
_REMOTING = "remoting"
_SIZE_BOUNDS = (1024, 4096, 512 * 1024, 1024 * 1024, 2 * 1024 * 1024, 4 * 1024 * 1024)
_TYPE_OF_TOPIC = {SCHEDULE: "delay", TIMER: "delay", TRANS_HALF: "transaction"}
_MODES = {ConsumeType.CONSUME_ACTIVELY: "pull", ConsumeType.CONSUME_PASSIVELY: "push", ConsumeType.CONSUME_POP: "pop"}
_SYSTEM_GROUPS = "cid_rmq_sys_"


class Gatherer:
    def __init__(self, parts: Parts, times_max: int = TIMES_MAX) -> None:
        settings, store = parts.settings, parts.store.store
        self._parts = parts
        self._counters = parts.statistics.counters
        self._times_max = times_max
        self._base = (settings.cluster, "broker", settings.name)
        self._progress = ConsumeProgress(settings.name, parts.topics, parts.offsets, parts.clients, store)

    async def gather(self) -> Page:
        page = Page(self._base, self._parts.settings.metrics_series_max)
        self._broker(page)
        self._store(page)
        self._histograms(page)
        self._small_counters(page)
        for steps in (self._puts, self._gets, self._dead_letters, self._outcomes, self._producers, self._consumers):
            await _in_turns(steps(page))
        await self._lags(page)
        await self._disk(page)
        return page

    # --- the broker -------------------------------------------------------------------------------------------------

    def _broker(self, page: Page) -> None:
        parts = self._parts
        page.add(declared.BROKER_PERMISSION, parts.settings.permission)
        page.add(declared.TOPICS, len(parts.topics.all()))
        page.add(declared.GROUPS, len(parts.groups.all()))
        page.add(declared.WATERMARK, parts.intake.waiting, "send")
        page.add(declared.BUILD, 1, __version__, platform.python_version())
        page.add(declared.BOOTED, parts.booted_ms / 1000)
        page.add(declared.PARKED_PULLS, len(parts.parked))
        page.add(declared.DISAGREEMENTS, parts.clients.disagreements)

    def _store(self, page: Page) -> None:
        parts, store = self._parts, self._parts.store.store
        behind = store.parts.commit_log.max_offset - store.flusher.flushed_to
        enqueued = self._counters.puts.get(TIMER)
        transactions = parts.transactions
        page.add(declared.WRITABLE, store.refusal is None)
        page.add(declared.FLUSH_BEHIND, max(0, behind), *_LOCAL_DISK)
        page.add(declared.DISPATCH_BEHIND, 0, *_LOCAL_DISK)
        page.add(declared.TIMER_ENQUEUE_LAG, parts.timer.behind, *_LOCAL_DISK)
        page.add(declared.TIMING_MESSAGES, parts.timer.pending, *_LOCAL_DISK)
        page.add(declared.TIMER_ENQUEUED, 0 if enqueued is None else enqueued.messages, *_LOCAL_DISK)
        page.add(declared.TIMER_DEQUEUED, self._counters.timer_deliveries, *_LOCAL_DISK)
        page.add(declared.TIMER_DROPPED, parts.timer.dropped)
        page.add(declared.HALF_MESSAGES, transactions.open.count(transactions.queue.end))

    def _histograms(self, page: Page) -> None:
        page.add_histogram(declared.MESSAGE_SIZE, _sizes(self._counters.sizes, self._counters.bytes_in))
        page.add_histogram(declared.APPENDS, self._counters.append_s)
        page.add_histogram(declared.SYNCS, self._counters.sync_s)
        page.add_histogram(declared.COLD_READS, self._counters.cold_read_s)

    def _small_counters(self, page: Page) -> None:
        for reason, times in self._counters.rejected_sends.items():
            page.add(declared.REJECTED_SENDS, times, reason)
        for level, messages in self._counters.level_deliveries.items():
            page.add(declared.DELAY_DELIVERIES, messages, str(level))
        page.add(declared.PULLS, self._counters.found, "found")
        page.add(declared.PULLS, self._counters.missed, "nothing")

    # --- topics and groups: generators that yield after each step ---------------------------------------------------

    def _puts(self, page: Page) -> Iterator[None]:
        ordered_puts = self._counters.ordered_puts
        for topic, tally in tuple(self._counters.puts.items()):
            is_system = _flag(self._parts.topics.is_system(topic))
            ordered = ordered_puts.get(topic)
            messages, size = (0, 0) if ordered is None else (ordered.messages, ordered.bytes)
            kind = _TYPE_OF_TOPIC.get(topic, "normal")
            page.add(declared.MESSAGES_IN, tally.messages - messages, topic, kind, is_system)
            page.add(declared.THROUGHPUT_IN, tally.bytes - size, topic, kind, is_system)
            if messages:
                page.add(declared.MESSAGES_IN, messages, topic, "fifo", is_system)
                page.add(declared.THROUGHPUT_IN, size, topic, "fifo", is_system)
            yield

    def _gets(self, page: Page) -> Iterator[None]:
        for (topic, group), tally in tuple(self._counters.gets.items()):
            labels = topic, group, self._is_system(topic, group)
            page.add(declared.MESSAGES_OUT, tally.messages, *labels)
            page.add(declared.THROUGHPUT_OUT, tally.bytes, *labels)
            yield

    def _dead_letters(self, page: Page) -> Iterator[None]:
        for (topic, group), tally in tuple(self._counters.dead_letters.items()):
            page.add(declared.SENT_TO_DLQ, tally.messages, group, topic, self._is_system(topic, group))
            yield
        for (topic, group), tally in tuple(self._counters.send_backs.items()):
            page.add(declared.SEND_BACKS, tally.messages, group, topic)
            yield

    def _outcomes(self, page: Page) -> Iterator[None]:
        for topic, tally in tuple(self._counters.commits.items()):
            page.add(declared.COMMITS, tally.messages, topic)
            yield
        for topic, tally in tuple(self._counters.rollbacks.items()):
            page.add(declared.ROLLBACKS, tally.messages, topic)
            yield

    def _lag_labels(self, topic: str, group: str) -> tuple[str, str, str, str]:
        is_retry = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        return topic, group, _flag(is_retry), self._is_system(topic, group)

    def _is_system(self, topic: str, group: str) -> str:
        return _flag(self._parts.topics.is_system(topic) or group.lower().startswith(_SYSTEM_GROUPS))

    # --- clients ----------------------------------------------------------------------------------------------------

    def _producers(self, page: Page) -> Iterator[None]:
        clients = self._parts.clients
        alike: Counter[tuple[str, str]] = Counter()
        for group in clients.producer_groups():
            alike.update((_language(one.language), version_name(one.version)) for one in clients.producers(group))
            yield
        for labels, members in alike.items():
            page.add(declared.PRODUCER_CONNECTIONS, members, *labels, _REMOTING)

    def _consumers(self, page: Page) -> Iterator[None]:
        for group in tuple(self._parts.clients.groups().values()):
            mode = _MODES.get(group.consume_type, "") if group.consume_type is not None else ""
            alike = Counter((_language(one.language), version_name(one.version)) for one in group.members.values())
            is_system = _flag(group.name.lower().startswith(_SYSTEM_GROUPS))
            for (language, version), members in alike.items():
                labels = (group.name, language, version, mode, _REMOTING, is_system)
                page.add(declared.CONSUMER_CONNECTIONS, members, *labels)
            yield

    # --- what has to be looked up -----------------------------------------------------------------------------------

    async def _lags(self, page: Page) -> None:
        lags: list[Lag] = []
        for group in tuple(self._parts.groups.all()):
            for found in lags_of(group, self._progress, self._counters):
                lags.append(await off_the_loop(found))
                self._add_lag(page, lags[-1])
                if len(lags) % _STEPS_IN_A_TURN == 0:
                    await asyncio.sleep(0)
        looked_up = lags[: self._times_max // 2]
        places = [place for lag in looked_up for place in (lag.unconsumed, lag.unpulled)]
        times = iter(await asyncio.to_thread(stored_ms, places))
        now_ms = self._parts.clock.now_ms()
        for lag in looked_up:
            labels = self._lag_labels(lag.topic, lag.group)
            page.add(declared.LAG_LATENCY, _age_ms(next(times), now_ms), *labels)
            page.add(declared.QUEUEING_LATENCY, _age_ms(next(times), now_ms), *labels)
        for metric in (declared.LAG_LATENCY, declared.QUEUEING_LATENCY):
            page.cut[metric.name] += len(lags) - len(looked_up)

    def _add_lag(self, page: Page, lag: Lag) -> None:
        labels = self._lag_labels(lag.topic, lag.group)
        page.add(declared.LAG_MESSAGES, lag.messages, *labels)
        page.add(declared.INFLIGHT, lag.in_flight, *labels)
        page.add(declared.READY, lag.ready, *labels)

    async def _disk(self, page: Page) -> None:
        store = self._parts.store.store.parts
        place = place_of(store.commit_log, store.commit_log.min_offset)
        (oldest_ms,) = await asyncio.to_thread(stored_ms, [place])
        if oldest_ms is not None:
            page.add(declared.RESERVE_TIME, _age_ms(oldest_ms, self._parts.clock.now_ms()), *_LOCAL_DISK)
        page.add(declared.STORAGE_SIZE, await asyncio.to_thread(_used_bytes, str(store.layout.root)), *_LOCAL_DISK)


async def _in_turns(steps: Iterator[None]) -> None:
    for number, _ in enumerate(steps, 1):
        if number % _STEPS_IN_A_TURN == 0:
            await asyncio.sleep(0)


def _sizes(by_bits: list[int], total: int) -> Histogram:
    """The powers of two that Apache has bounds at, out of all of them."""
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
