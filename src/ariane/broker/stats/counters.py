"""Numbers that everything else counts into: plain attributes, raised where something happens, read by whoever asks.

For the event loop alone, so there are no locks. A put costs less than half a microsecond. What is made of the numbers -
rates, windows, Apache's statistics, the page of metrics - is made when it is asked for.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ariane.errors import RequestFailed
from ariane.store.append.draft import Appended
from ariane.wire.codes import ResponseCode

# --- tallies ---
#
# What is counted: sums that only grow, and how they stood at the ends of the windows (windows.py).

COLUMNS = 3
"""Of a sample: messages, bytes, times."""


class TrafficCounter:
    """Of one topic, or of one group and topic. Its few attributes are raised in place: that is the hot path."""

    __slots__ = ("bytes", "merged", "messages", "samples")

    def __init__(self, samples: int) -> None:
        """With room for so many samples. They begin as zeros, which is what there was before the first count."""
        self.messages = 0
        self.bytes = 0
        self.merged = 0
        """Messages that came with another one, in a batch or in the answer to one pull."""
        self.samples = array("q", bytes(8 * COLUMNS * samples))

    @property
    def times(self) -> int:
        """How often something came: a batch is one time."""
        return self.messages - self.merged

    def sample(self, slot: int) -> None:
        at = slot * COLUMNS
        self.samples[at], self.samples[at + 1], self.samples[at + 2] = self.messages, self.bytes, self.times


class GroupCounter(TrafficCounter):
    """What a group got from a topic, and up to where."""

    __slots__ = ("pulled",)

    def __init__(self, samples: int) -> None:
        super().__init__(samples)
        self.pulled: dict[int, int] = {}
        """By queue, the offset that the group's last pull was told to go on from."""


