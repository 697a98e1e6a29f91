"""Pull consumers: the application requests messages instead of registering a handler."""

from ariane import LitePullConsumer, MessageQueue, PullConsumer, PullContext, ScheduledPullConsumer
from examples.demo_common import DemoCluster, MessageCollector, Result, bodies


async def pull(cluster: DemoCluster) -> Result:
    """PullConsumer: the application chooses queue, offset and number of messages, and commits the offsets."""
    topic = await cluster.topic("pull", queues=2)
    await _send(cluster, topic, 10)
    received = 0
    async with PullConsumer(cluster.nameserver, group="pullers") as consumer:
        queues = await consumer.queues(topic)
        for queue in queues:
            result = await consumer.pull(queue, 0)
            received += len(result.messages)
            consumer.update_offset(queue, result.next_offset)
        await consumer.commit()
        stored = [await consumer.fetch_offset(queue, from_broker=True) for queue in queues]
    return Result(
        10, received, f"offsets {stored} committed by the application", received == 10 == sum(filter(None, stored))
    )


async def lite_pull(cluster: DemoCluster) -> Result:
    """LitePullConsumer: an asynchronous iterator over messages; `seek` changes the position."""
    topic = await cluster.topic("lite-pull", queues=1)
    await _send(cluster, topic, 10)
    received: list[bytes] = []
    async with LitePullConsumer(cluster.nameserver, group="lite-pullers", start="earliest") as consumer:
        (queue,) = await consumer.queues(topic)
        consumer.assign([queue])
        async for message in consumer:
            received.append(message.body)
            if len(received) == 10:
                consumer.seek(queue, 7)
            if len(received) == 13:
                break
    ok = received == [*bodies(10), *bodies(10)[7:]]
    return Result(10, len(received), "async for; after seek(7) the last three again", ok)


async def scheduled_pull(cluster: DemoCluster) -> Result:
    """ScheduledPullConsumer: the group shares the queues; a callback is called for each of them, repeatedly."""
    topic = await cluster.topic("scheduled-pull")
    await _send(cluster, topic, 10)
    collector = MessageCollector()
    queues: set[MessageQueue] = set()
    consumer = ScheduledPullConsumer(cluster.nameserver, group="scheduled-pullers")

    @consumer.register(topic)
    async def pull_queue(queue: MessageQueue, context: PullContext) -> None:
        queues.add(queue)
        result = await consumer.pull(queue, await consumer.fetch_offset(queue) or 0)
        for message in result.messages:
            await collector.collect(message)
        consumer.update_offset(queue, result.next_offset)
        context.next_delay_s = 0.1

    async with consumer:
        await collector.wait_for(10)
    ok = sorted(collector.bodies) == bodies(10) and len(queues) == 4
    return Result(10, collector.count, f"a callback for each of {len(queues)} queues", ok)


async def _send(cluster: DemoCluster, topic: str, count: int) -> None:
    for body in bodies(count):
        await cluster.producer.send(topic, body)
