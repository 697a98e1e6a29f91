"""`ariane group`, `topic` and `msg` while the master of a broker name is dead: its slave is asked."""

import asyncio
from pathlib import Path

import pytest

from ariane.broker.settings import BrokerRole
from ariane.model.ids import QueueOffset
from ariane.replication import metadata
from ariane.wire.requests.offsets import UpdateConsumerOffset
from tests.broker.in_process_broker import GROUP, TOPIC
from tests.cli.command_line import CommandLine, Outcome
from tests.client.replica_peers import pairs
from tests.transport.peers import until


@pytest.fixture(autouse=True)
def frequent_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "FIRST_SYNC_S", 0.02)
    monkeypatch.setattr(metadata, "SYNC_INTERVAL_S", 0.02)


async def test_reads_are_answered_by_the_slave_and_changes_say_that_there_is_no_master(tmp_path: Path) -> None:
    async with pairs(tmp_path, BrokerRole.ASYNC_MASTER) as pair:
        slave = await pair.start_slave()
        await pair.send(b"one", b"two", b"three")
        await pair.calls.call(pair.master.address, UpdateConsumerOffset(GROUP, TOPIC, 0, QueueOffset(1)))
        await pair.is_level()
        await until(lambda: slave.parts.offsets.get(GROUP, TOPIC, 0) == 1)
        await until(lambda: slave.parts.topics.get(TOPIC) is not None)
        await until(lambda: slave.parts.groups.find(GROUP) is not None)
        await pair.stop_master()

        async def run(*words: str) -> Outcome:
            return await asyncio.to_thread(CommandLine(pair.nameserver).run, *words)

        lag = await run("group", "lag", GROUP, "-o", "json")
        assert lag.status == 0, lag.err
        assert [(row["brokerName"], row["brokerOffset"], row["lag"]) for row in lag.rows if row["queueId"] == 0] == [
            ("broker-a", 3, 2)
        ]
        listed = await run("group", "list", "-o", "json")
        assert (listed.status, GROUP in {row["group"] for row in listed.rows}) == (0, True)
        stats = await run("topic", "stats", TOPIC, "-o", "json")
        assert (stats.status, sum(row["messages"] for row in stats.rows)) == (0, 3), stats
        found = await run("msg", "find", TOPIC, "--queue", "broker-a:0", "--offset", "1", "-o", "json")
        assert (found.status, len(found.rows)) == (0, 1), found
        top = await run("top", "--once", "--interval", "0.2", "-o", "json")
        assert top.status == 0, top.err
        moved = await run("group", "seek", GROUP, TOPIC, "--to", "earliest", "--yes")
        assert (moved.status, "broker-a has no master now" in moved.err) == (1, True)
