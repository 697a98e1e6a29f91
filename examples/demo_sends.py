"""The ways to send: waiting for the broker, not waiting, many at once."""

import asyncio

from ariane.client.producer.producer import Producer
from ariane.client.producer.result import SendResult
from ariane.model.message import Message
from examples.demo_stage import Row, Stage, bodies, consuming


async def normal(stage: Stage) -> Row:
    topic = await stage.topic("normal")
    async with consuming(stage, topic) as inbox:
        results = [await stage.producer.send(topic, body, keys=[f"order-{body.decode()}"]) for body in bodies(10)]
        await inbox.wait_for(10)
    ok = all(result.is_ok for result in results) and sorted(inbox.bodies) == sorted(bodies(10))
    return Row(10, inbox.count, "each send returned when its message was stored", ok)


async def asynchronous(stage: Stage) -> Row:
    topic = await stage.topic("asynchronous")
    told: list[SendResult | None] = []
    async with consuming(stage, topic) as inbox:
        sends = [
            stage.producer.send_nowait(topic, body, callback=lambda result, _error: told.append(result))
            for body in bodies(100)
        ]
        results = await asyncio.gather(*sends)
        await inbox.wait_for(100)
    ok = len({result.message_id for result in results}) == len(told) == inbox.count == 100
    return Row(100, inbox.count, "100 in flight, each with its own result and callback", ok)


async def one_way(stage: Stage) -> Row:
    topic = await stage.topic("one-way")
    async with consuming(stage, topic) as inbox:
        for body in bodies(10):
            await stage.producer.send_oneway(topic, body)
        await inbox.wait_for(10)
    return Row(10, inbox.count, "nobody waited for an answer", inbox.count == 10)


async def batch(stage: Stage) -> Row:
    topic = await stage.topic("batch")
    async with consuming(stage, topic) as inbox:
        results = await stage.producer.send_batch([Message(topic=topic, body=body) for body in bodies(10)])
        await inbox.wait_for(10)
    ok = _is_one_run(results) and inbox.count == 10
    return Row(10, inbox.count, f"one request, one queue, {_run(results)}", ok)


async def lingering(stage: Stage) -> Row:
    """Many small sends, which the producer gathers for 20 ms and sends together."""
    topic = await stage.topic("linger")
    async with (
        consuming(stage, topic) as inbox,
        Producer(stage.nameserver, group="linger-senders", batch_linger_ms=20) as producer,
    ):
        await producer.queues(topic)
        results = await asyncio.gather(*(producer.send(topic, body) for body in bodies(100)))
        await inbox.wait_for(100)
    ok = _is_one_run(results) and inbox.count == 100
    return Row(100, inbox.count, "100 tasks shared one request, each got its own result", ok)


async def large(stage: Stage) -> Row:
    topic = await stage.topic("large")
    body = b"a line that repeats itself; " * 40_000
    async with consuming(stage, topic) as inbox:
        await stage.producer.send(topic, body)
        await inbox.wait_for(1)
    stored = inbox.messages[0].stored_size if inbox.messages else 0
    ok = inbox.bodies == [body] and 0 < stored < len(body)
    return Row(1, inbox.count, f"{len(body):,} bytes, stored as {stored:,}, read whole", ok)


def _is_one_run(results: list[SendResult]) -> bool:
    offsets = [result.queue_offset for result in results]
    return len({result.queue for result in results}) == 1 and offsets == list(
        range(offsets[0], offsets[0] + len(offsets))
    )


def _run(results: list[SendResult]) -> str:
    return f"offsets {results[0].queue_offset} to {results[-1].queue_offset}"
