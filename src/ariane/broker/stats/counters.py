"""Broker-wide counters: plain attributes, incremented inline and read by statistics and metrics.

Event loop only, so there are no locks. Counting a put takes less than half a microsecond. Rates, sliding windows,
Apache's statistics and metrics are computed when they are requested.

Sliding windows of the last minute, hour and day: every window has a ring of samples in each counter. The slot that the
next sample will overwrite contains the oldest sample, and the traffic since then is the difference to now:

    a window of 6 slots     t3  t4  t5  t0  t1  t2        t0 is the oldest: it is overwritten next
                                        ▲ next

In a counter that is younger than a window these slots are zero, which is correct. For a broker that is younger than a
window, the time of the oldest sample is its start. So a rate covers the whole window, or the run time of the broker.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from ariane.errors import RequestFailed
from ariane.store.append.draft import Appended
from ariane.wire.codes import ResponseCode

# --- counters ---

COLUMNS = 3
"""Values of a sample: messages, bytes, times."""


class TrafficCounter:
    """Monotonic totals of one topic, or of one group and topic, with samples for the sliding windows.

    Callers increment the attributes directly: this is a hot path.
    """

    __slots__ = ("bytes", "merged", "messages", "samples")

    def __init__(self, samples: int) -> None:
        """`samples`: the number of sample slots, initially zero."""
        self.messages = 0
        self.bytes = 0
        self.merged = 0
        """Messages after the first one of a batch or of a pull response."""
        self.samples = array("q", bytes(8 * COLUMNS * samples))

    @property
    def times(self) -> int:
        """Number of requests: a batch counts once."""
        return self.messages - self.merged

    def sample(self, slot: int) -> None:
        at = slot * COLUMNS
        self.samples[at], self.samples[at + 1], self.samples[at + 2] = self.messages, self.bytes, self.times


class GroupCounter(TrafficCounter):
    """Traffic of a group from a topic, and its pull positions."""

    __slots__ = ("pulled",)

    def __init__(self, samples: int) -> None:
        super().__init__(samples)
        self.pulled: dict[int, int] = {}
        """By queue id: the next offset that the group's last pull response returned."""


