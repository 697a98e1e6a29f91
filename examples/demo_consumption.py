"""Consumption: in order, filtered by tag or SQL, broadcast, retries and dead letters."""

from ariane import LitePullConsumer, Received
from examples.demo_common import DemoCluster, MessageCollector, Result, bodies, consuming


async def ordered(cluster: DemoCluster) -> Result:
    """Messages with the same sharding key go to one queue and are consumed in order."""
    topic = await cluster.topic("ordered")
    async with consuming(cluster, topic, ordered=True) as collector:
        for step in range(10):
            for order in ("o1", "o2", "o3", "o4"):
                await cluster.producer.send(topic, b"%d" % step, sharding_key=order, properties={"order": order})
        await collector.wait_for(40)
    steps: dict[str, list[int]] = {}
    for message in collector.messages:
        steps.setdefault(message.properties["order"], []).append(int(message.body))
    ok = len(steps) == 4 and all(numbers == list(range(10)) for numbers in steps.values())
    queues = len({message.queue for message in collector.messages})
    return Result(40, collector.count, f"4 orders in {queues} queues, the 10 steps of each in order", ok)


async def tag_filter(cluster: DemoCluster) -> Result:
    """The consumer subscribes to two of three tags."""
    topic = await cluster.topic("tags")
    async with consuming(cluster, topic, "paid || refunded") as collector:
        for body in bodies(4):
            for tag in ("paid", "refunded", "cancelled"):
                await cluster.producer.send(topic, body, tags=tag)
        await collector.wait_for(8)
    tags = {message.tags for message in collector.messages}
    return Result(12, collector.count, "only: paid || refunded", collector.count == 8 and tags == {"paid", "refunded"})


async def sql_filter(cluster: DemoCluster) -> Result:
    """The consumer subscribes with an SQL condition over message properties."""
    topic = await cluster.topic("sql")
    sql = "price > 10 AND region IN ('eu', 'us')"
    async with consuming(cluster, topic, sql=sql) as collector:
        for price in (5, 15, 25):
            for region in ("eu", "us", "cn"):
                properties = {"price": str(price), "region": region}
                await cluster.producer.send(topic, b"%d" % price, properties=properties)
        await collector.wait_for(4)
    ok = sorted(collector.bodies) == [b"15", b"15", b"25", b"25"]
    return Result(9, collector.count, f"only: {sql}", ok)


async def broadcast(cluster: DemoCluster) -> Result:
    """In the broadcasting model each member of the group gets every message."""
    topic = await cluster.topic("broadcast")
    offsets = cluster.root / "offsets"
    async with (
        consuming(cluster, topic, model="broadcasting", offsets_root=offsets / "a") as first,
        consuming(cluster, topic, model="broadcasting", offsets_root=offsets / "b") as second,
    ):
        for body in bodies(8):
            await cluster.producer.send(topic, body)
        await first.wait_for(8)
        await second.wait_for(8)
    ok = sorted(first.bodies) == sorted(second.bodies) == bodies(8)
    return Result(8, first.count + second.count, "both members got every message", ok)


async def retry(cluster: DemoCluster) -> Result:
    """The third attempt succeeds. This broker waits one second between attempts; Apache's default starts with ten."""
    topic = await cluster.topic("retry")
    collector = MessageCollector()

    async def fail_twice(message: Received) -> bool:
        await collector.collect(message)
        return message.attempt == 3  # False: deliver it again

    async with consuming(cluster, topic, handler=fail_twice):
        await cluster.producer.send(topic, b"fails twice")
        await collector.wait_for(3)
    attempts = [message.attempt for message in collector.messages]
    return Result(
        1, collector.count, f"attempts {', '.join(map(str, attempts))}; the last one succeeded", attempts == [1, 2, 3]
    )


async def dead_letter(cluster: DemoCluster) -> Result:
    """A message that still fails after its last attempt becomes a dead letter."""
    topic = await cluster.topic("dead-letter")
    collector = MessageCollector()

    async def always_fail(message: Received) -> bool:
        await collector.collect(message)
        return False

    async with consuming(cluster, topic, handler=always_fail, max_reconsume=1):
        await cluster.producer.send(topic, b"fails always")
        await collector.wait_for(2)
        dead = await _first_message(cluster, f"%DLQ%{topic}-readers")
    ok = collector.count == 2 and dead is not None and dead.body == b"fails always"
    return Result(1, collector.count, f"{collector.count} attempts, then in %DLQ%{topic}-readers", ok)


async def _first_message(cluster: DemoCluster, topic: str) -> Received | None:
    async with LitePullConsumer(cluster.nameserver, group="dlq-inspectors", start="earliest") as consumer:
        consumer.subscribe(topic)
        messages = await consumer.poll(timeout_s=10)
    return messages[0] if messages else None
