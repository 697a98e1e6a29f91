"""The event loop never waits for the disk: threads read bytes that are not in the page cache.

Verified by measurement: see cold_pages.py.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ariane.broker.metrics.collect import MetricsCollector
from ariane.model.group import GroupConfig
from ariane.model.ids import PhysicalOffset
from ariane.model.topic import TopicConfig
from ariane.replication.role import Replication
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.store.disk import RealDisk
from ariane.testing import FakeClock
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.fields import Request, Response
from ariane.wire.requests.brokers import DeleteExpiredCommitLog, GetRuntimeInfo
from ariane.wire.requests.groups import GetConsumeStats, GetConsumeTimeSpans
from ariane.wire.requests.messages import QueryConsumeQueue, QueryMessages, ViewMessage
from ariane.wire.requests.offsets import GetConsumerOffset, GetEarliestStoreTime, SearchOffset
from ariane.wire.requests.send import Decision, SendBack, SendResponse
from ariane.wire.requests.topics import GetTopicStats
from tests.broker.brokers import RunningBroker, running_broker
from tests.broker.cold_pages import PAGE, Watch, can_be_forgotten, forget, forget_file, read_at_random, watched
from tests.broker.in_process_broker import GROUP, TOPIC, a_pull, a_send
from tests.broker.transaction_fixtures import half_send, outcome_of
from tests.store.stores import draft

MESSAGES = 1_200
WAITING = 120
"""More than a queue keeps in memory."""
ATTEMPTS = 3
HOUR_S = 3_600

Drive = Callable[[], Awaitable[object]]
A = TypeVar("A", bound=Response)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not can_be_forgotten(tmp_path / "probe"):
        pytest.skip("this file system is in memory, so pages cannot be evicted")
    read_at_random(monkeypatch)
    return tmp_path


@dataclass
class Cold:
    """A broker on a store with evicted pages, and a client."""

    broker: RunningBroker
    caller: Caller
    clock: FakeClock
    monkeypatch: pytest.MonkeyPatch

    async def call(self, request: Request[A]) -> A:
        return await self.caller.call(self.broker.address, request, 30)

    async def watch(self, drive: Drive) -> Watch:
        forget(self.broker.parts.store.store)
        with watched(self.monkeypatch) as watch:
            await drive()
        return watch


@asynccontextmanager
async def cold_broker(directory: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cold]:
    store = {"segment_bytes": 256 * 1024, "index_slots": 100_000, "index_entries": 100_000, "retention_hours": 1}
    levels = {"message_delay_levels": "1s 5s 10s"}
    async with (
        running_broker(directory, clock=clock, store=store | levels) as broker,
        Pool.open(TransportSettings(), FakeClock(), Dispatcher(HandlerTable.of()).receive) as pool,
    ):
        yield Cold(broker, Caller(pool), clock, monkeypatch)


async def fill(cold: Cold) -> list[SendResponse]:
    """Messages that wait, and behind them those of two queues; the answers to the half messages."""
    parts = cold.broker.parts
    parts.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
    parts.groups.put(GroupConfig(group_name=GROUP))
    due_ms = cold.clock.now_ms() + 5_000
    half_messages = [await cold.call(half_send(b"%d" % number)) for number in range(WAITING)]
    for number in range(WAITING):
        await cold.call(a_send(b"%d" % number, {"DELAY": "2"}))
        await cold.call(a_send(b"%d" % number, {"TIMER_DELIVER_MS": str(due_ms)}))
    parts.store.store.append([draft(b"the last of its queue", TOPIC, 2)])
    for number in range(MESSAGES):
        cold.clock._elapsed_s += 0.001
        parts.store.store.append([draft(b"%d" % number + bytes(1_000), TOPIC, number % 2, f"k{number}", "red")])
    parts.offsets.commit(GROUP, TOPIC, 0, 100)
    await parts.timer.run_until_idle()
    return half_messages


def test_the_measure_finds_a_read_and_a_page_fault_of_this_thread(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, size = directory / "probe", 16 * PAGE
    file = RealDisk().open(path, writable=False)
    forget_file(path, size)
    with watched(monkeypatch) as read:
        file.read(PAGE, 12 * PAGE)
    forget_file(path, size)
    with watched(monkeypatch) as probe:
        assert file.read_cached(PAGE, 12 * PAGE) is None
    with watched(monkeypatch) as asked_and_read:
        assert file.read_cached(PAGE, 12 * PAGE) is None
        file.read(PAGE, 12 * PAGE)
    forget_file(path, size)
    with watched(monkeypatch) as fault:
        assert isinstance(file.view()[4 * PAGE], int)
    file.close()
    assert read.blocks
    assert fault.blocks
    assert fault.faults
    assert (probe.blocks, probe.misses) == (0, 1)
    assert asked_and_read.blocks


async def test_no_request_makes_the_loop_wait_for_the_disk(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await assert_never_waits(partial(all_questions, monkeypatch), directory)


async def all_questions(monkeypatch: pytest.MonkeyPatch, directory: Path) -> dict[str, Watch]:
    clock = FakeClock()
    async with cold_broker(directory, clock, monkeypatch) as cold:
        half_messages = await fill(cold)
    async with cold_broker(directory, clock, monkeypatch) as cold:
        queue = cold.broker.parts.store.store.components.queues.get(TOPIC, 0)
        assert queue is not None
        record = PhysicalOffset(int.from_bytes(queue.entries(300, 1)[:8], "big"))
        requests: dict[str, Request[Any]] = {
            "pull": a_pull(queue_offset=40),
            "pull with tags": a_pull(queue_offset=140, subscription="blue || red"),
            "pull with SQL": a_pull(queue_offset=240, subscription="TAGS = 'red'", expression_type="SQL92"),
            "view": ViewMessage(record),
            "query": QueryMessages(topic=TOPIC, key="k77", max_num=10, begin_timestamp=0, end_timestamp=2**62),
            "entries": QueryConsumeQueue(TOPIC, 1, 0, 400, GROUP),
            "search by time": SearchOffset(TOPIC, 1, clock.now_ms() - 1_000),
            "earliest": GetEarliestStoreTime(TOPIC, 1),
            "topic": GetTopicStats(TOPIC),
            "runtime": GetRuntimeInfo(),
            "progress": GetConsumeStats(GROUP, TOPIC),
            "time spans": GetConsumeTimeSpans(TOPIC, GROUP),
            "offset": GetConsumerOffset("new", TOPIC, 1),
            "send back": SendBack(offset=record, group=GROUP, delay_level=0),
            "commit": outcome_of(half_messages[3], Decision.COMMIT),
            "rollback": outcome_of(half_messages[70], Decision.ROLLBACK),
        }
        return {name: await cold.watch(partial(cold.call, request)) for name, request in requests.items()}


async def test_no_background_job_makes_the_loop_wait_for_the_disk(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await assert_never_waits(partial(all_rounds, monkeypatch), directory)


async def all_rounds(monkeypatch: pytest.MonkeyPatch, directory: Path) -> dict[str, Watch]:
    clock = FakeClock()
    async with cold_broker(directory, clock, monkeypatch) as cold:
        await fill(cold)
    async with cold_broker(directory, clock, monkeypatch) as cold:
        parts = cold.broker.parts
        seen = {"metrics": await cold.watch(MetricsCollector(parts, Replication()).collect)}
        clock._elapsed_s += 60
        seen["delayed"] = await cold.watch(parts.delayed.deliver_due)
        seen["timer"] = await cold.watch(parts.timer.run_until_idle)
        seen["timer"].misses += 1  # it makes no checks: threads do all its reads
        seen["checks"] = await cold.watch(parts.checks.run_pass)
        clock._elapsed_s += 100 * 365 * 24 * HOUR_S  # by the clock of the file system
        seen["retention"] = await cold.watch(lambda: cold.call(DeleteExpiredCommitLog()))
        assert parts.store.store.components.commit_log.min_offset > 0
        assert parts.statistics.counters.timer_deliveries == WAITING
    return seen


async def test_no_send_makes_the_loop_wait_for_the_disk(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await assert_never_waits(partial(all_sends, monkeypatch), directory)


async def all_sends(monkeypatch: pytest.MonkeyPatch, directory: Path) -> dict[str, Watch]:
    """Sends to queues without recent writes, with keys all over an index; and the jobs that write both."""
    clock = FakeClock()
    async with cold_broker(directory, clock, monkeypatch) as cold:
        await fill(cold)
    async with cold_broker(directory, clock, monkeypatch) as cold:
        service = cold.broker.parts.store
        keys = (random.Random(number).randbytes(8).hex() for number in count())  # hashes of numbers are neighbours

        async def send(messages: int, write: Callable[[], Awaitable[None]]) -> None:
            for key in islice(keys, messages):
                await cold.call(a_send(b"hello", {"KEYS": key}, queue_id=2))
            await write()

        rounds = {"index": service._write_index, "queues": service._write_derived, "all": service._make_durable}
        seen = {}
        for name, write in rounds.items():
            for messages in (1, 10, 200):
                seen[f"{name}, {messages}"] = await cold.watch(partial(send, messages, write))
        return seen


async def assert_never_waits(drive_all: Callable[[Path], Awaitable[dict[str, Watch]]], directory: Path) -> None:
    """A machine short of memory may also take pages of the interpreter, but not at every attempt."""
    for attempt in range(ATTEMPTS):
        seen = await drive_all(directory / str(attempt))
        if not any(watch.blocks or watch.faults or not watch.misses for watch in seen.values()):
            return
    assert {name: (watch.blocks, watch.faults) for name, watch in seen.items()} == dict.fromkeys(seen, (0, 0))
    assert [name for name, watch in seen.items() if not watch.misses] == [], "nothing was cold"