class Histogram:
    """Counts per bucket with inclusive upper bounds. The last bucket contains the values above all bounds."""

    __slots__ = ("bounds", "counts", "largest", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.largest = 0.0

    def add(self, value: float, times: int = 1) -> None:
        if value <= self.bounds[0]:  # the common case
            self.counts[0] += times
        else:
            self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times
        if value > self.largest:
            self.largest = value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """An upper bound of this share of the values: that of their bucket, or the largest value; 0 without any."""
        wanted, below = share * self.count, 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            below += count
            if below >= wanted:
                return min(bound, self.largest)
        return self.largest

    def up_to(self, bound: float) -> int:
        """The number of values up to `bound`, which is one of the bounds."""
        return sum(self.counts[: self.bounds.index(bound) + 1])


# --- sliding windows ---

TICK_S = 10
"""Time between two samples of the shortest window, as in Apache."""


class WindowTotals(NamedTuple):
    """Traffic within a window."""

    messages: int
    bytes: int
    times: int
    seconds: float
    """Length of the window: up to one sample interval less than its name says, and at least one second."""


@dataclass(slots=True)
class SlidingWindow:
    first_slot: int
    slots: int
    ticks: int
    """Ticks between two of its samples."""
    sampled_at: list[float]
    next: int = 0

    @property
    def next_slot(self) -> int:
        return self.first_slot + self.next

    def sampled(self, now: float) -> None:
        self.sampled_at[self.next] = now
        self.next = (self.next + 1) % self.slots

    def recent(self, counter: TrafficCounter, now: float) -> WindowTotals:
        at = self.next_slot * COLUMNS
        messages, size, times = counter.samples[at : at + COLUMNS]
        seconds = max(now - self.sampled_at[self.next], 1.0)
        return WindowTotals(counter.messages - messages, counter.bytes - size, counter.times - times, seconds)


_WINDOW_SPECS = ((6, 1), (6, 60), (24, 360))  # slots, and ticks between two samples (10 s, 10 min, 1 h)


class SlidingWindows:
    SLOTS = sum(slots for slots, _ in _WINDOW_SPECS)

    def __init__(self, now: float) -> None:
        self._ticks = 0
        first = 0
        windows = []
        for slots, ticks in _WINDOW_SPECS:
            windows.append(SlidingWindow(first, slots, ticks, [now] * slots))
            first += slots
        self.minute, self.hour, self.day = windows

    def tick(self) -> list[SlidingWindow]:
        """Call every TICK_S; returns the windows whose sample is due."""
        self._ticks += 1
        return [window for window in (self.minute, self.hour, self.day) if self._ticks % window.ticks == 0]


# --- all counters of a broker ---

COUNTERS_MAX = 100_000
"""Per table; one counter takes about 1.2 KiB. Further keys are counted together under OVERFLOW_KEY."""

OVERFLOW_KEY = "..."
"""Not a valid topic or group name."""

UNCOUNTED_MAX = 65_536
"""Messages of different topics that are buffered before they are counted by topic. A topic with several of them is then
updated once: with 5,000 topics its counter is never in the CPU cache, and cost 0.65 us per message."""

SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
"""Bucket bounds in seconds; from 10 ms on those of Apache's putMessageDistributeTime."""

SIZE_BITS_MAX = 40

K = TypeVar("K")
T = TypeVar("T", bound=TrafficCounter)
TopicAndGroup = tuple[str, str]


class UncountedPuts:
    """Messages that are not counted by topic yet, in columns: the number of the topic, and the size."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}  # of the topics, in the order of their first message here
        self._topics = array("q")
        self._sizes = array("q")

    def __len__(self) -> int:
        return len(self._topics)

    def add(self, topics: Sequence[str], sizes: Sequence[int]) -> None:
        numbers = self._numbers
        try:
            self._topics.fromlist([numbers[topic] for topic in topics])
        except KeyError:
            for topic in topics:
                numbers.setdefault(topic, len(numbers))
            self._topics.fromlist([numbers[topic] for topic in topics])
        self._sizes.fromlist(list(sizes))

    def totals(self) -> Iterator[tuple[str, int, int]]:
        """Of each topic: messages and bytes."""
        topics, sizes = np.array(self._topics), np.array(self._sizes)
        messages = np.bincount(topics).tolist()
        return zip(self._numbers, messages, map(int, np.bincount(topics, sizes).tolist()), strict=True)


class Counters:
    def __init__(self, counters_max: int = COUNTERS_MAX) -> None:
        self._counters_max = counters_max
        self._puts: dict[str, TrafficCounter] = {}
        self._uncounted = UncountedPuts()
        self.ordered_puts: dict[str, TrafficCounter] = {}
        """The part of `puts` with a sharding key."""
        self.gets: dict[TopicAndGroup, GroupCounter] = {}
        self.cold_gets: dict[TopicAndGroup, TrafficCounter] = {}
        """The part of `gets` that waited for the disk."""
        self.send_backs: dict[TopicAndGroup, TrafficCounter] = {}
        """By original topic."""
        self.dead_letters: dict[TopicAndGroup, TrafficCounter] = {}
        self.commits: dict[str, TrafficCounter] = {}
        self.rollbacks: dict[str, TrafficCounter] = {}
        self.sizes = [0] * (SIZE_BITS_MAX + 1)
        """Messages by record size: element n counts sizes above 2**(n - 1) and up to 2**n bytes."""
        self.bytes_in = 0
        self.merged_in = 0
        """Messages after the first one of a batch."""
        self.found = 0
        """Pull requests that returned messages."""
        self.missed = 0
        """Pull requests that found nothing."""
        self.messages_out = 0
        self.bytes_out = 0
        self.rejected_sends: Counter[str] = Counter()
        self.level_deliveries: Counter[int] = Counter()
        self.timer_deliveries = 0
        self.append_s = Histogram(SECONDS)
        self.sync_s = Histogram(SECONDS)
        self.replicated_s = Histogram(SECONDS)
        self.cold_read_s = Histogram(SECONDS)

    # --- appended messages ------------------------------------------------------------------------------------------

    @property
    def puts(self) -> dict[str, TrafficCounter]:
        """By topic in the log: a delayed message counts for the schedule topic first, for its own topic on delivery."""
        if self._uncounted:
            self._count_uncounted()
        return self._puts

    def _count_uncounted(self) -> None:
        uncounted, self._uncounted = self._uncounted, UncountedPuts()
        for topic, messages, size in uncounted.totals():
            self._put(topic, messages, size)

    def put(self, topic: str, size: int, seconds: float) -> None:
        """Counts one appended message; the append took `seconds`."""
        counter = self._puts.get(topic)
        if counter is None:
            counter = self._counter(self._puts, topic, OVERFLOW_KEY, TrafficCounter)
        counter.messages += 1
        counter.bytes += size
        self.bytes_in += size
        self.sizes[(size - 1).bit_length()] += 1
        self.append_s.add(seconds)

    def put_all(self, topics: Sequence[str], sizes: Sequence[int], seconds: float) -> None:
        """Counts the messages of one append together, at a fifth of the cost of counting them one by one."""
        total = sum(sizes)
        self.bytes_in += total
        self.append_s.add(seconds, len(sizes))
        smallest, largest = (min(sizes) - 1).bit_length(), (max(sizes) - 1).bit_length()
        if smallest == largest:
            self.sizes[largest] += len(sizes)
        else:
            for size in sizes:
                self.sizes[(size - 1).bit_length()] += 1
        if topics.count(topics[0]) == len(topics):
            self._put(topics[0], len(sizes), total)
        else:
            self._uncounted.add(topics, sizes)
            if len(self._uncounted) >= UNCOUNTED_MAX:
                self._count_uncounted()

    def _put(self, topic: str, messages: int, size: int) -> None:
        counter = self._counter(self._puts, topic, OVERFLOW_KEY, TrafficCounter)
        counter.messages += messages
        counter.bytes += size

    def put_together(self, topic: str, appended: Sequence[Appended]) -> None:
        """Counts an appended batch. The store does not measure the time of batches."""
        counter = self._counter(self._puts, topic, OVERFLOW_KEY, TrafficCounter)
        for record in appended:
            counter.bytes += record.size
            self.bytes_in += record.size
            self.sizes[(record.size - 1).bit_length()] += 1
        counter.messages += len(appended)
        counter.merged += len(appended) - 1
        self.merged_in += len(appended) - 1

    def put_batch(self, topic: str, sizes: Sequence[int], batches: int = 1) -> None:
        """Counts one or several appended client batches; `sizes` of all records."""
        count, total = len(sizes), sum(sizes)
        self._put(topic, count, total)
        self._puts[topic if topic in self._puts else OVERFLOW_KEY].merged += count - batches
        self.merged_in += count - batches
        self.bytes_in += total
        smallest, largest = (min(sizes) - 1).bit_length(), (max(sizes) - 1).bit_length()
        if smallest == largest:
            self.sizes[largest] += count
        else:
            for size in sizes:
                self.sizes[(size - 1).bit_length()] += 1

    def put_ordered(self, topic: str, size: int) -> None:
        """Counts an appended message with a sharding key, in addition to `put`."""
        counter = self._counter(self.ordered_puts, topic, OVERFLOW_KEY, TrafficCounter)
        counter.messages += 1
        counter.bytes += size

    def rejected(self, error: RequestFailed) -> None:
        """Counts a rejected send: by flow control's reason in brackets, otherwise by response code."""
        reason, bracket, _ = error.remark[1:].partition("]") if error.remark.startswith("[") else ("", "", "")
        self.rejected_sends[reason if bracket else _code_name(error.code)] += 1

    @property
    def messages_in(self) -> int:
        return sum(self.sizes)

    # --- consumed messages ------------------------------------------------------------------------------------------

    def got(self, topic: str, group: str, queue_id: int, messages: int, size: int, next_offset: int) -> None:
        """Counts a pull response with messages; the group continues at `next_offset`."""
        counter = self._of_group(topic, group)
        counter.messages += messages
        counter.bytes += size
        counter.merged += messages - 1
        counter.pulled[queue_id] = next_offset
        self.found += 1
        self.messages_out += messages
        self.bytes_out += size

    def got_nothing(self, topic: str, group: str, queue_id: int, next_offset: int) -> None:
        """Counts a pull without matching messages. It counts again when its long poll times out, as in Apache."""
        self._of_group(topic, group).pulled[queue_id] = next_offset
        self.missed += 1

    def _of_group(self, topic: str, group: str) -> GroupCounter:
        return self._counter(self.gets, (topic, group), (OVERFLOW_KEY, OVERFLOW_KEY), GroupCounter)

    def read_cold(self, topic: str, group: str, messages: int, size: int, seconds: float) -> None:
        """Counts a pull that waited for the disk."""
        self.cold_read_s.add(seconds)
        if messages:
            self._add(self.cold_gets, topic, group, messages, size)

    # --- retries, transactions, delays ------------------------------------------------------------------------------

    def sent_back(self, topic: str, group: str, size: int, *, is_dead: bool) -> None:
        """Counts a message that a consumer sent back; `is_dead` if it became a dead letter."""
        self._add(self.send_backs, topic, group, 1, size)
        if is_dead:
            self.died(topic, group, size)

    def died(self, topic: str, group: str, size: int) -> None:
        self._add(self.dead_letters, topic, group, 1, size)

    def _add(
        self, table: dict[TopicAndGroup, TrafficCounter], topic: str, group: str, messages: int, size: int
    ) -> None:
        counter = self._counter(table, (topic, group), (OVERFLOW_KEY, OVERFLOW_KEY), TrafficCounter)
        counter.messages += messages
        counter.bytes += size
        counter.merged += messages - 1

    def ended(self, topic: str, *, is_commit: bool) -> None:
        self._counter(self.commits if is_commit else self.rollbacks, topic, OVERFLOW_KEY, TrafficCounter).messages += 1

    # --- tables -----------------------------------------------------------------------------------------------------

    def _counter(self, table: dict[K, T], key: K, overflow_key: K, kind: Callable[[int], T]) -> T:
        counter = table.get(key)
        if counter is None:
            if len(table) >= self._counters_max:
                key = overflow_key
            counter = table.get(key) or table.setdefault(key, kind(SlidingWindows.SLOTS))
        return counter

    def all(self) -> list[TrafficCounter]:
        return [counter for table in self._tables() for counter in table.values()]

    def _tables(
        self,
    ) -> tuple[
        dict[str, TrafficCounter] | dict[TopicAndGroup, TrafficCounter] | dict[TopicAndGroup, GroupCounter], ...
    ]:
        by_topic = (self.puts, self.ordered_puts, self.commits, self.rollbacks)
        return (*by_topic, self.gets, self.cold_gets, self.send_backs, self.dead_letters)

    def remove_unknown(self, is_topic: Callable[[str], bool], is_group: Callable[[str], bool]) -> None:
        """Removes the counters of topics and groups that no longer exist."""
        for by_topic in (self.puts, self.ordered_puts, self.commits, self.rollbacks):
            for topic in [name for name in by_topic if not is_topic(name)]:
                del by_topic[topic]
        for by_group in (self.gets, self.cold_gets, self.send_backs, self.dead_letters):
            for key in [key for key in by_group if not (is_topic(key[0]) and is_group(key[1]))]:
                del by_group[key]


def _code_name(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return str(code)
