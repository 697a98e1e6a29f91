"""Who gets which message: in order, by tag, by a condition, everybody, again, or nobody any more."""

from ariane.client.consumer.lite_pull import LitePullConsumer
from ariane.client.consumer.message import Received
from examples.demo_stage import Inbox, Row, Stage, bodies, consuming


async def ordered(stage: Stage) -> Row:
    topic = await stage.topic("ordered")
    async with consuming(stage, topic, ordered=True) as inbox:
        for step in range(10):
            for order in ("o1", "o2", "o3", "o4"):
                await stage.producer.send(topic, b"%d" % step, sharding_key=order, properties={"order": order})
        await inbox.wait_for(40)
    steps: dict[str, list[int]] = {}
    for message in inbox.messages:
        steps.setdefault(message.properties["order"], []).append(int(message.body))
    ok = len(steps) == 4 and all(seen == list(range(10)) for seen in steps.values())
    queues = len({message.queue for message in inbox.messages})
    return Row(40, inbox.count, f"4 orders in {queues} queues, the 10 steps of each in order", ok)


async def tag_filter(stage: Stage) -> Row:
    topic = await stage.topic("tags")
    async with consuming(stage, topic, "paid || refunded") as inbox:
        for body in bodies(4):
            for tag in ("paid", "refunded", "cancelled"):
                await stage.producer.send(topic, body, tags=tag)
        await inbox.wait_for(8)
    tags = {message.tags for message in inbox.messages}
    return Row(12, inbox.count, "only: paid || refunded", inbox.count == 8 and tags == {"paid", "refunded"})


async def sql_filter(stage: Stage) -> Row:
    topic = await stage.topic("sql")
    sql = "price > 10 AND region IN ('eu', 'us')"
    async with consuming(stage, topic, sql=sql) as inbox:
        for price in (5, 15, 25):
            for region in ("eu", "us", "cn"):
                properties = {"price": str(price), "region": region}
                await stage.producer.send(topic, b"%d" % price, properties=properties)
        await inbox.wait_for(4)
    ok = sorted(inbox.bodies) == [b"15", b"15", b"25", b"25"]
    return Row(9, inbox.count, f"only: {sql}", ok)


async def broadcast(stage: Stage) -> Row:
    topic = await stage.topic("broadcast")
    offsets = stage.root / "offsets"
    async with (
        consuming(stage, topic, model="broadcasting", offsets_root=offsets / "a") as first,
        consuming(stage, topic, model="broadcasting", offsets_root=offsets / "b") as second,
    ):
        for body in bodies(8):
            await stage.producer.send(topic, body)
        await first.wait_for(8)
        await second.wait_for(8)
    ok = sorted(first.bodies) == sorted(second.bodies) == bodies(8)
    return Row(8, first.count + second.count, "both members got every message", ok)


async def retry(stage: Stage) -> Row:
    """The third attempt succeeds. A second between attempts, with this broker's levels; Apache begins with ten."""
    topic = await stage.topic("retry")
    inbox = Inbox()

    async def fail_twice(message: Received) -> bool:
        await inbox.take(message)
        return message.attempt == 3

    async with consuming(stage, topic, handler=fail_twice):
        await stage.producer.send(topic, b"hard to please")
        await inbox.wait_for(3)
    attempts = [message.attempt for message in inbox.messages]
    return Row(
        1, inbox.count, f"attempts {', '.join(map(str, attempts))}; the last one succeeded", attempts == [1, 2, 3]
    )


async def dead_letter(stage: Stage) -> Row:
    topic = await stage.topic("dead-letter")
    inbox = Inbox()

    async def refuse(message: Received) -> bool:
        await inbox.take(message)
        return False

    async with consuming(stage, topic, handler=refuse, max_reconsume=1):
        await stage.producer.send(topic, b"hopeless")
        await inbox.wait_for(2)
        dead = await _first_of(stage, f"%DLQ%{topic}-readers")
    ok = inbox.count == 2 and dead is not None and dead.body == b"hopeless"
    return Row(1, inbox.count, f"{inbox.count} attempts, then in %DLQ%{topic}-readers", ok)


async def _first_of(stage: Stage, topic: str) -> Received | None:
    async with LitePullConsumer(stage.nameserver, group="undertakers", start="earliest") as consumer:
        consumer.subscribe(topic)
        messages = await consumer.poll(timeout_s=10)
    return messages[0] if messages else None
