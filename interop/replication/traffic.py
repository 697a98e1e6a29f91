"""Checks that a slave has what its master has: messages, through kills of both ends, and tables."""

import asyncio
import random
from collections.abc import Iterator

from ariane.client.producer.producer import Producer
from ariane.errors import ArianeError
from ariane.model.group import GroupConfig
from ariane.model.ids import QueueOffset
from ariane.model.system_topics import SCHEDULE
from ariane.wire.requests.groups import DeleteGroup, GetGroupTable, UpdateGroup
from ariane.wire.requests.offsets import (
    DelayOffsetTable,
    GetAllConsumerOffsets,
    GetAllDelayOffsets,
    GetMaxOffset,
    UpdateConsumerOffset,
)
from ariane.wire.requests.topics import DeleteTopicInBroker, GetTopicTable
from interop.broker.check_context import QUEUES, eventually
from interop.broker.rows import Rows
from interop.broker.servers import DELAY_LEVEL
from interop.replication.log_files import difference
from interop.replication.members import Member
from interop.replication.pair import Pair
from interop.replication.statuses import producer_of
from interop.report import expect

TOPIC = "TrafficTopic"
MESSAGES, KILLS, SENDERS = 10_000, 5, 16
BODY_BYTES_MAX = 2_000
DELAYED_EACH = 100
ROUND_S = 180.0
SYNC_S = 180.0
"""Slaves copy tables every ten seconds, those of Apache 5 every minute."""

TRAFFIC_CHECKS: Rows[Pair] = Rows()
TABLE_CHECKS: Rows[Pair] = Rows()
"""May run at the same time, after the others."""


@TRAFFIC_CHECKS.row(f"{MESSAGES:,} messages, kill -9 of each end {KILLS} times: the slave has all")
async def through_kills(pair: Pair) -> None:
    """One message of a hundred is delayed. What was not acknowledged is sent again."""
    await pair.create_topic(TOPIC)
    sizes = random.Random(17)
    bodies = [b"%d %s" % (number, b"x" * sizes.randrange(BODY_BYTES_MAX)) for number in range(MESSAGES)]
    victims = [pair.slave, pair.master] * KILLS
    share = MESSAGES // len(victims)
    async with producer_of(pair, "traffic") as producer:
        for number, victim in enumerate(victims):
            await pair.until_level(TOPIC, timeout_s=ROUND_S)
            async with asyncio.timeout(ROUND_S):
                await _round(producer, bodies[number * share : (number + 1) * share], victim)
    await _until_delivered(pair)
    await pair.until_level(TOPIC, timeout_s=ROUND_S)
    # A slave of Apache 5 that is killed before its first minute is over has not heard of the topic yet.
    await eventually(lambda: pair.slave_knows([TOPIC]), "the slave knows the topic", SYNC_S)
    found = await pair.bodies(pair.slave, TOPIC)
    missing = [body.split()[0].decode() for body in bodies if body not in found]
    expect(not missing, f"{len(missing)} messages are not at the slave: {missing[:20]}")


async def _round(producer: Producer, bodies: list[bytes], victim: Member) -> None:
    """Kills the victim when half of the messages are stored, and starts it again while the others are sent."""
    waiting = iter(bodies)
    stored = 0
    half = asyncio.Event()

    async def send(sender: Iterator[bytes]) -> None:
        nonlocal stored
        for body in sender:
            await _store(producer, body)
            stored += 1
            if stored == len(bodies) // 2:
                half.set()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(SENDERS):
            tasks.create_task(send(waiting))
        await half.wait()
        await victim.kill()
        await victim.start()


async def _store(producer: Producer, body: bytes) -> None:
    delay_level = DELAY_LEVEL if int(body.split()[0]) % DELAYED_EACH == 0 else 0
    while True:
        try:
            await producer.send(TOPIC, body, delay_level=delay_level)
        except ArianeError:  # the master is dead
            await asyncio.sleep(0.1)
        else:
            return


