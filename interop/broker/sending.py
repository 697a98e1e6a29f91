"""Checks of plain messages: sent in each way, and consumed with everything they were sent with."""

import time

from interop.broker.client import NotOffered
from interop.broker.servers import DELAY_LEVEL, DELAY_S
from interop.broker.stage import QUEUES, Stage, Tap
from interop.report import expect

COUNT = 8
DELIVER_IN_S = 3.0
# The clocks of two processes are read a moment apart.
CLOCK_SLACK_S = 0.02
LARGE = "compress me, for I am long; " * 400


async def waits(stage: Stage) -> None:
    """Ids, queue and offset that the sender is told are those that the consumer sees."""
    topic = await stage.topic()
    tap = await stage.consume(topic)
    sent = {
        f"m{number}": await stage.send(topic, f"m{number}", tags="TagA", keys="k1 k2", p__colour="blue")
        for number in range(COUNT)
    }
    await tap.inbox.wait_bodies(set(sent))
    for seen in tap.inbox.seen:
        expect((seen.tags, seen.keys) == ("TagA", "k1 k2"), f"tags and keys are {seen.tags!r}, {seen.keys!r}")
        for name in ("message_id", "queue_id", "queue_offset"):
            found, told = str(getattr(seen, name)), sent[seen.body].get(name)
            expect(told in {None, found}, f"{name} of {seen.body} was told as {told} and is {found}")
    expect(len(tap.inbox.seen) == COUNT, f"{len(tap.inbox.seen)} messages, not {COUNT}")


async def calls_back(stage: Stage) -> None:
    topic = await stage.topic()
    bodies = {f"m{number}" for number in range(COUNT)}
    for body in bodies:
        await stage.send(topic, body, mode="async")
    await (await stage.consume(topic)).inbox.wait_bodies(bodies)


async def one_way(stage: Stage) -> None:
    topic = await stage.topic()
    bodies = {f"m{number}" for number in range(COUNT)}
    for body in bodies:
        await stage.client.call("send", topic=topic, body=body, mode="oneway")
    await (await stage.consume(topic)).inbox.wait_bodies(bodies)


async def compressed(stage: Stage) -> None:
    topic = await stage.topic()
    await stage.send(topic, LARGE)
    await (await stage.consume(topic)).inbox.wait_bodies({LARGE})


async def batch(stage: Stage) -> None:
    topic = await stage.topic()
    bodies = [f"item {number}" for number in range(COUNT)]
    named = {f"body{number}": body for number, body in enumerate(bodies)}
    response = await stage.client.call("batch", topic=topic, **named)
    expect(response["status"] == "SEND_OK", f"send status {response['status']}")
    tap = await stage.consume(topic)
    await tap.inbox.wait_bodies(set(bodies))
    expect(len({seen.queue_id for seen in tap.inbox.seen}) == 1, "a batch is spread over queues")
    by_offset = [seen.body for seen in sorted(tap.inbox.seen, key=lambda seen: seen.queue_offset)]
    expect(by_offset == bodies, f"stored as {by_offset}")


async def ordered(stage: Stage) -> None:
    """Each message fails once; the queue waits for it, and nothing overtakes."""
    topic = await stage.topic()
    wanted = {queue: [f"{queue}:{step}" for step in range(4)] for queue in range(QUEUES)}
    for step in range(4):
        for queue in range(QUEUES):
            await stage.send(topic, wanted[queue][step], queue=queue)
    tap = await stage.consume(topic, ordered="true", fail=1)
    total = 2 * 4 * QUEUES
    await tap.inbox.wait(lambda seen: len(seen) >= total, f"{total} deliveries in order")
    for queue, bodies in wanted.items():
        got = [seen.body for seen in tap.inbox.seen if seen.body in bodies]
        expect(got == [body for body in bodies for _ in range(2)], f"queue {queue} came as {got}")


async def delayed(stage: Stage) -> None:
    topic = await stage.topic()
    tap = await stage.consume(topic)
    await stage.send(topic, "now")
    sent_s = time.time()
    await stage.send(topic, "later", delay_level=DELAY_LEVEL)
    await tap.inbox.wait_bodies({"now", "later"})
    _expect_not_before(sent_s + DELAY_S, tap)


async def deliver_at(stage: Stage) -> None:
    if not stage.servers.delivers_at_a_time:
        raise NotOffered("4.x brokers know delay levels only")
    topic = await stage.topic()
    tap = await stage.consume(topic)
    due_s = round(time.time() + DELIVER_IN_S, 3)
    await stage.send(topic, "later", deliver_at=round(due_s * 1000))
    await stage.send(topic, "now")
    await tap.inbox.wait_bodies({"now", "later"})
    _expect_not_before(due_s, tap)


def _expect_not_before(due_s: float, tap: Tap) -> None:
    early_s = due_s - min(seen.at_s for seen in tap.inbox.seen if seen.body == "later")
    expect(early_s < CLOCK_SLACK_S, f"{early_s:.3f} s early")
