"""Checks of sending: each send mode, and that consumers receive the message with all its fields."""

import time

from interop.broker.check_context import QUEUES, CheckContext, RunningConsumer
from interop.broker.client import NotOffered
from interop.broker.servers import DELAY_LEVEL, DELAY_S
from interop.report import expect

COUNT = 8
DELIVER_IN_S = 3.0
# The clocks of two processes are read a moment apart.
CLOCK_SLACK_S = 0.02
LARGE = "compress me, for I am long; " * 400


async def waits(context: CheckContext) -> None:
    """Message id, queue and offset in the send response equal those of the consumed message."""
    topic = await context.topic()
    consumer = await context.consume(topic)
    sent = {
        f"m{number}": await context.send(topic, f"m{number}", tags="TagA", keys="k1 k2", p__colour="blue")
        for number in range(COUNT)
    }
    await consumer.inbox.wait_bodies(set(sent))
    for seen in consumer.inbox.seen:
        expect((seen.tags, seen.keys) == ("TagA", "k1 k2"), f"tags and keys are {seen.tags!r}, {seen.keys!r}")
        for name in ("message_id", "queue_id", "queue_offset"):
            consumed, reported = str(getattr(seen, name)), sent[seen.body].get(name)
            expect(reported in {None, consumed}, f"{name} of {seen.body}: sent as {reported}, consumed as {consumed}")
    expect(len(consumer.inbox.seen) == COUNT, f"{len(consumer.inbox.seen)} messages, not {COUNT}")


async def calls_back(context: CheckContext) -> None:
    topic = await context.topic()
    bodies = {f"m{number}" for number in range(COUNT)}
    for body in bodies:
        await context.send(topic, body, mode="async")
    await (await context.consume(topic)).inbox.wait_bodies(bodies)


async def one_way(context: CheckContext) -> None:
    topic = await context.topic()
    bodies = {f"m{number}" for number in range(COUNT)}
    for body in bodies:
        await context.client.call("send", topic=topic, body=body, mode="oneway")
    await (await context.consume(topic)).inbox.wait_bodies(bodies)


async def compressed(context: CheckContext) -> None:
    topic = await context.topic()
    await context.send(topic, LARGE)
    await (await context.consume(topic)).inbox.wait_bodies({LARGE})


async def batch(context: CheckContext) -> None:
    topic = await context.topic()
    bodies = [f"item {number}" for number in range(COUNT)]
    named = {f"body{number}": body for number, body in enumerate(bodies)}
    response = await context.client.call("batch", topic=topic, **named)
    expect(response["status"] == "SEND_OK", f"send status {response['status']}")
    consumer = await context.consume(topic)
    await consumer.inbox.wait_bodies(set(bodies))
    expect(len({seen.queue_id for seen in consumer.inbox.seen}) == 1, "a batch is spread over queues")
    by_offset = [seen.body for seen in sorted(consumer.inbox.seen, key=lambda seen: seen.queue_offset)]
    expect(by_offset == bodies, f"stored as {by_offset}")


async def ordered(context: CheckContext) -> None:
    """Each message fails once; the queue waits for its retry, and the order is preserved."""
    topic = await context.topic()
    expected = {queue: [f"{queue}:{step}" for step in range(4)] for queue in range(QUEUES)}
    for step in range(4):
        for queue in range(QUEUES):
            await context.send(topic, expected[queue][step], queue=queue)
    consumer = await context.consume(topic, ordered="true", fail=1)
    total = 2 * 4 * QUEUES
    await consumer.inbox.wait(lambda seen: len(seen) >= total, f"{total} deliveries in order")
    for queue, bodies in expected.items():
        got = [seen.body for seen in consumer.inbox.seen if seen.body in bodies]
        expect(got == [body for body in bodies for _ in range(2)], f"queue {queue} came as {got}")


async def delayed(context: CheckContext) -> None:
    topic = await context.topic()
    consumer = await context.consume(topic)
    await context.send(topic, "now")
    sent_s = time.time()
    await context.send(topic, "later", delay_level=DELAY_LEVEL)
    await consumer.inbox.wait_bodies({"now", "later"})
    _expect_not_before(sent_s + DELAY_S, consumer)


async def deliver_at(context: CheckContext) -> None:
    if not context.servers.delivers_at_a_time:
        raise NotOffered("4.x brokers know delay levels only")
    topic = await context.topic()
    consumer = await context.consume(topic)
    due_s = round(time.time() + DELIVER_IN_S, 3)
    await context.send(topic, "later", deliver_at=round(due_s * 1000))
    await context.send(topic, "now")
    await consumer.inbox.wait_bodies({"now", "later"})
    _expect_not_before(due_s, consumer)


def _expect_not_before(due_s: float, consumer: RunningConsumer) -> None:
    early_s = due_s - min(seen.at_s for seen in consumer.inbox.seen if seen.body == "later")
    expect(early_s < CLOCK_SLACK_S, f"{early_s:.3f} s early")