async def _until_delivered(pair: Pair) -> None:
    """Waits until the master has delivered all delayed messages."""

    async def is_delivered() -> bool:
        master = pair.master.plan.address
        delivered = (await pair.call(master, GetAllDelayOffsets())).body.offset_table
        request = GetMaxOffset(topic=SCHEDULE, queue_id=DELAY_LEVEL - 1)
        return delivered.get(DELAY_LEVEL) == (await pair.call(master, request)).offset

    await eventually(is_delivered, "delivery of delayed messages", ROUND_S)


@TRAFFIC_CHECKS.row("commit logs equal byte for byte")
async def equal_logs(pair: Pair) -> None:
    ends = [await pair.log_end(member) for member in (pair.master, pair.slave)]
    expect(ends[0] == ends[1], f"the master's log ends at {ends[0]}, the slave's at {ends[1]}")
    problem = await asyncio.to_thread(difference, pair.master.commit_log, pair.slave.commit_log, ends[0])
    expect(problem is None, str(problem))


# --- tables ---


OFFSETS_GROUP = "TableOffsets"
"""Of its own: the rows run side by side, and brokers of 5.x want a group to exist before its offsets."""


@TABLE_CHECKS.row("topics copied: new and deleted ones")
async def topics(pair: Pair) -> None:
    for topic in ("TableTopic", "TableTopicToDelete"):
        await pair.create_topic(topic)

    async def is_equal() -> bool:
        tables = [
            (await pair.call(member.plan.address, GetTopicTable())).body.topic_config_table
            for member in (pair.master, pair.slave)
        ]
        return tables[0] == tables[1]

    await eventually(is_equal, "equal topics", SYNC_S)
    await pair.call(pair.master.plan.address, DeleteTopicInBroker(topic="TableTopicToDelete"))
    await eventually(is_equal, "equal topics after one was deleted", SYNC_S)


@TABLE_CHECKS.row("consumer groups copied: new and deleted ones")
async def groups(pair: Pair) -> None:
    for group in ("TableGroup", "TableGroupToDelete"):
        config = GroupConfig(group_name=group, retry_max_times=3, retry_queue_nums=2)
        await pair.call(pair.master.plan.address, UpdateGroup(body=config))

    async def is_equal() -> bool:
        tables = [
            (await pair.call(member.plan.address, GetGroupTable())).body.subscription_group_table
            for member in (pair.master, pair.slave)
        ]
        return tables[0] == tables[1]

    await eventually(is_equal, "equal groups", SYNC_S)
    await pair.call(pair.master.plan.address, DeleteGroup(group_name="TableGroupToDelete", remove_offset=True))
    await eventually(is_equal, "equal groups after one was deleted", SYNC_S)


@TABLE_CHECKS.row("consumer offsets copied")
async def consumer_offsets(pair: Pair) -> None:
    await pair.call(pair.master.plan.address, UpdateGroup(body=GroupConfig(group_name=OFFSETS_GROUP)))
    for queue, end in enumerate(await pair.max_offsets(pair.master, TOPIC)):
        request = UpdateConsumerOffset(
            consumer_group=OFFSETS_GROUP, topic=TOPIC, queue_id=queue, commit_offset=QueueOffset(end - queue)
        )
        await pair.call(pair.master.plan.address, request)

    async def is_equal() -> bool:
        tables = [
            (await pair.call(member.plan.address, GetAllConsumerOffsets())).body.offset_table
            for member in (pair.master, pair.slave)
        ]
        return tables[0] == tables[1] and len(tables[0].get(f"{TOPIC}@{OFFSETS_GROUP}", {})) == QUEUES

    await eventually(is_equal, "equal consumer offsets", SYNC_S)


@TABLE_CHECKS.row("progress of delay levels copied")
async def delay_offsets(pair: Pair) -> None:
    """Apache's slave only keeps the file, and reads it when it is started as a master."""

    async def is_equal() -> bool:
        response = await pair.call(pair.master.plan.address, GetAllDelayOffsets())
        file = pair.slave.config / "delayOffset.json"
        copied = DelayOffsetTable.from_bytes(file.read_bytes()).offset_table if file.exists() else {}
        return response.body.offset_table == copied and copied.get(DELAY_LEVEL, 0) > 0

    await eventually(is_equal, "equal delay offsets", SYNC_S)
