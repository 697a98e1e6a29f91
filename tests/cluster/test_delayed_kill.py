"""A broker is killed again and again while delayed messages come due: a kill repeats what was in flight, no more.

`ARIANE_DELAYED_KILLS` says how often.
"""

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

from ariane.broker.schedule.delay_levels import BATCH
from ariane.client.admin import Admin
from ariane.client.consumer.pull import PullConsumer
from ariane.client.producer.producer import Producer
from ariane.clock import Clock
from tests.cluster.processes import ServerProcess, properties, server

KILLS = int(os.environ.get("ARIANE_DELAYED_KILLS", "4"))
MESSAGES = 100
TOPIC = "later"
UP_S = 0.5


async def delivered(nameserver: str) -> Counter[bytes]:
    """How often each message is in the topic."""
    counts: Counter[bytes] = Counter()
    async with PullConsumer(nameserver, group="reader") as consumer:
        for queue in await consumer.queues(TOPIC):
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset)
                counts.update(message.body for message in result.messages)
                offset = result.next_offset
    return counts


async def kill_repeatedly(broker: ServerProcess) -> None:
    for _ in range(KILLS):
        await broker.kill()
        await broker.start()
        await asyncio.sleep(UP_S)


async def send_delayed(nameserver: str, how: str) -> None:
    """Due in two seconds, those with a time within one second."""
    due_ms = Clock().now_ms() + 2_000
    async with Producer(nameserver, group="producers") as producer:
        for number in range(MESSAGES):
            body = b"%d" % number
            if how == "level":
                await producer.send(TOPIC, body, delay_level=1)
            else:
                await producer.send(TOPIC, body, deliver_at=due_ms + number * 10)


@pytest.mark.parametrize("how", ["level", "time"])
async def test_a_kill_repeats_only_delayed_messages_in_flight(how: str, tmp_path: Path) -> None:
    file = properties(
        tmp_path / "broker.conf",
        {
            "brokerName": "broker-a",
            "storePathRootDir": tmp_path / "store",
            "mappedFileSizeCommitLog": 16 * 1024 * 1024,
            "messageDelayLevel": "2s",
        },
    )
    async with server(tmp_path / "namesrv.log", "namesrv", "--listen", "127.0.0.1:0") as nameserver:
        arguments = ("broker", "-c", str(file), "-n", nameserver.address, "--listen", "127.0.0.1:0")
        async with server(tmp_path / "broker.log", *arguments) as broker:
            broker.keep_address()
            async with Admin(nameserver.address) as admin:
                await admin.topics.create(TOPIC, read_queues=2, write_queues=2)
            await send_delayed(nameserver.address, how)
            await asyncio.sleep(2.5)  # then most are due, and a broker without progress would have to begin again
            await kill_repeatedly(broker)
            for _ in range(100):  # at most 20 s
                await asyncio.sleep(0.2)
                counts = await delivered(nameserver.address)
                if len(counts) == MESSAGES:
                    break
            await asyncio.sleep(UP_S)
            counts = await delivered(nameserver.address)
    assert set(counts) == {b"%d" % number for number in range(MESSAGES)}
    assert counts.total() <= MESSAGES + KILLS * BATCH
