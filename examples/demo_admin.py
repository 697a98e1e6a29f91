"""Administration: message traces, queries for stored messages, and an offset reset."""

from ariane import Producer
from examples.demo_common import DemoCluster, Result, bodies, consuming


async def trace(cluster: DemoCluster) -> Result:
    """Which groups sent and consumed a message. Apache's tools can read these traces, too."""
    topic = await cluster.topic("trace")
    async with (
        Producer(cluster.nameserver, group="trace-senders", trace=True) as producer,
        consuming(cluster, topic, trace=True) as collector,
    ):
        result = await producer.send(topic, b"traced")
        await collector.wait_for(1)
    trace = await cluster.admin.messages.trace(result.message_id)
    senders = [record.group for record in trace.published if record.success]
    readers = [record.group for record in trace.consumed if record.success]
    text = f"sent by {', '.join(senders)}, consumed by {', '.join(map(str, readers))}"
    return Result(1, collector.count, text, (senders, readers) == (["trace-senders"], ["trace-readers"]))


async def query(cluster: DemoCluster) -> Result:
    """Stored messages can be found by key, by message id, and by the id that contains their offset."""
    topic = await cluster.topic("query")
    for body in bodies(5):
        result = await cluster.producer.send(topic, body, keys=["basket-7", f"item-{body.decode()}"])
    messages = cluster.admin.messages
    by_key = (await messages.by_key(topic, "basket-7")).messages
    by_message_id = (await messages.by_unique_key(topic, result.message_id)).messages
    by_offset_id = await messages.by_id(result.offset_message_id)
    ok = len(by_key) == 5 and [message.body for message in by_message_id] == [by_offset_id.body] == [b"4"]
    text = f"{len(by_key)} by key, {len(by_message_id)} by message id, 1 by offset id"
    return Result(5, len(by_key), text, ok)


async def reset_offset(cluster: DemoCluster) -> Result:
    """Resets a group that is running: its members consume the topic from the beginning again."""
    topic = await cluster.topic("reset")
    async with consuming(cluster, topic) as collector:
        for body in bodies(10):
            await cluster.producer.send(topic, body)
        await collector.wait_for(10)
        await cluster.admin.offsets.reset(f"{topic}-readers", topic, "earliest")
        await collector.wait_for(20)
    ok = sorted(collector.bodies) == sorted(bodies(10) * 2)
    return Result(10, collector.count, "reset to the earliest offset, all messages again", ok)
