"""What `ariane doctor` finds out about masters and slaves, each problem really there."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.settings import BrokerRole
from ariane.replication.settings import ReplicationSettings
from ariane.wire.codes import RequestCode
from tests.cli.command_line import CommandLine
from tests.client.replica_peers import Bodies, apache, members, pairs
from tests.transport.peers import until

GIB = 1 << 30


async def found(namesrv: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit status, and the findings about replication."""
    done = await asyncio.to_thread(CommandLine(namesrv).run, "doctor", "--watch", "0", "-o", "json")
    return done.status, [row for row in done.rows if row["check"] == "replication"]


def of(verdict: str, findings: list[dict[str, Any]]) -> list[str]:
    return [row["found"] for row in findings if row["verdict"] == verdict]


async def test_a_healthy_pair_is_ok_in_everything_that_is_asked(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        slave = await pair.start_slave()
        await pair.send(b"one")
        await pair.is_level()
        status, findings = await found(pair.nameserver)
        name = f"slave 1 of broker-a ({slave.address})"
        assert status == 0
        assert of("ok", findings) == [
            f"{name} follows its master",
            f"{name} is 0 bytes and 0.0 s behind",
            f"{name} has its master's older messages",
            f"{name} and its master have the same settings where it matters",
        ]
        assert len(findings) == 4


async def test_a_master_without_slaves_matters_only_if_it_waits_for_them(tmp_path: Path) -> None:
    async with pairs(tmp_path, BrokerRole.ASYNC_MASTER) as pair:
        assert await found(pair.nameserver) == (0, [])
    async with pairs(tmp_path / "sync") as pair:
        status, findings = await found(pair.nameserver)
        assert status == 1
        assert of("failure", findings) == ["broker-a is a SYNC_MASTER without a slave in reach"]


async def test_a_slave_that_does_not_follow_says_why(tmp_path: Path) -> None:
    secret, other = tmp_path / "secret", tmp_path / "other"
    secret.write_text("a-secret-of-the-master")
    other.write_text("another-secret-of-a-slave")
    async with pairs(tmp_path, BrokerRole.ASYNC_MASTER, replication=ReplicationSettings(secret_file=secret)) as pair:
        slave = await pair.start_refused(replication=ReplicationSettings(secret_file=other))
        follower = slave.broker.replication.slave
        assert follower is not None
        await until(lambda: "does not know our secret" in (follower.status.reason or ""))
        status, findings = await found(pair.nameserver)
        assert status == 1
        (failure,) = of("failure", findings)
        assert failure.startswith(f"slave 1 of broker-a ({slave.address}) does not follow its master")
        assert "replication.secret_file" in failure


async def test_slaves_that_stopped_and_masters_that_died_are_failures(tmp_path: Path) -> None:
    async with pairs(tmp_path, BrokerRole.ASYNC_MASTER) as pair:
        await pair.start_slave()
        await pair.start_slave(2)
        await pair.stop_slave(2)
        status, findings = await found(pair.nameserver)
        assert status == 1
        (failure,) = of("failure", findings)
        assert "slave 2 of broker-a" in failure
        assert "not registered any more" in failure
        await pair.stop_master()
        status, findings = await found(pair.nameserver)
        assert status == 1
        (failure,) = of("failure", findings)
        assert "slave 1 of broker-a" in failure
        assert of("not asked", findings), "how far it is behind, without a master"


async def test_a_stranger_at_the_replication_port_is_a_warning(tmp_path: Path) -> None:
    async with pairs(tmp_path, BrokerRole.ASYNC_MASTER) as pair:
        port = pair.master.broker.replication.master
        assert port is not None
        reader, writer = await asyncio.open_connection(port.address.host, port.address.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        await until(port.lost)
        status, findings = await found(pair.nameserver)
        assert status == 0
        (warning,) = of("warning", findings)
        assert "the master of broker-a refused 127.0.0.1" in warning


def ha(behind: int = 0, behind_ms: int | None = 0) -> bytes:
    slave = {"addr": "127.0.0.1:9", "brokerId": 1, "slaveAckOffset": 10 * GIB - behind, "diff": behind}
    body = {"master": True, "haConnectionInfo": [{**slave, "behindMillis": behind_ms, "inSync": behind < GIB // 4}]}
    return json.dumps(body).encode()


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], bytes, str, str]] = {
    "bytes": ({}, {}, ha(GIB, 1000), "failure", "is 1,073,741,824 bytes and 1.0 s behind: a SYNC_MASTER would not"),
    "seconds": ({}, {}, ha(100, 60_000), "warning", "is 100 bytes and 60.0 s behind"),
    "unknown seconds": ({}, {}, ha(100, None), "not asked", "for how long"),
    "limit of the master": ({"haSlaveFallbehindMax": 50}, {}, ha(100, 1), "failure", "is 100 bytes"),
    "file sizes": (
        {},
        {"mappedFileSizeCommitLog": 4096},
        ha(),
        "failure",
        "has mappedFileSizeCommitLog=4096, its master 1073741824",
    ),
    "settings": ({"fileReservedTime": 48}, {"fileReservedTime": 72}, ha(), "warning", "has fileReservedTime=72"),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_differs_too_much_is_found(case: str) -> None:
    of_master, of_slave, status, verdict, words = CASES[case]
    master: Bodies = {
        **apache("ASYNC_MASTER", 10 * GIB, **of_master),
        RequestCode.GET_BROKER_HA_STATUS: status,
    }
    slave = apache("SLAVE", 10 * GIB, **of_slave)
    async with members((0, master), (1, slave)) as names:
        _, findings = await found(names)
    assert [text for text in of(verdict, findings) if words in text], findings


async def test_a_slave_that_lacks_older_messages_is_a_warning() -> None:
    async with members((0, apache("ASYNC_MASTER", 10 * GIB)), (1, apache("SLAVE", 10 * GIB, begin=9 * GIB))) as names:
        _, findings = await found(names)
    (warning,) = of("warning", findings)
    assert "lacks 9,663,676,416 bytes of older messages that its master still has" in warning


async def test_versions_that_differ_are_a_warning() -> None:
    newer = apache("SLAVE", 1000)
    newer[RequestCode.GET_BROKER_RUNTIME_INFO] = b'{"table": {"brokerVersionDesc": "V5_4_0"}}'
    async with members((0, apache("ASYNC_MASTER", 1000)), (1, newer)) as names:
        _, findings = await found(names)
    assert [text for text in of("warning", findings) if "is V5_4_0, its master V4_9_7" in text]


async def test_what_a_pair_of_4_9_does_not_tell_is_not_asked_and_not_ok() -> None:
    async with members((0, apache("ASYNC_MASTER", 1000)), (1, apache("SLAVE", 900))) as names:
        _, findings = await found(names)
        screen = await asyncio.to_thread(CommandLine(names).run, "doctor", "--watch", "0")
    assert of("failure", findings) == []
    silent = of("not asked", findings)
    assert [text for text in silent if text.startswith("whether slave 1 of broker-a")]
    assert [text for text in silent if text.startswith("for how long slave 1 of broker-a")]
    assert [text for text in silent if "a broker of 4.x does not tell them" in text]
    assert not [text for text in of("ok", findings) if "follows its master" in text]
    assert f"{len(silent)} not asked" in screen.err
    assert "not asked replication" in screen.out
