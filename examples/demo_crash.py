"""kill -9 in the middle of sends: what was acknowledged before is there after."""

import asyncio
from pathlib import Path

from ariane.client.admin import Admin
from ariane.client.consumer.lite_pull import LitePullConsumer
from ariane.client.producer.producer import Producer
from ariane.errors import ArianeError
from examples.demo_servers import Server, broker
from examples.demo_stage import PATIENCE_S

TOPIC = "crash"
BEFORE_THE_KILL = 2_000
SENDERS = 16


async def survives_a_kill(root: Path, nameserver: str) -> tuple[bool, str]:
    """Whether all is well, and what was seen."""
    with broker(root, nameserver) as first:
        async with Admin(nameserver) as admin:
            await admin.topics.create(TOPIC, queues=4, wait_s=PATIENCE_S)
        acknowledged = await _send_until_killed(nameserver, first)
    with broker(root, nameserver) as second:
        found = await _read_all(nameserver)
    lost = acknowledged - found
    words = f"killed -9 after {len(acknowledged):,} acknowledged messages, restarted: {len(lost)} lost"
    return not lost and first.exit_status == -9 and second.exit_status == 0, words


async def _send_until_killed(nameserver: str, server: Server) -> set[bytes]:
    acknowledged: set[bytes] = set()

    async def send(producer: Producer, sender: int) -> None:
        for number in range(BEFORE_THE_KILL):
            body = b"%d-%d" % (sender, number)
            await producer.send(TOPIC, body)
            acknowledged.add(body)
            if len(acknowledged) == BEFORE_THE_KILL:
                server.kill()

    async with Producer(nameserver, group="crash-senders", retries=0, send_timeout_s=2) as producer:
        outcomes = await asyncio.gather(*(send(producer, one) for one in range(SENDERS)), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, ArianeError):
            raise outcome  # not what a kill does
    return acknowledged


async def _read_all(nameserver: str) -> set[bytes]:
    async with Admin(nameserver) as admin:
        stored = (await admin.topics.stats(TOPIC)).by_queue()
    expected = sum(one.count for one in stored.values())
    found: list[bytes] = []
    async with LitePullConsumer(nameserver, group="crash-readers", start="earliest") as consumer:
        consumer.assign(list(stored))
        while len(found) < expected:
            messages = await consumer.poll(PATIENCE_S)
            if not messages:
                break  # those that are missing are told as lost
            found += [message.body for message in messages]
    return set(found)
