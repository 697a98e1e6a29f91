"""Requests for the offsets of queues, over real sockets."""

from pathlib import Path

import pytest

from ariane.errors import RequestFailed
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.offsets import GetEarliestStoreTime, GetMaxOffset, GetMinOffset, SearchOffset
from tests.broker.in_process_broker import TOPIC, InProcessBroker, a_send, in_process_broker


async def three_messages(broker: InProcessBroker, clock: FakeClock) -> None:
    """At 1000, 2000 (twice) and 3000 ms."""
    await broker.call(a_send())
    for _ in range(2):
        await clock.advance(1)
        await broker.call(a_send())
        if clock.now_ms() == 2000:
            await broker.call(a_send())


async def test_a_queue_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert (await broker.call(GetMaxOffset("nowhere", 0))).offset == 0
        assert (await broker.call(GetMinOffset("nowhere", 0))).offset == 0
        assert (await broker.call(GetEarliestStoreTime("nowhere", 0))).timestamp == -1
        for boundary in (None, "LOWER", "UPPER"):
            assert (await broker.call(SearchOffset("nowhere", 0, 5, boundary))).offset == 0
        assert (await broker.call(GetMaxOffset(TOPIC, -1))).offset == 0


async def test_a_queue_has_bounds_and_an_earliest_store_time(tmp_path: Path) -> None:
    clock = FakeClock(1000)
    async with in_process_broker(tmp_path, clock) as broker:
        await three_messages(broker, clock)
        assert (await broker.call(GetMaxOffset(TOPIC, 0))).offset == 4
        assert (await broker.call(GetMinOffset(TOPIC, 0))).offset == 0
        assert (await broker.call(GetEarliestStoreTime(TOPIC, 0))).timestamp == 1000


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [(-5, 0, 0), (999, 0, 0), (1000, 0, 0), (1500, 1, 0), (2000, 1, 2), (2500, 3, 2), (3000, 3, 3), (2**63 - 1, 4, 3)],
)
async def test_a_time_is_found_from_both_sides(tmp_path: Path, timestamp: int, lower: int, upper: int) -> None:
    clock = FakeClock(1000)
    async with in_process_broker(tmp_path, clock) as broker:
        await three_messages(broker, clock)
        assert (await broker.call(SearchOffset(TOPIC, 0, timestamp))).offset == lower
        assert (await broker.call(SearchOffset(TOPIC, 0, timestamp, "lower"))).offset == lower
        assert (await broker.call(SearchOffset(TOPIC, 0, timestamp, "UPPER"))).offset == upper


async def test_an_unknown_boundary_is_rejected(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        with pytest.raises(RequestFailed) as caught:
            await broker.call(SearchOffset(TOPIC, 0, 5, "MIDDLE"))
        assert caught.value.code == ResponseCode.INVALID_PARAMETER
