"""Checks with an operator in them: offsets reset by mqadmin, messages looked up, traces read."""

import time
from collections.abc import Sequence

from interop.apache import OLD_CLIENT_VERSION
from interop.broker.client import NotOffered, Seen, bodies_of
from interop.broker.stage import Stage, eventually
from interop.report import CheckFailed, expect_in

COUNT = 8
SAID_S = 30.0


async def reset_live(stage: Stage) -> None:
    """A group whose consumer runs: the broker tells it, and it consumes the messages a second time."""
    topic, bodies, began_ms = await _sent(stage)
    tap = await stage.consume(topic)
    await tap.inbox.wait_bodies(bodies)
    await _until_read(stage)
    await _reset(stage, topic, began_ms)
    await tap.inbox.wait(lambda seen: all(_count(seen, body) >= 2 for body in bodies), "each message a second time")


async def reset_offline(stage: Stage) -> None:
    """A group nobody is in: its next consumer begins where it was reset to."""
    topic, bodies, began_ms = await _sent(stage)
    tap = await stage.consume(topic)
    await tap.inbox.wait_bodies(bodies)
    # Before the stop: Apache's client then waits for no handler, so its last commit may miss a message.
    await _until_read(stage)
    await tap.stop()
    await _until_said(stage, ["CODE: 206"], "consumerConnection", "-g", stage.group)
    await _reset(stage, topic, began_ms)
    again = await stage.consume(topic)
    await again.inbox.wait_bodies(bodies)


async def query_by_key(stage: Stage) -> None:
    _needs_queries(stage)
    topic = await stage.topic()
    await stage.send(topic, "first", keys=f"{stage.name} other")
    await stage.send(topic, "second", keys=stage.name)
    await stage.send(topic, "third", keys="other")

    async def found() -> bool:
        return sorted(bodies_of(await _or_none(stage, "query", topic=topic, key=stage.name))) == ["first", "second"]

    await eventually(found, "both messages with the key", 20.0)


async def query_by_offset_id(stage: Stage) -> None:
    await _view(stage, "offset_message_id")


async def query_by_unique_key(stage: Stage) -> None:
    _needs_queries(stage)
    await _view(stage, "message_id")


async def trace(stage: Stage) -> None:
    _needs_queries(stage)
    topic = await stage.topic()
    tap = await stage.consume(topic, trace="true")
    response = await stage.send(topic, "traced", trace="true", keys="k1")
    await tap.inbox.wait_bodies({"traced"})

    # Clients before 4.8 do not write into the trace of a consumption which group it was.
    group = "" if OLD_CLIENT_VERSION in stage.client.name else stage.group
    wanted = ["Pub", "Sub", group]
    await _until_said(stage, wanted, "queryMsgTraceById", "-i", response["message_id"])


def _needs_queries(stage: Stage) -> None:
    if not stage.servers.answers_queries:
        raise NotOffered("over TLS, Apache's 4.9 broker answers no query by key: its own client gets none either")


async def _sent(stage: Stage) -> tuple[str, set[str], int]:
    topic = await stage.topic()
    began_ms = round(time.time() * 1000) - 1000
    bodies = {f"m{number}" for number in range(COUNT)}
    for body in bodies:
        await stage.send(topic, body)
    return topic, bodies, began_ms


async def _reset(stage: Stage, topic: str, moment_ms: int) -> None:
    printed = await stage.mqadmin("resetOffsetByTime", "-g", stage.group, "-t", topic, "-s", str(moment_ms))
    expect_in("rollback consumer offset", printed)


async def _until_read(stage: Stage) -> None:
    await _until_said(stage, ["Diff Total: 0"], "consumerProgress", "-g", stage.group)


async def _until_said(stage: Stage, wanted: Sequence[str], *words: str) -> None:
    """Asks mqadmin again until it says all of that; the failure tells what it said last."""
    printed = ""

    async def is_said() -> bool:
        nonlocal printed
        printed = await stage.mqadmin(*words)
        return all(one in printed for one in wanted)

    try:
        await eventually(is_said, f"{wanted} from mqadmin {' '.join(words)}", SAID_S)
    except CheckFailed as problem:
        raise CheckFailed(f"{problem}, but:\n{printed}") from None


async def _view(stage: Stage, kind: str) -> None:
    topic = await stage.topic()
    response = await stage.send(topic, "wanted")
    await stage.send(topic, "other")

    async def found() -> bool:
        return bodies_of(await _or_none(stage, "view", topic=topic, id_to_view=response[kind])) == ["wanted"]

    await eventually(found, f"the message {response[kind]}", 20.0)


async def _or_none(stage: Stage, verb: str, **fields: object) -> dict[str, str]:
    """What a look-up found; clients raise when there is nothing, and the index follows the log a moment later."""
    try:
        return dict(await stage.client.call(verb, **fields))
    except CheckFailed:
        return {}


def _count(seen: list[Seen], body: str) -> int:
    return sum(one.body == body for one in seen)
