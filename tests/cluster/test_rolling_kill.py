"""Two brokers with producers and consumers; each broker is killed in turn, repeatedly.

Every acknowledged message is consumed, queues keep their order, and a group never gets again what it had committed. The
rules are in `tests.simulation.delivery_history`. `ARIANE_ROLLING_KILLS` says how often.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from ariane.client.admin import Admin
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.client.settings import ClientSettings
from ariane.clock import Clock
from ariane.errors import ArianeError
from ariane.model.route import MessageQueue
from ariane.rpc.caller import Caller
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.requests.offsets import GetConsumerOffset
from tests.cluster.processes import ServerProcess, properties, server
from tests.simulation.delivery_history import (
    RULES,
    Acknowledged,
    Attempted,
    Began,
    Committed,
    Delivered,
    Ended,
    Event,
    Fault,
    Queue,
    violations,
)

KILLS = int(os.environ.get("ARIANE_ROLLING_KILLS", "4"))
TOPIC = "orders"
QUEUES = 2
SOLO, SHARED = "solo", "shared"
SETTLED_S = 90
"""Longer than the life of a queue lock, in case a member cannot release one."""
BETWEEN_KILLS_S = 2.0
FAST_POLLING = ClientSettings(route_poll_interval_s=1.0, heartbeat_interval_s=1.0)


@dataclass
class Run:
    """The events so far: those of producers, and those of each group."""

    events: dict[str, list[Event]] = field(default_factory=lambda: {SOLO: [], SHARED: []})
    acknowledged: set[str] = field(default_factory=set)
    delivered: dict[str, set[str]] = field(default_factory=lambda: {SOLO: set(), SHARED: set()})
    news: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    all_is_delivered: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, event: Event) -> None:
        for events in self.events.values():
            events.append(event)

    def acknowledge(self, message: str, queue: MessageQueue, offset: int, producer: str) -> None:
        self.acknowledged.add(message)
        self.note(Acknowledged(message, place(queue), offset, producer))
        self.news.set()

    async def one_more_is_acknowledged(self) -> None:
        self.news.clear()
        async with asyncio.timeout(SETTLED_S):
            await self.news.wait()

    def deliver(self, group: str, message: Received) -> None:
        body = message.body.decode()
        self.delivered[group].add(body)
        self.events[group].append(Delivered(body, place(message.queue), message.queue_offset, time.time()))
        if self.stopped.is_set():
            self.look_whether_all_is_delivered()

    def look_whether_all_is_delivered(self) -> None:
        if all(self.acknowledged <= delivered for delivered in self.delivered.values()):
            self.all_is_delivered.set()


def place(queue: MessageQueue) -> Queue:
    return queue.topic, queue.broker_name, queue.queue_id


async def produce(name: str, nameserver: str, run: Run) -> None:
    """Sends one message after the other, so that the order is known, each once, so that the outcome is known."""
    async with Producer(
        nameserver, group="producers", retries=0, send_timeout_s=1.0, settings=FAST_POLLING
    ) as producer:
        number = 0
        while not run.stopped.is_set():
            message = f"{name}-{number}"
            number += 1
            run.note(Attempted(message))
            try:
                result = await producer.send(TOPIC, message.encode())
            except ArianeError:
                await asyncio.sleep(0.02)
                continue
            run.acknowledge(message, result.queue, result.queue_offset, name)
            await asyncio.sleep(0)


@asynccontextmanager
async def consuming(nameserver: str, group: str, member: str, run: Run) -> AsyncIterator[None]:
    consumer = PushConsumer(nameserver, group=group, ordered=True, start="earliest", settings=FAST_POLLING)

    @consumer.on(TOPIC)
    async def take(message: Received) -> None:
        where = (member, place(message.queue), message.queue_offset)
        run.events[group].append(Began(*where))
        try:
            await asyncio.sleep(0)
            run.deliver(group, message)
        finally:
            run.events[group].append(Ended(*where))

    async with consumer:
        yield


async def observe(brokers: list[ServerProcess], run: Run) -> None:
    """Reads the group's offsets from the brokers; retries while a broker is killed."""
    async with Pool.open(TransportSettings(), Clock(), lambda connection, command: None) as pool:
        caller = Caller(pool)
        while not run.stopped.is_set():
            for letter, broker in zip("ab", brokers, strict=True):
                for group, queue_id in product((SOLO, SHARED), range(QUEUES)):
                    with suppress(ArianeError):
                        response = await caller.call(broker.address, GetConsumerOffset(group, TOPIC, queue_id), 1.0)
                        queue = (TOPIC, f"broker-{letter}", queue_id)
                        run.events[group].append(Committed(queue, response.offset))
            await asyncio.sleep(0.05)


@asynccontextmanager
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[str, list[ServerProcess]]]:
    async with AsyncExitStack() as stack:
        nameserver = await stack.enter_async_context(
            server(tmp_path / "namesrv.log", "namesrv", "--listen", "127.0.0.1:0")
        )
        brokers = []
        for letter in "ab":
            file = properties(
                tmp_path / f"broker-{letter}.conf",
                {
                    "brokerName": f"broker-{letter}",
                    "storePathRootDir": tmp_path / letter,
                    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
                    "flushDiskType": "ASYNC_FLUSH",  # what is in the page cache outlives a killed process
                },
            )
            arguments = ("-c", str(file), "-n", nameserver.address)
            first = ("broker", *arguments, "--listen", "127.0.0.1:0")
            broker = await stack.enter_async_context(server(tmp_path / f"broker-{letter}.log", *first))
            broker.keep_address()
            brokers.append(broker)
        yield nameserver.address, brokers


async def test_brokers_that_are_killed_in_turn_lose_and_disorder_nothing(tmp_path: Path) -> None:
    run = Run()
    async with cluster(tmp_path) as (nameserver, brokers), asyncio.TaskGroup() as tasks:
        async with AsyncExitStack() as consumers:
            async with Admin(nameserver) as admin:  # made by itself, it might be on one broker only
                await admin.topics.create(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
            for group, member in ((SOLO, "one"), (SHARED, "one"), (SHARED, "two")):
                await consumers.enter_async_context(consuming(nameserver, group, member, run))
            for name in ("p", "q"):
                tasks.create_task(produce(name, nameserver, run))
            tasks.create_task(observe(brokers, run))
            for number in range(KILLS):
                await asyncio.sleep(BETWEEN_KILLS_S)
                began_s = time.time()
                await brokers[number % 2].kill()
                await asyncio.sleep(BETWEEN_KILLS_S)
                await run.one_more_is_acknowledged()  # by the other broker
                await brokers[number % 2].start()
                run.note(Fault(began_s, time.time()))
            await asyncio.sleep(BETWEEN_KILLS_S)
            run.stopped.set()
            run.look_whether_all_is_delivered()
            with suppress(TimeoutError):  # the rules tell what is missing
                async with asyncio.timeout(SETTLED_S):
                    await run.all_is_delivered.wait()
    assert len(run.acknowledged) > 100 * KILLS
    assert {place[1] for place in (event.queue for event in run.events[SOLO] if isinstance(event, Acknowledged))} == {
        "broker-a",
        "broker-b",
    }
    assert violations(run.events[SOLO], RULES) == {}
    assert violations(run.events[SHARED], RULES) == {}
