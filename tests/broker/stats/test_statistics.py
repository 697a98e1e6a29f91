"""Rates and sliding windows with a fake clock."""

import time
from collections.abc import AsyncIterator

import pytest

from ariane.broker.stats.counters import TICK_S, Counters, SlidingWindows, TrafficCounter, WindowTotals
from ariane.broker.stats.statistics import Statistics
from ariane.store.append.draft import Appended
from ariane.testing import FakeClock

CLUSTER = "DefaultCluster"
HOUR_S = 3600


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def statistics(clock: FakeClock) -> AsyncIterator[Statistics]:
    async with Statistics.open(Counters(), clock, CLUSTER, is_topic=lambda topic: topic != "gone") as opened:
        yield opened


def put(statistics: Statistics, messages: int, topic: str = "orders", size: int = 100) -> None:
    for _ in range(messages):
        statistics.counters.put(topic, size, 0.0)


def minute(statistics: Statistics, name: str = "TOPIC_PUT_NUMS", key: str = "orders") -> WindowTotals:
    found = statistics.find(name, key)
    assert found is not None
    return found.minute


def rates(statistics: Statistics, name: str = "putTps") -> list[float]:
    return [float(word) for word in statistics.rates.texts()[name].split(" ")]


async def test_rates_are_over_ten_sixty_and_six_hundred_seconds(statistics: Statistics, clock: FakeClock) -> None:
    await clock.advance(600)
    put(statistics, 600)
    await clock.advance(10)
    assert rates(statistics) == pytest.approx([60, 10, 1], rel=0.01)
    await clock.advance(50)
    assert rates(statistics) == pytest.approx([0, 10, 1], rel=0.01)
    await clock.advance(540)
    assert rates(statistics) == pytest.approx([0, 0, 1], rel=0.01)
    await clock.advance(1)
    assert rates(statistics) == [0, 0, 0]


async def test_a_young_broker_reports_the_rate_since_its_start(statistics: Statistics, clock: FakeClock) -> None:
    put(statistics, 30)
    await clock.advance(3)
    assert rates(statistics) == pytest.approx([10, 10, 10])


async def test_pulls_with_and_without_messages_have_rates_of_their_own(
    statistics: Statistics, clock: FakeClock
) -> None:
    for _ in range(10):
        statistics.counters.got("orders", "billing", 0, 32, 3200, 32)
    for _ in range(20):
        statistics.counters.got_nothing("orders", "billing", 0, 32)
    await clock.advance(10)
    reported = {name: rates(statistics, name)[0] for name in ("getFoundTps", "getMissTps", "getTotalTps")}
    assert reported == pytest.approx({"getFoundTps": 1, "getMissTps": 2, "getTotalTps": 3})
    assert rates(statistics, "getTransferedTps")[0] == rates(statistics, "getTransferredTps")[0] == pytest.approx(32)


async def test_traffic_leaves_the_window_of_the_last_minute_after_a_minute(
    statistics: Statistics, clock: FakeClock
) -> None:
    await clock.advance(HOUR_S)
    put(statistics, 600)
    await clock.advance(10)
    assert minute(statistics).messages == 600
    assert minute(statistics).bytes == 60_000
    assert 50 <= minute(statistics).seconds <= 60
    await clock.advance(60)
    found = statistics.find("TOPIC_PUT_NUMS", "orders")
    assert found is not None
    assert (found.minute.messages, found.hour.messages, found.day.messages) == (0, 600, 600)


async def test_traffic_leaves_the_window_of_the_last_hour_after_an_hour(
    statistics: Statistics, clock: FakeClock
) -> None:
    put(statistics, 7)
    await clock.advance(HOUR_S + 1)
    found = statistics.find("TOPIC_PUT_NUMS", "orders")
    assert found is not None
    assert (found.hour.messages, found.day.messages) == (0, 7)


def test_traffic_leaves_the_window_of_the_last_day_after_a_day() -> None:
    windows, counter = SlidingWindows(now=0.0), TrafficCounter(SlidingWindows.SLOTS)
    counter.messages = 7
    for now in range(TICK_S, 25 * HOUR_S, TICK_S):
        for window in windows.tick():
            slot = window.next_slot
            window.sampled(now)
            counter.sample(slot)
        if now == 23 * HOUR_S:
            assert windows.day.recent(counter, now) == (7, 0, 7, now)
    assert windows.day.recent(counter, now).messages == 0


async def test_the_names_of_apache_are_found_by_their_keys(statistics: Statistics) -> None:
    counters = statistics.counters
    put(statistics, 4)
    counters.put_together("orders", [Appended(0, 0, 100, 0)] * 6)
    counters.got("orders", "billing", 0, 3, 300, 3)
    counters.read_cold("orders", "billing", 3, 300, 0.02)
    counters.sent_back("orders", "billing", 100, is_dead=True)
    assert minute(statistics) == minute(statistics, "BROKER_PUT_NUMS", CLUSTER)
    assert (minute(statistics).messages, minute(statistics).times) == (10, 5)
    assert minute(statistics, "GROUP_GET_SIZE", "orders@billing").bytes == 300
    assert minute(statistics, "BROKER_GET_NUMS", CLUSTER).messages == 3
    assert minute(statistics, "GROUP_GET_FROM_DISK_NUMS", "orders@billing").messages == 3
    assert minute(statistics, "SNDBCK_PUT_NUMS", "orders@billing").messages == 1
    assert minute(statistics, "DLQ_PUT_NUMS", "orders@billing").messages == 1


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "bills"),
        ("GROUP_GET_NUMS", "orders"),
        ("GROUP_GET_NUMS", "orders@unknown"),
        ("BROKER_PUT_NUMS", "another"),
        ("GROUP_GET_LATENCY", "0@orders@billing"),
        ("", ""),
    ],
)
async def test_an_unknown_statistic_is_not_found(statistics: Statistics, name: str, key: str) -> None:
    put(statistics, 1)
    assert statistics.find(name, key) is None


async def test_a_group_s_rate_is_that_of_the_last_minute(statistics: Statistics, clock: FakeClock) -> None:
    await clock.advance(120)
    statistics.counters.got("orders", "billing", 0, 600, 300, 3)
    await clock.advance(10)
    assert statistics.consume_rate("billing", "orders") == pytest.approx(10, rel=0.2)
    assert statistics.consume_rate("others", "orders") == 0
    await clock.advance(60)
    assert statistics.consume_rate("billing", "orders") == 0


async def test_counters_of_deleted_topics_are_removed_within_ten_minutes(
    statistics: Statistics, clock: FakeClock
) -> None:
    put(statistics, 1, "gone")
    put(statistics, 1)
    await clock.advance(600)
    assert set(statistics.counters.puts) == {"orders"}


async def test_the_totals_at_the_start_of_a_day_are_kept_for_a_day() -> None:
    just_before_midnight = time.mktime((2024, 5, 17, 23, 59, 50, 0, 0, -1))
    clock = FakeClock(round(just_before_midnight * 1000))
    statistics = Statistics(Counters(), clock, CLUSTER)
    put(statistics, 5)
    statistics.counters.got("orders", "billing", 0, 2, 200, 2)
    seen = []
    for seconds in (9, 5, HOUR_S, 23 * HOUR_S):
        await clock.advance(seconds)
        await statistics.sample()
        seen.append(statistics.rates.day_start)
        put(statistics, 1)
    assert seen == [((0, 0), (0, 0)), ((0, 0), (6, 2)), ((0, 0), (6, 2)), ((6, 2), (8, 2))]
