"""Consumers that ask for messages themselves."""

from ariane.client.consumer.lite_pull import LitePullConsumer
from ariane.client.consumer.pull import PullConsumer, PullContext, ScheduledPullConsumer
from ariane.model.route import MessageQueue
from examples.demo_stage import Inbox, Row, Stage, bodies


async def pull(stage: Stage) -> Row:
    """Queue, offset and number are the application's own."""
    topic = await stage.topic("pull", queues=2)
    await _send(stage, topic, 10)
    received = 0
    async with PullConsumer(stage.nameserver, group="pullers") as consumer:
        queues = await consumer.queues(topic)
        for queue in queues:
            result = await consumer.pull(queue, 0)
            received += len(result.messages)
            consumer.update_offset(queue, result.next_offset)
        await consumer.commit()
        stored = [await consumer.fetch_offset(queue, from_broker=True) for queue in queues]
    return Row(10, received, f"offsets {stored} committed by hand", received == 10 == sum(filter(None, stored)))


async def lite_pull(stage: Stage) -> Row:
    topic = await stage.topic("lite-pull", queues=1)
    await _send(stage, topic, 10)
    seen: list[bytes] = []
    async with LitePullConsumer(stage.nameserver, group="lite-pullers", start="earliest") as consumer:
        (queue,) = await consumer.queues(topic)
        consumer.assign([queue])
        async for message in consumer:
            seen.append(message.body)
            if len(seen) == 10:
                consumer.seek(queue, 7)
            if len(seen) == 13:
                break
    ok = seen == [*bodies(10), *bodies(10)[7:]]
    return Row(10, len(seen), "async for; then seek(7) gave the last three again", ok)


async def scheduled_pull(stage: Stage) -> Row:
    """The queues are shared out among the group; each is pulled by a callback, again and again."""
    topic = await stage.topic("scheduled-pull")
    await _send(stage, topic, 10)
    inbox = Inbox()
    queues: set[MessageQueue] = set()
    consumer = ScheduledPullConsumer(stage.nameserver, group="scheduled-pullers")

    @consumer.register(topic)
    async def pull_one(queue: MessageQueue, context: PullContext) -> None:
        queues.add(queue)
        result = await consumer.pull(queue, await consumer.fetch_offset(queue) or 0)
        for message in result.messages:
            await inbox.take(message)
        consumer.update_offset(queue, result.next_offset)
        context.next_delay_s = 0.1

    async with consumer:
        await inbox.wait_for(10)
    ok = sorted(inbox.bodies) == bodies(10) and len(queues) == 4
    return Row(10, inbox.count, f"a callback for each of {len(queues)} queues", ok)


async def _send(stage: Stage, topic: str, count: int) -> None:
    for body in bodies(count):
        await stage.producer.send(topic, body)
