"""Answers, traces, and looking at what was stored."""

from ariane.client.consumer.message import Received
from ariane.client.producer.producer import Producer
from examples.demo_stage import Row, Stage, bodies, consuming


async def request_reply(stage: Stage) -> Row:
    topic = await stage.topic("request-reply")

    async def response(message: Received) -> None:
        await stage.producer.reply(message, b"42, " + message.body)

    async with consuming(stage, topic, handler=response):
        reply = await stage.producer.request(topic, b"the answer?", timeout_s=10)
    return Row(1, 1, f"reply: {reply.body.decode()!r}", reply.body == b"42, the answer?")


async def trace(stage: Stage) -> Row:
    """Who sent and who consumed a message; told in the form that Apache's tools read, too."""
    topic = await stage.topic("trace")
    async with (
        Producer(stage.nameserver, group="trace-senders", trace=True) as producer,
        consuming(stage, topic, trace=True) as inbox,
    ):
        result = await producer.send(topic, b"traced")
        await inbox.wait_for(1)
    told = await stage.admin.messages.trace(result.message_id)
    senders = [one.group for one in told.published if one.success]
    readers = [one.group for one in told.consumed if one.success]
    shown = f"sent by {', '.join(senders)}, consumed by {', '.join(map(str, readers))}"
    return Row(1, inbox.count, shown, (senders, readers) == (["trace-senders"], ["trace-readers"]))


async def query(stage: Stage) -> Row:
    topic = await stage.topic("query")
    for body in bodies(5):
        result = await stage.producer.send(topic, body, keys=["basket-7", f"item-{body.decode()}"])
    messages = stage.admin.messages
    by_key = (await messages.by_key(topic, "basket-7")).messages
    by_message_id = (await messages.by_unique_key(topic, result.message_id)).messages
    by_place = await messages.by_id(result.offset_message_id)
    ok = len(by_key) == 5 and [one.body for one in by_message_id] == [by_place.body] == [b"4"]
    shown = f"{len(by_key)} by key, {len(by_message_id)} by message id, 1 by its place in the log"
    return Row(5, len(by_key), shown, ok)


async def reset_offset(stage: Stage) -> Row:
    """While the group runs: its members are told to go back."""
    topic = await stage.topic("reset")
    async with consuming(stage, topic) as inbox:
        for body in bodies(10):
            await stage.producer.send(topic, body)
        await inbox.wait_for(10)
        await stage.admin.offsets.reset(f"{topic}-readers", topic, "earliest")
        await inbox.wait_for(20)
    ok = sorted(inbox.bodies) == sorted(bodies(10) * 2)
    return Row(10, inbox.count, "sent back to the beginning, got everything again", ok)
