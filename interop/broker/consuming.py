"""Checks of consumers: filters, message models, members of one group, retries and dead letters."""

import asyncio
from collections.abc import Callable

from interop.broker.check_context import QUEUES, CheckContext, RunningConsumer, eventually
from interop.broker.client import bodies_of
from interop.report import CheckFailed, expect

COUNT = 8
ROUND_S = 1.0
REPLY_SECONDS = 5


async def tags(context: CheckContext) -> None:
    topic = await context.topic()
    for tag in ("TagA", "TagB", "TagC", "TagA"):
        await context.send(topic, f"{tag} {context.name}", tags=tag)
    await context.send(topic, "no tag")
    consumer = await context.consume(topic, expression="TagA || TagC")
    await context.send(topic, "the last", tags="TagC")
    await consumer.inbox.wait(lambda seen: len(seen) == 4, "three messages and the last one")
    expect({seen.tags for seen in consumer.inbox.seen} == {"TagA", "TagC"}, f"came: {consumer.inbox.bodies}")


async def sql(context: CheckContext) -> None:
    topic = await context.topic()
    for price in range(8):
        await context.send(topic, f"price {price}", p__price=price, p__colour="blue" if price % 2 else "red")
    await context.send(topic, "no property")
    consumer = await context.consume(topic, sql="price BETWEEN 2 AND 6 AND colour = 'blue' AND size IS NULL")
    await context.send(topic, "the last", p__price=4, p__colour="blue")
    await consumer.inbox.wait_bodies({"price 3", "price 5", "the last"})
    expect(len(consumer.inbox.seen) == 3, f"came: {consumer.inbox.bodies}")


async def broadcast(context: CheckContext) -> None:
    topic = await context.topic()
    consumers = [await context.consume(topic, client=member, model="BROADCASTING") for member in context.members]
    bodies = {f"m{number}" for number in range(COUNT)}
    for body in bodies:
        await context.send(topic, body)
    for consumer in consumers:
        await consumer.inbox.wait_bodies(bodies)


async def share(context: CheckContext) -> None:
    """Two members of one group get half of the queues each, no message twice; when one leaves, the other gets all."""
    topic = await context.topic()
    first, second = [await context.consume(topic, client=member) for member in context.members]
    everything = set(range(QUEUES))
    half = QUEUES // 2
    await _rounds(context, topic, [first, second], lambda a, b: len(a) == len(b) == half and a | b == everything)
    await second.stop()
    await _rounds(context, topic, [first, second], lambda a, b: a == everything)


async def retry(context: CheckContext) -> None:
    topic = await context.topic()
    await context.send(topic, "again", tags="TagA", keys="k1")
    consumer = await context.consume(topic, fail=2)
    await consumer.inbox.wait(lambda seen: len(seen) >= 3, "three deliveries")
    expect(
        [seen.attempt for seen in consumer.inbox.seen] == [1, 2, 3],
        f"attempts {[seen.attempt for seen in consumer.inbox.seen]}",
    )
    expect(len({seen.message_id for seen in consumer.inbox.seen}) == 1, "the message id changed between attempts")
    expect({seen.keys for seen in consumer.inbox.seen} == {"k1"}, "the key was lost between attempts")


async def dead_letter(context: CheckContext) -> None:
    topic = await context.topic()
    await context.send(topic, "hopeless")
    consumer = await context.consume(topic, fail=99, max_reconsume=1)
    await consumer.inbox.wait(lambda seen: len(seen) >= 2, "two deliveries")

    async def is_dead() -> bool:
        try:
            found = await context.client.call("pull", topic=f"%DLQ%{context.group}", group=f"{context.group}_dead")
        except CheckFailed:  # no such topic yet
            return False
        return bodies_of(found) == ["hopeless"]

    await eventually(is_dead, "the message among the dead letters")
    expect(len(consumer.inbox.seen) == 2, f"{len(consumer.inbox.seen)} deliveries, not 2")


async def pull(context: CheckContext) -> None:
    topic = await context.topic()
    bodies = [f"m{number}" for number in range(COUNT)]
    for body in bodies:
        await context.send(topic, body)

    async def has_all() -> bool:
        return sorted(bodies_of(await context.client.call("pull", topic=topic, group=context.group))) == bodies

    await eventually(has_all, "all messages in one pull")


async def poll(context: CheckContext) -> None:
    """The second consumer of the group continues where the first stopped. The Go client sometimes loses its last commit
    of a queue when it closes, so some messages may be delivered twice."""
    topic = await context.topic()
    await _poll_round(context, topic, "first")
    repeated = await _poll_round(context, topic, "second")
    expect(repeated < COUNT, "all messages were delivered twice: no offset was committed")


async def _poll_round(context: CheckContext, topic: str, name: str) -> int:
    """Sends messages and polls until all have arrived; returns how many messages of another round arrived."""
    expected = {f"{name} {number}" for number in range(COUNT)}
    for body in expected:
        await context.send(topic, body)
    found: list[str] = []

    async def has_all() -> bool:
        found.extend(
            bodies_of(await context.client.call("poll", topic=topic, group=context.group, count=COUNT, seconds=5))
        )
        return expected <= set(found)

    await eventually(has_all, f"messages of the {name} round")
    return sum(body not in expected for body in found)


async def request_reply(context: CheckContext) -> None:
    """Repeats the request when no reply arrives: the broker knows a Go client only after its next heartbeat, and cannot
    push a reply before that."""
    topic = await context.topic()
    await context.consume(topic, reply="re: ")
    replies: list[str] = []

    async def is_answered() -> bool:
        try:
            response = await context.client.call("request", topic=topic, body="request", seconds=REPLY_SECONDS)
        except CheckFailed:
            return False
        replies.append(response["body"])
        return True

    await eventually(is_answered, "a reply")
    expect(replies == ["re: request"], f"the reply is {replies}")


async def _rounds(
    context: CheckContext, topic: str, consumers: list[RunningConsumer], holds: Callable[[set[int], set[int]], bool]
) -> None:
    """Sends a message to each queue repeatedly, until the members share the queues as expected."""

    async def run_round() -> bool:
        marks = [len(consumer.inbox.seen) for consumer in consumers]
        body = f"round {next(context.numbers)}"
        for queue in range(QUEUES):
            await context.send(topic, body, queue=queue)
        await asyncio.sleep(ROUND_S)
        news = [
            [message for message in consumer.inbox.seen[mark:] if message.body == body]
            for consumer, mark in zip(consumers, marks, strict=True)
        ]
        twice = sum(map(len, news)) > QUEUES
        return not twice and holds(*({message.queue_id for message in new} for new in news))

    await eventually(run_round, "queues shared out")
