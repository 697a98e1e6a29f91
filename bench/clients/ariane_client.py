"""Benchmark of Ariane's client."""

import asyncio
from collections import deque

import uvloop

from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.client.producer.result import SendResult
from bench.clients.plan import ClientPlan, ClientResult, Job
from bench.clients.stopwatch import Stopwatch

IN_FLIGHT = 256
BATCHED_IN_FLIGHT = 2_048
SENDERS = {Job.SEND_ONE_BY_ONE: 1, Job.SEND_IN_FLIGHT: IN_FLIGHT, Job.SEND_BATCHED: BATCHED_IN_FLIGHT}
LINGER_MS = 2.0


def run(plan: ClientPlan) -> ClientResult:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_consume(plan) if plan.job is Job.CONSUME else _send(plan))


async def _send(plan: ClientPlan) -> ClientResult:
    linger_ms = LINGER_MS if plan.job in (Job.SEND_BATCHED, Job.SEND_NOWAIT) else 0.0
    async with Producer(plan.nameserver, group="bench-client", batch_linger_ms=linger_ms) as producer:
        await producer.send(plan.topic, b"x" * plan.body_bytes)  # finds the route and connects
        watch = Stopwatch()
        await (_send_nowait(producer, plan) if plan.job is Job.SEND_NOWAIT else _send_and_await(producer, plan))
        return watch.result(plan.messages)


async def _send_and_await(producer: Producer, plan: ClientPlan) -> None:
    """Many tasks; each awaits the result of a message before it sends the next."""
    body = b"x" * plan.body_bytes
    turns = iter(range(plan.messages))

    async def send_some() -> None:
        for _ in turns:
            await producer.send(plan.topic, body, keys="order-1", tags="paid")

    async with asyncio.TaskGroup() as group:
        for _ in range(SENDERS[plan.job]):
            group.create_task(send_some())


async def _send_nowait(producer: Producer, plan: ClientPlan) -> None:
    """One task, which awaits the result of each message some messages later."""
    body = b"x" * plan.body_bytes
    sent: deque[asyncio.Future[SendResult]] = deque()
    for _ in range(plan.messages):
        sent.append(producer.send_nowait(plan.topic, body, keys="order-1", tags="paid"))
        if len(sent) == BATCHED_IN_FLIGHT:
            await sent.popleft()
    for future in sent:
        await future


async def _consume(plan: ClientPlan) -> ClientResult:
    """Counts from the first message: finding brokers and rebalancing is not consuming."""
    consumer = PushConsumer(plan.nameserver, group="bench-client", start="earliest")
    done = asyncio.Event()
    watch: Stopwatch | None = None
    count = 0

    @consumer.on(plan.topic)
    async def take(message: Received) -> None:
        nonlocal watch, count
        if watch is None:
            watch = Stopwatch()
        count += 1
        if count == plan.messages:
            done.set()

    async with consumer:
        await done.wait()
        assert watch is not None
        return watch.result(count)
