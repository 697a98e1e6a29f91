"""`ariane cluster replicas`, and the columns of `ariane cluster` and `ariane top`, over real masters and slaves."""

import asyncio
import csv
import io
from pathlib import Path

from ariane.broker.settings import BrokerRole
from ariane.wire.codes import RequestCode
from tests.cli.command_line import CommandLine, Outcome
from tests.client.replica_peers import Bodies, apache, members, pairs


async def run(namesrv: str, *words: str) -> Outcome:
    return await asyncio.to_thread(CommandLine(namesrv).run, *words)


async def test_a_living_pair_in_every_format(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        slave = await pair.start_slave()
        await pair.send(b"one")
        await pair.is_level()
        done = await run(pair.nameserver, "cluster", "replicas", "-o", "json")
        assert (done.status, done.err) == (0, "")
        first, second = done.rows
        assert (first["role"], first["state"], first["behindBytes"]) == ("SYNC_MASTER", "ok", None)
        assert (second["brokerId"], second["role"], second["address"]) == (1, "SLAVE", slave.address)
        assert (second["state"], second["behindBytes"], second["behindS"]) == ("connected", 0, 0.0)
        assert (second["end"], second["dispatched"], second["registered"]) == (pair.end, pair.end, True)
        assert second["connected"].endswith("Z")
        as_table = await run(pair.nameserver, "cluster", "replicas", "broker-a")
        heading, master_line, slave_line = as_table.lines
        assert heading.split() == [
            *("brokerName", "brokerId", "role", "address", "state", "end"),
            *("behindBytes", "behindS", "connected", "reason"),
        ]
        assert ("SYNC_MASTER" in master_line, "unknown" in master_line) == (True, False)
        assert slave_line.split()[6:8] == ["0", "0.0"]
        as_csv = await run(pair.nameserver, "cluster", "replicas", "-o", "csv")
        assert [row["brokerId"] for row in csv.DictReader(io.StringIO(as_csv.out))] == ["0", "1"]


async def test_a_sync_master_alone_ends_with_1_and_an_async_one_with_0(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        done = await run(pair.nameserver, "cluster", "replicas")
        assert (done.status, "SYNC_MASTER without a slave" in done.err) == (1, True)
    async with pairs(tmp_path / "other", BrokerRole.ASYNC_MASTER) as pair:
        done = await run(pair.nameserver, "cluster", "replicas")
        assert (done.status, done.err) == (0, "")


async def test_a_dead_slave_and_a_dead_master_end_with_1_and_the_reason(tmp_path: Path) -> None:
    async with pairs(tmp_path, BrokerRole.ASYNC_MASTER) as pair:
        await pair.start_slave()
        await pair.start_slave(2)
        await pair.stop_slave(2)
        done = await run(pair.nameserver, "cluster", "replicas", "-o", "json")
        assert done.status == 1
        assert [(row["brokerId"], row["state"]) for row in done.rows] == [
            (0, "ok"),
            (1, "connected"),
            (2, "not connected"),
        ]
        assert "is not registered any more" in done.rows[2]["reason"]
        assert done.err.startswith("trouble: slave 2 of broker-a")
        await pair.stop_master()
        done = await run(pair.nameserver, "cluster", "replicas")
        assert (done.status, "broker-a has no master" in done.err) == (1, True)
        assert "unknown" in done.lines[1]


async def test_a_member_that_does_not_respond_is_shown_with_the_reason_and_ends_with_3() -> None:
    async with members((0, apache("ASYNC_MASTER", 1000)), (1, apache("SLAVE", 1000)), (2, "127.0.0.1:1")) as names:
        done = await run(names, "cluster", "replicas", "-o", "json")
    assert done.status == 3
    dead = done.rows[2]
    assert (dead["state"], dead["end"], dead["behindBytes"]) == ("unreachable", None, None)
    assert "127.0.0.1:1" in dead["reason"]
    assert "incomplete: no data from broker-a (127.0.0.1:1)" in done.err


async def test_what_a_pair_of_4_9_does_not_tell_is_unknown_and_not_0() -> None:
    async with members((0, apache("ASYNC_MASTER", 1000)), (1, apache("SLAVE", 900))) as names:
        as_table = await run(names, "cluster", "replicas")
        as_json = await run(names, "cluster", "replicas", "-o", "json")
    assert as_table.status == 0
    assert as_table.lines[2].split()[4:8] == ["unknown", "900", "100", "unknown"]
    assert (as_json.rows[1]["behindS"], as_json.rows[1]["behindBytes"]) == (None, 100)
    assert as_json.rows[1]["notAsked"]


async def test_a_hostile_reason_does_not_reach_the_terminal() -> None:
    hostile = (
        b'{"master": true, "lostConnections": [{"addr": "10.0.0.1:1", "reason": "\\u001b[2Jgone"}],'
        b'"haConnectionInfo": [{"addr": "\\u001b]0;x\\u0007", "slaveAckOffset": -9, "diff": -9}]}'
    )
    peer: Bodies = {**apache("SYNC_MASTER", 1000), RequestCode.GET_BROKER_HA_STATUS: hostile}
    async with members((0, peer)) as names:
        done = await run(names, "cluster", "replicas")
        asked = await run(names, "doctor", "--watch", "0")
    for text in (done.out, done.err, asked.out):
        assert "\x1b[2J" not in text
        assert "\x1b]0" not in text
    assert "\\x1b[2Jgone" in done.err


async def test_an_unknown_name_ends_with_1(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        done = await run(pair.nameserver, "cluster", "replicas", "broker-q")
        assert (done.status, "the nameserver knows broker-a" in done.err) == (1, True)


async def test_the_lists_of_brokers_show_roles_and_distances(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        await pair.start_slave()
        await pair.send(b"one")
        await pair.is_level()
        rows = (await run(pair.nameserver, "cluster", "-o", "json")).rows
        assert [(row["role"], row["behindBytes"]) for row in rows] == [("master", None), ("slave", 0)]
        table = await run(pair.nameserver, "cluster")
        assert "role" in table.lines[0].split()
        assert "behindBytes" in table.lines[0].split()
        top = await run(pair.nameserver, "top", "--once", "--interval", "0.2")
        assert top.lines[0].split()[:5] == ["brokerName", "role", "address", "state", "behindBytes"]