class Histogram:
    """How many values were not above each bound. The last count is of those above all of them."""

    __slots__ = ("bounds", "counts", "largest", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.largest = 0.0

    def add(self, value: float, times: int = 1) -> None:
        if value <= self.bounds[0]:  # most of them
            self.counts[0] += times
        else:
            self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times
        if value > self.largest:
            self.largest = value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def up_to(self, bound: float) -> int:
        """How many values were not above `bound`, which is one of the bounds."""
        return sum(self.counts[: self.bounds.index(bound) + 1])


# --- windows ---
#
# How much of a tally came in the last minute, hour and day.
#
# Every window has a ring of samples in each tally. The slot that the next sample will overwrite holds the oldest one,
# and what came since is the difference to now:
#
#     a window of 6 slots     t3  t4  t5  t0  t1  t2        t0 is the oldest: it is overwritten next
#                                         ▲ next
#
# A tally that is younger than a window has zeros there, which is how much there was of it; a broker that is younger has
# its start as the time of that sample. So a rate is over the whole window, or over the broker's life.

TICK_S = 10
"""Time between two samples of the shortest window, as Apache's."""


class WindowTotals(NamedTuple):
    """What came within a window."""

    messages: int
    bytes: int
    times: int
    seconds: float
    """How far back the window reaches: up to one sample less than its name says, and never nothing."""


@dataclass(slots=True)
class SlidingWindow:
    first_slot: int
    slots: int
    ticks: int
    """How many ticks are between two of its samples."""
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


_WINDOW_SPECS = ((6, 1), (6, 60), (24, 360))  # slots, and ticks between two samples: 10 s, 10 min, 1 h


class SlidingWindows:
    SLOTS = sum(slots for slots, _ in _WINDOW_SPECS)

    def __init__(self, now: float) -> None:
        self._ticks = 0
        first = 0
        made = []
        for slots, ticks in _WINDOW_SPECS:
            made.append(SlidingWindow(first, slots, ticks, [now] * slots))
            first += slots
        self.minute, self.hour, self.day = made

    def tick(self) -> list[SlidingWindow]:
        """To be called every TICK_S: the windows that a sample is due for."""
        self._ticks += 1
        return [window for window in (self.minute, self.hour, self.day) if self._ticks % window.ticks == 0]


# ---

COUNTERS_MAX = 100_000
"""Of each kind; one takes about 1.2 KiB. What is beyond them is counted together, under a name of no topic."""

OVERFLOW_KEY = "..."

UNCOUNTED_MAX = 8_192
"""Messages of different topics that wait to be counted, until somebody asks. A topic that gets a few of them is then
touched once: with 5,000 topics its tally is never in the CPU's cache, and took 0.65 us of each message."""

SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
"""From 10 ms on the bounds of Apache's putMessageDistributeTime."""

SIZE_BITS_MAX = 40

K = TypeVar("K")
T = TypeVar("T", bound=TrafficCounter)
TopicAndGroup = tuple[str, str]


class Counters:
    def __init__(self, counters_max: int = COUNTERS_MAX) -> None:
        self._counters_max = counters_max
        self._puts: dict[str, TrafficCounter] = {}
        self._uncounted_topics: list[str] = []  # of messages that are not in a tally yet, and their sizes
        self._uncounted_sizes: list[int] = []
        self.ordered_puts: dict[str, TrafficCounter] = {}
        """Those of them that have a sharding key."""
        self.gets: dict[TopicAndGroup, GroupCounter] = {}
        self.cold_gets: dict[TopicAndGroup, TrafficCounter] = {}
        """Those of them that had to wait for the disk."""
        self.send_backs: dict[TopicAndGroup, TrafficCounter] = {}
        """By the topic that the message was first sent to."""
        self.dead_letters: dict[TopicAndGroup, TrafficCounter] = {}
        self.commits: dict[str, TrafficCounter] = {}
        self.rollbacks: dict[str, TrafficCounter] = {}
        self.sizes = [0] * (SIZE_BITS_MAX + 1)
        """Messages by the size of their records: number n is of those above 2**(n - 1) and up to 2**n bytes."""
        self.bytes_in = 0
        self.merged_in = 0
        """Messages that came behind the first one of a batch."""
        self.found = 0
        """Pulls that got something, and those that did not."""
        self.missed = 0
        self.messages_out = 0
        self.bytes_out = 0
        self.rejected_sends: Counter[str] = Counter()
        self.level_deliveries: Counter[int] = Counter()
        self.timer_deliveries = 0
        self.append_s = Histogram(SECONDS)
        self.sync_s = Histogram(SECONDS)
        self.cold_read_s = Histogram(SECONDS)

    # --- into the log -----------------------------------------------------------------------------------------------

    @property
    def puts(self) -> dict[str, TrafficCounter]:
        """By topic, as it is in the log: a delayed message counts for the schedule topic first, for its own later."""
        if self._uncounted_topics:
            self._count_uncounted()
        return self._puts

    def _count_uncounted(self) -> None:
        topics, self._uncounted_topics = self._uncounted_topics, []
        sizes, self._uncounted_sizes = self._uncounted_sizes, []
        totals: dict[str, int] = {}
        for topic, size in zip(topics, sizes, strict=True):
            totals[topic] = totals.get(topic, 0) + size
        for topic, messages in Counter(topics).items():
            self._put(topic, messages, totals[topic])

    def put(self, topic: str, size: int, seconds: float) -> None:
        """One message is in the log; the append took `seconds`."""
        counter = self._puts.get(topic)
        if counter is None:
            counter = self._counter(self._puts, topic, OVERFLOW_KEY, TrafficCounter)
        counter.messages += 1
        counter.bytes += size
        self.bytes_in += size
        self.sizes[(size - 1).bit_length()] += 1
        self.append_s.add(seconds)

    def put_all(self, topics: Sequence[str], sizes: Sequence[int], seconds: float) -> None:
        """The messages that one append put into the log: counted together, at a fifth of the cost of one by one."""
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
            self._uncounted_topics += topics
            self._uncounted_sizes += sizes
            if len(self._uncounted_topics) >= UNCOUNTED_MAX:
                self._count_uncounted()

    def _put(self, topic: str, messages: int, size: int) -> None:
        counter = self._counter(self._puts, topic, OVERFLOW_KEY, TrafficCounter)
        counter.messages += messages
        counter.bytes += size

    def put_together(self, topic: str, appended: Sequence[Appended]) -> None:
        """A batch is in the log. The store does not time those."""
        counter = self._counter(self._puts, topic, OVERFLOW_KEY, TrafficCounter)
        for one in appended:
            counter.bytes += one.size
            self.bytes_in += one.size
            self.sizes[(one.size - 1).bit_length()] += 1
        counter.messages += len(appended)
        counter.merged += len(appended) - 1
        self.merged_in += len(appended) - 1

    def put_batch(self, topic: str, sizes: Sequence[int], batches: int = 1) -> None:
        """A client's batch is in the log, or several; the sizes of all records."""
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
        """One of those that were put has a sharding key."""
        counter = self._counter(self.ordered_puts, topic, OVERFLOW_KEY, TrafficCounter)
        counter.messages += 1
        counter.bytes += size

    def rejected(self, error: RequestFailed) -> None:
        """A send was refused. Flow control tells its reason in brackets, others have a code of their own."""
        reason, bracket, _ = error.remark[1:].partition("]") if error.remark.startswith("[") else ("", "", "")
        self.rejected_sends[reason if bracket else _code_name(error.code)] += 1

    @property
    def messages_in(self) -> int:
        return sum(self.sizes)

    # --- out of it --------------------------------------------------------------------------------------------------

    def got(self, topic: str, group: str, queue_id: int, messages: int, size: int, next_offset: int) -> None:
        """A pull is answered with messages; the group goes on from `next_offset`."""
        counter = self._of_group(topic, group)
        counter.messages += messages
        counter.bytes += size
        counter.merged += messages - 1
        counter.pulled[queue_id] = next_offset
        self.found += 1
        self.messages_out += messages
        self.bytes_out += size

    def got_nothing(self, topic: str, group: str, queue_id: int, next_offset: int) -> None:
        """A pull found nothing that it wants. It counts again when it has waited in vain, as at Apache's."""
        self._of_group(topic, group).pulled[queue_id] = next_offset
        self.missed += 1

    def _of_group(self, topic: str, group: str) -> GroupCounter:
        return self._counter(self.gets, (topic, group), (OVERFLOW_KEY, OVERFLOW_KEY), GroupCounter)

    def read_cold(self, topic: str, group: str, messages: int, size: int, seconds: float) -> None:
        """A pull had to wait for the disk."""
        self.cold_read_s.add(seconds)
        if messages:
            self._add(self.cold_gets, topic, group, messages, size)

    # --- retries, transactions, delays ------------------------------------------------------------------------------

    def sent_back(self, topic: str, group: str, size: int, *, is_dead: bool) -> None:
        """A consumer gave a message back; `is_dead` when that was once too often."""
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

    # --- keeping them few -------------------------------------------------------------------------------------------

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

    def forget(self, is_topic: Callable[[str], bool], is_group: Callable[[str], bool]) -> None:
        """Drops what counts for topics and groups that are no more."""
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
