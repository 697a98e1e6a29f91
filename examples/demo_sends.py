"""Sending: synchronously, asynchronously, one-way, in batches, compressed, and as a request with a reply."""

import asyncio

from ariane import Message, Producer, Received, SendResult
from examples.demo_common import DemoCluster, Result, bodies, consuming


async def normal(cluster: DemoCluster) -> Result:
    """`send` waits for the response of the broker."""
    topic = await cluster.topic("normal")
    async with consuming(cluster, topic) as collector:
        results = [await cluster.producer.send(topic, body, keys=[f"order-{body.decode()}"]) for body in bodies(10)]
        await collector.wait_for(10)
    ok = all(result.is_ok for result in results) and sorted(collector.bodies) == sorted(bodies(10))
    return Result(10, collector.count, "each send returned when its message was stored", ok)


async def asynchronous(cluster: DemoCluster) -> Result:
    """`send_nowait` returns a future, and calls a callback with the result."""
    topic = await cluster.topic("asynchronous")
    callback_results: list[SendResult | None] = []
    async with consuming(cluster, topic) as collector:
        sends = [
            cluster.producer.send_nowait(topic, body, callback=lambda result, _error: callback_results.append(result))
            for body in bodies(100)
        ]
        results = await asyncio.gather(*sends)
        await collector.wait_for(100)
    ok = len({result.message_id for result in results}) == len(callback_results) == collector.count == 100
    return Result(100, collector.count, "100 in flight, each with its own result and callback", ok)


async def one_way(cluster: DemoCluster) -> Result:
    """`send_oneway` does not wait: the producer does not learn whether the message was stored."""
    topic = await cluster.topic("one-way")
    async with consuming(cluster, topic) as collector:
        for body in bodies(10):
            await cluster.producer.send_oneway(topic, body)
        await collector.wait_for(10)
    return Result(10, collector.count, "sent without waiting for a response", collector.count == 10)


async def batch(cluster: DemoCluster) -> Result:
    """`send_batch` sends several messages in one request."""
    topic = await cluster.topic("batch")
    async with consuming(cluster, topic) as collector:
        results = await cluster.producer.send_batch([Message(topic=topic, body=body) for body in bodies(10)])
        await collector.wait_for(10)
    ok = _is_consecutive(results) and collector.count == 10
    return Result(10, collector.count, f"one request, one queue, {_offsets(results)}", ok)


async def lingering(cluster: DemoCluster) -> Result:
    """`batch_linger_ms`: the producer collects small sends for 20 ms and sends them as one batch."""
    topic = await cluster.topic("linger")
    async with (
        consuming(cluster, topic) as collector,
        Producer(cluster.nameserver, group="linger-senders", batch_linger_ms=20) as producer,
    ):
        await producer.queues(topic)
        results = await asyncio.gather(*(producer.send(topic, body) for body in bodies(100)))
        await collector.wait_for(100)
    ok = _is_consecutive(results) and collector.count == 100
    return Result(100, collector.count, "100 tasks shared one request, each got its own result", ok)


async def large(cluster: DemoCluster) -> Result:
    """Large bodies are compressed by the producer and decompressed by the consumer."""
    topic = await cluster.topic("large")
    body = b"a line that repeats itself; " * 40_000
    async with consuming(cluster, topic) as collector:
        await cluster.producer.send(topic, body)
        await collector.wait_for(1)
    stored = collector.messages[0].stored_size if collector.messages else 0
    ok = collector.bodies == [body] and 0 < stored < len(body)
    return Result(1, collector.count, f"{len(body):,} bytes, stored as {stored:,}, received complete", ok)


async def request_reply(cluster: DemoCluster) -> Result:
    """`request` sends a message and waits for the reply of its consumer."""
    topic = await cluster.topic("request-reply")

    async def reply_to(message: Received) -> None:
        await cluster.producer.reply(message, b"42, " + message.body)

    async with consuming(cluster, topic, handler=reply_to):
        reply = await cluster.producer.request(topic, b"the answer?", timeout_s=10)
    return Result(1, 1, f"reply: {reply.body.decode()!r}", reply.body == b"42, the answer?")


def _is_consecutive(results: list[SendResult]) -> bool:
    offsets = [result.queue_offset for result in results]
    return len({result.queue for result in results}) == 1 and offsets == list(
        range(offsets[0], offsets[0] + len(offsets))
    )


def _offsets(results: list[SendResult]) -> str:
    return f"offsets {results[0].queue_offset} to {results[-1].queue_offset}"
