"""Checks of operator tasks: reset offsets with mqadmin, query messages, read message traces."""

import time

from interop.apache import OLD_CLIENT_VERSION
from interop.broker.check_context import CheckContext, eventually, until_printed
from interop.broker.client import Delivery, NotOffered, bodies_of
from interop.report import CheckFailed, expect_in

COUNT = 8


async def reset_live(context: CheckContext) -> None:
    """A group with a running consumer: the broker notifies it, and it consumes the messages a second time."""
    topic, bodies, began_ms = await _sent(context)
    consumer = await context.consume(topic)
    await consumer.inbox.wait_bodies(bodies)
    await _until_consumed(context)
    await _reset(context, topic, began_ms)
    await consumer.inbox.wait(
        lambda seen: all(_count(seen, body) >= 2 for body in bodies), "each message a second time"
    )


async def reset_offline(context: CheckContext) -> None:
    """A group without members: its next consumer starts at the new offset."""
    topic, bodies, began_ms = await _sent(context)
    consumer = await context.consume(topic)
    await consumer.inbox.wait_bodies(bodies)
    # Before the stop: Apache's client does not wait for running handlers then, so its last commit may miss a message.
    await _until_consumed(context)
    await consumer.stop()
    await until_printed(context.mqadmin, ["CODE: 206"], "consumerConnection", "-g", context.group)
    await _reset(context, topic, began_ms)
    again = await context.consume(topic)
    await again.inbox.wait_bodies(bodies)


async def query_by_key(context: CheckContext) -> None:
    _require_queries(context)
    topic = await context.topic()
    await context.send(topic, "first", keys=f"{context.name} other")
    await context.send(topic, "second", keys=context.name)
    await context.send(topic, "third", keys="other")

    async def found() -> bool:
        return sorted(bodies_of(await _query_result(context, "query", topic=topic, key=context.name))) == [
            "first",
            "second",
        ]

    await eventually(found, "both messages with the key", 20.0)


async def query_by_offset_id(context: CheckContext) -> None:
    await _view(context, "offset_message_id")


async def query_by_unique_key(context: CheckContext) -> None:
    _require_queries(context)
    await _view(context, "message_id")


async def trace(context: CheckContext) -> None:
    _require_queries(context)
    topic = await context.topic()
    consumer = await context.consume(topic, trace="true")
    response = await context.send(topic, "traced", trace="true", keys="k1")
    await consumer.inbox.wait_bodies({"traced"})

    # Clients before 4.8 do not write the group into the consumption trace.
    group = "" if OLD_CLIENT_VERSION in context.client.name else context.group
    expected = ["Pub", "Sub", group]
    await until_printed(context.mqadmin, expected, "queryMsgTraceById", "-i", response["message_id"])


def _require_queries(context: CheckContext) -> None:
    if not context.servers.answers_queries:
        raise NotOffered(
            "over TLS, Apache's 4.9 broker does not answer queries by key, not even those of its own client"
        )


async def _sent(context: CheckContext) -> tuple[str, set[str], int]:
    topic = await context.topic()
    began_ms = round(time.time() * 1000) - 1000
    bodies = {f"m{number}" for number in range(COUNT)}
    for body in bodies:
        await context.send(topic, body)
    return topic, bodies, began_ms


async def _reset(context: CheckContext, topic: str, moment_ms: int) -> None:
    printed = await context.mqadmin("resetOffsetByTime", "-g", context.group, "-t", topic, "-s", str(moment_ms))
    expect_in("rollback consumer offset", printed)


async def _until_consumed(context: CheckContext) -> None:
    await until_printed(context.mqadmin, ["Diff Total: 0"], "consumerProgress", "-g", context.group)


async def _view(context: CheckContext, kind: str) -> None:
    topic = await context.topic()
    response = await context.send(topic, "expected")
    await context.send(topic, "other")

    async def found() -> bool:
        return bodies_of(await _query_result(context, "view", topic=topic, id_to_view=response[kind])) == ["expected"]

    await eventually(found, f"the message {response[kind]}", 20.0)


async def _query_result(context: CheckContext, verb: str, **fields: object) -> dict[str, str]:
    """The result of a query, empty on error: clients raise when nothing matches, and the index lags behind the log."""
    try:
        return dict(await context.client.call(verb, **fields))
    except CheckFailed:
        return {}


def _count(seen: list[Delivery], body: str) -> int:
    return sum(message.body == body for message in seen)
