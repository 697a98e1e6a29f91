"""The values that mqadmin's brokerStatus, statsAll and consumerProgress read from a running broker."""

from pathlib import Path

import pytest

from ariane.errors import RequestFailed
from ariane.store.settings import FlushDiskType
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.brokers import GetBrokerStats, GetRuntimeInfo
from ariane.wire.requests.groups import GetConsumeStats
from tests.broker.in_process_broker import GROUP, TOPIC, a_pull, a_send
from tests.broker.metrics_fixtures import MonitoredBroker, monitored_broker

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC}


async def busy(broker: MonitoredBroker, clock: FakeClock) -> int:
    """Twenty sends and one pull of all of them in ten seconds; how many bytes the pull got."""
    for _ in range(20):
        await broker.call(a_send(b"x" * 100))
    pulled = await broker.call(a_pull())
    await broker.call(a_pull(queue_offset=20))
    await clock.advance(10)
    return len(pulled.body)


async def test_statistics_have_apaches_names(tmp_path: Path) -> None:
    clock = FakeClock()
    async with monitored_broker(tmp_path, clock, store=ASYNC) as broker:
        size = await busy(broker, clock)
        puts = await broker.call(GetBrokerStats("TOPIC_PUT_NUMS", TOPIC))
        gets = await broker.call(GetBrokerStats("GROUP_GET_SIZE", f"{TOPIC}@{GROUP}"))
    minute = puts.body.stats_minute
    assert (minute.sum, minute.avgpt) == (20, 1)
    assert minute.tps == pytest.approx(2)
    assert puts.body.stats_hour.sum == puts.body.stats_day.sum == 20
    assert (gets.body.stats_minute.sum, gets.body.stats_minute.avgpt) == (size, size)


async def test_an_unknown_statistic_is_answered_with_the_known_names(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        with pytest.raises(RequestFailed, match="TOPIC_PUT_SIZE") as caught:
            await broker.call(GetBrokerStats("GROUP_GET_LATENCY", "0@a@b"))
        assert caught.value.code == ResponseCode.SYSTEM_ERROR
        with pytest.raises(RequestFailed, match="<TOPIC_PUT_NUMS> <bills> not exist: nothing was counted"):
            await broker.call(GetBrokerStats("TOPIC_PUT_NUMS", "bills"))


async def test_runtime_info_has_the_rates_and_sums_of_what_happened(tmp_path: Path) -> None:
    clock = FakeClock()
    async with monitored_broker(tmp_path, clock, store=ASYNC) as broker:
        size = await busy(broker, clock)
        table = (await broker.call(GetRuntimeInfo())).body.table
    assert [float(word) for word in table["putTps"].split(" ")] == pytest.approx([2, 2, 2], rel=0.1)
    assert [float(table[name].split(" ")[0]) for name in ("getFoundTps", "getMissTps", "getTotalTps")] == pytest.approx(
        [0.1, 0.1, 0.2], rel=0.1
    )
    assert table["getTransferedTps"] == table["getTransferredTps"] == table["putTps"]
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("20", "20")
    assert (table["putMessageTimesTotal"], table["putMessageSizeTotal"]) == ("20", str(size))
    assert float(table["putMessageAverageSize"]) == size / 20
    classes = dict(word.rsplit(":", 1) for word in table["putMessageDistributeTime"].split(" "))
    assert sum(map(int, classes.values())) == 20
    assert (table["putMessageFailedTimes"], table["sendThreadPoolQueueCapacity"]) == ("0", "10000")


APACHE_KEYS = """
    bootTimestamp runtime putMessageEntireTimeMax putMessageTimesTotal putMessageFailedTimes putMessageSizeTotal
    putMessageDistributeTime putMessageAverageSize dispatchMaxBuffer getMessageEntireTimeMax putTps getFoundTps
    getMissTps getTotalTps getTransferedTps putLatency99 putLatency999 commitLogDiskRatio consumeQueueDiskRatio
    commitLogMinOffset commitLogMaxOffset brokerVersionDesc brokerVersion msgPutTotalYesterdayMorning
    msgPutTotalTodayMorning msgPutTotalTodayNow msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow
    sendThreadPoolQueueSize sendThreadPoolQueueCapacity pullThreadPoolQueueSize pullThreadPoolQueueCapacity
    queryThreadPoolQueueSize queryThreadPoolQueueCapacity EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity
    dispatchBehindBytes
    pageCacheLockTimeMills sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills
    queryThreadPoolQueueHeadWaitTimeMills earliestMessageTimeStamp startAcceptSendRequestTimeStamp
    remainTransientStoreBufferNumbs remainHowManyDataToFlush commitLogDirCapacity
"""
"""What Apache's broker 4.9.8 puts into the table, without a transient store pool and with one commit log path."""


async def test_runtime_info_has_every_key_of_apaches_broker(tmp_path: Path) -> None:
    clock = FakeClock()
    async with monitored_broker(tmp_path, clock, store=ASYNC) as broker:
        await busy(broker, clock)
        table = (await broker.call(GetRuntimeInfo())).body.table
    assert set(APACHE_KEYS.split()) <= set(table)
    assert 0 < float(table["putLatency99"]) <= float(table["putLatency999"])
    assert float(table["putLatency999"]) <= 1 + float(table["putMessageEntireTimeMax"])
    for pool in ("send", "pull", "query", "EndTransaction"):
        assert int(table[f"{pool}ThreadPoolQueueCapacity"]) > 0


async def test_progress_has_the_rate_of_the_group(tmp_path: Path) -> None:
    clock = FakeClock()
    async with monitored_broker(tmp_path, clock, store=ASYNC) as broker:
        await busy(broker, clock)
        stats = await broker.call(GetConsumeStats(GROUP, TOPIC))
    assert stats.body.consume_tps == pytest.approx(2, rel=0.1)
