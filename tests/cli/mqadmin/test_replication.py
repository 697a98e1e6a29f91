"""`mqadmin haStatus`: what Apache's 5 prints, to the column, for real masters and slaves and for peers of 4.9."""

import asyncio
import re
import sys
from pathlib import Path

from tests.cli.command_line import MQADMIN, CommandLine, Outcome
from tests.client.replica_peers import apache, members, pairs

HEADING = (
    "#SlaveAddr                        #SlaveAckOffset             #Diff #TransferSpeed(KB/s)          #Status "
    "#TransferFromWhere"
)
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"


async def run(namesrv: str, *words: str) -> Outcome:
    return await asyncio.to_thread(CommandLine(namesrv, MQADMIN).run, "haStatus", *words)


async def test_a_master_is_printed_with_its_slaves(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        await pair.start_slave()
        await pair.send(b"one")
        await pair.is_level()
        done = await run(pair.nameserver, "-b", pair.master.address)
        assert done.status == 0
        assert done.lines[:6] == [
            "",
            f"#MasterAddr\t{pair.master.address}",
            f"#MasterCommitLogMaxOffset\t{pair.end}",
            "#SlaveNum\t1",
            "#InSyncSlaveNum\t1",
            HEADING,
        ]
        end = pair.end
        pattern = rf"127\.0\.0\.1:\d+ +{end} +0 +\d+\.\d\d +OK +{end}"
        assert re.fullmatch(pattern, done.lines[6]), done.lines[6]
        by_cluster = await run(pair.nameserver, "-c", "DefaultCluster")
        assert by_cluster.lines[1:6] == done.lines[1:6]
        assert len(by_cluster.lines) == 7, "only masters"


async def test_a_slave_is_printed_with_its_master(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        slave = await pair.start_slave()
        await pair.send(b"one")
        await pair.is_level()
        port = pair.master.broker.replication.master
        assert port is not None
        lines = (await run(pair.nameserver, "-b", slave.address)).lines
        assert lines[:3] == ["", f"#MasterAddr\t{port.address}", f"#CommitLogMaxOffset\t{pair.end}"]
        assert re.fullmatch(r"#TransferSpeed\(KB/s\)\t\d+\.\d\d", lines[3])
        assert re.fullmatch(rf"#LastReadTime\t{_TIME}", lines[4])
        assert re.fullmatch(rf"#LastWriteTime\t{_TIME}", lines[5])
        assert lines[6:] == ["#MasterFlushOffset\tunknown"]
        await pair.stop_master()
        lines = (await run(pair.nameserver, "-b", slave.address)).lines
        assert lines[1] == "#MasterAddr\tunknown"
        assert lines[4] == "#LastReadTime\tunknown"


async def test_with_an_interval_it_is_printed_again(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-u", "-m", "ariane", "admin", "haStatus", "-n", pair.nameserver),
            *("-b", pair.master.address, "-i", "1"),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            seen = 0
            async with asyncio.timeout(60):
                while seen < 2:
                    seen += (await process.stdout.readline()).startswith(b"#MasterAddr")
        finally:
            process.kill()
            await process.wait()


async def test_a_broker_of_4_9_does_not_know_it() -> None:
    async with members((0, apache("ASYNC_MASTER", 1000))) as names:
        done = await run(names, "-c", "DefaultCluster")
    assert done.status == 1
    assert "came with 5.x: `ariane cluster replicas` shows what it tells" in done.err


async def test_one_of_both_options_is_needed(tmp_path: Path) -> None:
    done = await run("127.0.0.1:1")
    assert (done.status, "give either -b or -c" in done.err) == (2, True)
