"""Crash test: kill -9 of the broker during sends. After a restart, every acknowledged message is there."""

import asyncio
from pathlib import Path

from ariane import Admin, ArianeError, LitePullConsumer, Producer
from examples.demo_common import TIMEOUT_S
from examples.demo_servers import Server, broker

TOPIC = "crash"
KILL_AFTER = 2_000
SENDERS = 16


async def survives_a_kill(root: Path, nameserver: str) -> tuple[bool, str]:
    """Whether no acknowledged message was lost, and a line of text about it."""
    with broker(root, nameserver) as first:
        async with Admin(nameserver) as admin:
            await admin.topics.create(TOPIC, queues=4, wait_s=TIMEOUT_S)
        acknowledged = await _send_until_killed(nameserver, first)
    with broker(root, nameserver) as second:
        stored = await _read_all(nameserver)
    lost = acknowledged - stored
    text = f"kill -9 after {len(acknowledged):,} acknowledged messages, restarted: {len(lost)} lost"
    return not lost and first.exit_status == -9 and second.exit_status == 0, text


async def _send_until_killed(nameserver: str, server: Server) -> set[bytes]:
    acknowledged: set[bytes] = set()

    async def send(producer: Producer, sender: int) -> None:
        for number in range(KILL_AFTER):
            body = b"%d-%d" % (sender, number)
            await producer.send(TOPIC, body)
            acknowledged.add(body)
            if len(acknowledged) == KILL_AFTER:
                server.kill()

    async with Producer(nameserver, group="crash-senders", retries=0, send_timeout_s=2) as producer:
        outcomes = await asyncio.gather(*(send(producer, sender) for sender in range(SENDERS)), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, ArianeError):
            raise outcome  # a bug: a killed broker causes only ArianeError
    return acknowledged


async def _read_all(nameserver: str) -> set[bytes]:
    async with Admin(nameserver) as admin:
        queues = (await admin.topics.stats(TOPIC)).by_queue()
    expected = sum(queue.count for queue in queues.values())
    received: list[bytes] = []
    async with LitePullConsumer(nameserver, group="crash-readers", start="earliest") as consumer:
        consumer.assign(list(queues))
        while len(received) < expected:
            messages = await consumer.poll(TIMEOUT_S)
            if not messages:
                break  # the missing messages count as lost
            received += [message.body for message in messages]
    return set(received)
