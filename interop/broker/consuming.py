"""Checks of consumers: filters, models, members of one group, retries and dead letters."""

import asyncio
from collections.abc import Callable

from interop.broker.client import bodies_of
from interop.broker.stage import QUEUES, Stage, Tap, eventually
from interop.report import CheckFailed, expect

COUNT = 8
ROUND_S = 1.0
REPLY_SECONDS = 5


async def tags(stage: Stage) -> None:
    topic = await stage.topic()
    for tag in ("TagA", "TagB", "TagC", "TagA"):
        await stage.send(topic, f"{tag} {stage.name}", tags=tag)
    await stage.send(topic, "no tag")
    tap = await stage.consume(topic, expression="TagA || TagC")
    await stage.send(topic, "the last", tags="TagC")
    await tap.inbox.wait(lambda seen: len(seen) == 4, "three messages and the last one")
    expect({seen.tags for seen in tap.inbox.seen} == {"TagA", "TagC"}, f"came: {tap.inbox.bodies}")


async def sql(stage: Stage) -> None:
    topic = await stage.topic()
    for price in range(8):
        await stage.send(topic, f"price {price}", p__price=price, p__colour="blue" if price % 2 else "red")
    await stage.send(topic, "no property")
    tap = await stage.consume(topic, sql="price BETWEEN 2 AND 6 AND colour = 'blue' AND size IS NULL")
    await stage.send(topic, "the last", p__price=4, p__colour="blue")
    await tap.inbox.wait_bodies({"price 3", "price 5", "the last"})
    expect(len(tap.inbox.seen) == 3, f"came: {tap.inbox.bodies}")


async def broadcast(stage: Stage) -> None:
    topic = await stage.topic()
    taps = [await stage.consume(topic, client=one, model="BROADCASTING") for one in stage.members]
    bodies = {f"m{number}" for number in range(COUNT)}
    for body in bodies:
        await stage.send(topic, body)
    for tap in taps:
        await tap.inbox.wait_bodies(bodies)


async def share(stage: Stage) -> None:
    """Two members of one group: half of the queues each, no message to both; when one leaves, the other has all."""
    topic = await stage.topic()
    first, second = [await stage.consume(topic, client=one) for one in stage.members]
    everything = set(range(QUEUES))
    half = QUEUES // 2
    await _rounds(stage, topic, [first, second], lambda a, b: len(a) == len(b) == half and a | b == everything)
    await second.stop()
    await _rounds(stage, topic, [first, second], lambda a, b: a == everything)


async def retry(stage: Stage) -> None:
    topic = await stage.topic()
    await stage.send(topic, "again", tags="TagA", keys="k1")
    tap = await stage.consume(topic, fail=2)
    await tap.inbox.wait(lambda seen: len(seen) >= 3, "three deliveries")
    expect(
        [seen.attempt for seen in tap.inbox.seen] == [1, 2, 3], f"attempts {[one.attempt for one in tap.inbox.seen]}"
    )
    expect(len({seen.message_id for seen in tap.inbox.seen}) == 1, "the id changed on the way")
    expect({seen.keys for seen in tap.inbox.seen} == {"k1"}, "the key is lost on the way")


async def dead_letter(stage: Stage) -> None:
    topic = await stage.topic()
    await stage.send(topic, "hopeless")
    tap = await stage.consume(topic, fail=99, max_reconsume=1)
    await tap.inbox.wait(lambda seen: len(seen) >= 2, "two deliveries")

    async def is_dead() -> bool:
        try:
            found = await stage.client.call("pull", topic=f"%DLQ%{stage.group}", group=f"{stage.group}_dead")
        except CheckFailed:  # no such topic yet
            return False
        return bodies_of(found) == ["hopeless"]

    await eventually(is_dead, "the message among the dead letters")
    expect(len(tap.inbox.seen) == 2, f"{len(tap.inbox.seen)} deliveries, not 2")


async def pull(stage: Stage) -> None:
    topic = await stage.topic()
    bodies = [f"m{number}" for number in range(COUNT)]
    for body in bodies:
        await stage.send(topic, body)

    async def has_all() -> bool:
        return sorted(bodies_of(await stage.client.call("pull", topic=topic, group=stage.group))) == bodies

    await eventually(has_all, "all messages in one pull")


async def poll(stage: Stage) -> None:
    """The second consumer of the group goes on where the first has left off; the Go client, now and then, loses its
    last commit of a queue when it closes, so some messages may come twice."""
    topic = await stage.topic()
    await _poll_round(stage, topic, "first")
    repeated = await _poll_round(stage, topic, "second")
    expect(repeated < COUNT, "all messages came twice: no offset was kept")


async def _poll_round(stage: Stage, topic: str, name: str) -> int:
    """Sends messages and polls until all have come; returns how many came that are of another round."""
    wanted = {f"{name} {number}" for number in range(COUNT)}
    for body in wanted:
        await stage.send(topic, body)
    found: list[str] = []

    async def has_all() -> bool:
        found.extend(bodies_of(await stage.client.call("poll", topic=topic, group=stage.group, count=COUNT, seconds=5)))
        return wanted <= set(found)

    await eventually(has_all, f"messages of the {name} round")
    return sum(body not in wanted for body in found)


async def request_reply(stage: Stage) -> None:
    """Asked again when no reply comes: a Go client is known to the broker after its next heartbeat only, and until then
    there is nobody to push a reply to."""
    topic = await stage.topic()
    await stage.consume(topic, reply="re: ")
    replies: list[str] = []

    async def is_answered() -> bool:
        try:
            response = await stage.client.call("request", topic=topic, body="question", seconds=REPLY_SECONDS)
        except CheckFailed:
            return False
        replies.append(response["body"])
        return True

    await eventually(is_answered, "a reply")
    expect(replies == ["re: question"], f"the reply is {replies}")


async def _rounds(stage: Stage, topic: str, taps: list[Tap], holds: Callable[[set[int], set[int]], bool]) -> None:
    """Sends a message to each queue, again and again, until the members get them as they should."""

    async def one_round() -> bool:
        marks = [len(tap.inbox.seen) for tap in taps]
        body = f"round {next(stage.numbers)}"
        for queue in range(QUEUES):
            await stage.send(topic, body, queue=queue)
        await asyncio.sleep(ROUND_S)
        news = [
            [one for one in tap.inbox.seen[mark:] if one.body == body] for tap, mark in zip(taps, marks, strict=True)
        ]
        twice = sum(map(len, news)) > QUEUES
        return not twice and holds(*({one.queue_id for one in new} for new in news))

    await eventually(one_round, "queues shared out")
