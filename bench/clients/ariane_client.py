"""Ariane's own client, as a program would use it."""

import asyncio

import uvloop

from ariane.client.producer import Producer
from ariane.client.push_consumer import PushConsumer
from ariane.client.received import Received
from bench.clients.plan import ClientPlan, ClientResult, Job
from bench.clients.stopwatch import Stopwatch

IN_FLIGHT = 256
GATHERED_IN_FLIGHT = 2_048
LINGER_MS = 2.0


def run(plan: ClientPlan) -> ClientResult:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_consume(plan) if plan.job is Job.CONSUME else _send(plan))


async def _send(plan: ClientPlan) -> ClientResult:
    linger_ms = LINGER_MS if plan.job is Job.SEND_GATHERED else 0.0
    senders = {Job.SEND_ONE_BY_ONE: 1, Job.SEND_IN_FLIGHT: IN_FLIGHT, Job.SEND_GATHERED: GATHERED_IN_FLIGHT}[plan.job]
    body = b"x" * plan.body_bytes
    async with Producer(plan.nameserver, group="bench-client", batch_linger_ms=linger_ms) as producer:
        await producer.send(plan.topic, body)  # finds the route and connects
        turns = iter(range(plan.messages))

        async def send_some() -> None:
            for _ in turns:
                await producer.send(plan.topic, body, keys="order-1", tags="paid")

        watch = Stopwatch()
        async with asyncio.TaskGroup() as group:
            for _ in range(senders):
                group.create_task(send_some())
        return watch.result(plan.messages)


async def _consume(plan: ClientPlan) -> ClientResult:
    """Counts from the first message: finding brokers and sharing out queues is not consuming."""
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
