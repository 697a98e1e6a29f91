"""`ariane up --slave`: a master and a slave with one command, stopped, killed and started again."""

import json
import os
import shutil
import signal
from itertools import pairwise
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from ariane.cli.up.command import UpPlan
from ariane.errors import SettingsError
from ariane.sync import Producer
from tests.testing.commands import Up, run, up


def log_files(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((store / "commitlog").iterdir())}


def assert_equal_logs(data: Path, name: str = "broker-a") -> None:
    """After a clean stop."""
    files = log_files(data / name)
    assert any(map(any, files.values())), "something was written"
    assert log_files(data / f"{name}-slave") == files
    assert not list(data.glob("*/abort"))


def brokers(data: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((data / "up.json").read_text())["brokers"]
    return rows


def statuses(cwd: Path, count: int) -> set[str]:
    done = run("send", "orders", "m{n}", "--count", str(count), "-o", "jsonl", cwd=cwd)
    assert done.status == 0, done.err
    return {row["sendStatus"] for row in done.rows}


def bodies(cwd: Path) -> list[str]:
    done = run("tail", "orders", "--from", "earliest", "--exit-at-end", "-o", "jsonl", cwd=cwd)
    assert done.status == 0, done.err
    return [row["body"] for row in done.rows]


def assert_stops_well(servers: Up) -> None:
    stopped = servers.stop()
    assert (stopped.status, stopped.err) == (0, "")


def test_a_master_and_its_slave_start_and_are_found_by_the_commands(tmp_path: Path) -> None:
    with up("--slave", cwd=tmp_path) as servers:
        shown = "".join(servers.lines_until("ariane cluster"))
        master, slave = brokers(tmp_path / ".ariane")
        assert [(row["name"], row["id"]) for row in (master, slave)] == [("broker-a", 0), ("broker-a", 1)]
        lines = {words[0]: words[1] for words in map(str.split, shown.splitlines()) if len(words) > 1}
        assert (lines["broker-a"], lines["broker-a-slave"]) == (master["address"], slave["address"])
        assert lines["replication"] == "sync:"
        assert statuses(tmp_path, 20) == {"SEND_OK"}, "from the first send on a slave is there"
        cluster = run("cluster", "-o", "jsonl", cwd=tmp_path).rows
        assert [(row["brokerId"], row["address"], row["state"]) for row in cluster] == [
            (0, master["address"], "ok"),
            (1, slave["address"], "ok"),
        ]
        assert [row["topic"] for row in run("topic", "list", "-o", "jsonl", cwd=tmp_path).rows] == ["orders"]
        checks = run("doctor", "-o", "jsonl", cwd=tmp_path).rows
        responding = [row["found"] for row in checks if row["check"] == "brokers" and row["verdict"] == "ok"]
        assert len(responding) == 2
        assert all(any(row["address"] in text for text in responding) for row in (master, slave))
        assert_stops_well(servers)
    assert_equal_logs(tmp_path / ".ariane")


@pytest.mark.parametrize("replication", ["sync", "async"])
def test_when_it_has_stopped_the_slave_has_what_the_master_acknowledged(tmp_path: Path, replication: str) -> None:
    for _ in range(2):  # the second run goes on with both stores
        with up("--slave", "--replication", replication, cwd=tmp_path) as servers:
            with Producer(servers.namesrv, group="shop") as producer:
                results = [producer.send("orders", b"%d" % number + bytes(5_000)) for number in range(300)]
            assert {result.status for result in results} == {"SEND_OK"}
            assert_stops_well(servers)
        assert_equal_logs(tmp_path / ".ariane")


def test_a_slave_that_was_left_out_for_a_while_catches_up(tmp_path: Path) -> None:
    with up("--slave", cwd=tmp_path) as servers:
        assert statuses(tmp_path, 5) == {"SEND_OK"}
        assert_stops_well(servers)
    with up(cwd=tmp_path) as servers:
        shown = "".join(servers.lines_until("Ctrl-C"))
        assert "broker-a-slave (data exists here): start with --slave" in shown
        assert statuses(tmp_path, 5) == {"SEND_OK"}
        assert_stops_well(servers)
    with up("--slave", cwd=tmp_path) as servers:
        assert statuses(tmp_path, 5) == {"SEND_OK"}
        assert_stops_well(servers)
    assert_equal_logs(tmp_path / ".ariane")


def test_a_killed_masters_messages_are_read_from_the_slave(tmp_path: Path) -> None:
    with up("--slave", cwd=tmp_path) as servers:
        assert statuses(tmp_path, 20) == {"SEND_OK"}
        topics = tmp_path / ".ariane" / "broker-a-slave" / "config" / "topics.json"
        while not topics.exists() or b"orders" not in topics.read_bytes():
            sleep(0.05)  # a slave copies the table every 10 s
        master, _ = brokers(tmp_path / ".ariane")
        os.kill(master["pid"], signal.SIGKILL)
        assert servers.process.stderr is not None
        notice = f"broker-a (pid {master['pid']}) ended with status -9"
        assert any(notice in line and "from its slave" in line for line in servers.process.stderr)
        assert sorted(bodies(tmp_path)) == sorted(f"m{number}" for number in range(20))
        assert run("send", "orders", "late", cwd=tmp_path).status == 3
        assert servers.stop().status == 0
    with up("--slave", cwd=tmp_path) as servers:
        assert statuses(tmp_path, 1) == {"SEND_OK"}
        assert len(bodies(tmp_path)) == 21
        assert_stops_well(servers)
    assert_equal_logs(tmp_path / ".ariane")


def test_each_of_several_brokers_has_a_slave(tmp_path: Path) -> None:
    with up("--slave", "--brokers", "2", "--demo", "--demo-rate", "500", cwd=tmp_path) as servers:
        servers.lines_until("ariane cluster")
        rows = [(row["name"], row["id"]) for row in brokers(tmp_path / ".ariane")]
        assert rows == [("broker-a", 0), ("broker-b", 0), ("broker-a", 1), ("broker-b", 1)]
        while len(bodies(tmp_path)) < 20:  # the first send makes the topic
            pass
        assert_stops_well(servers)
    for name in ("broker-a", "broker-b"):
        assert_equal_logs(tmp_path / ".ariane", name)


def test_a_temporary_pair_leaves_nothing(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with up("--tmp", "--slave", cwd=tmp_path, TMPDIR=str(scratch)) as servers:
        assert len(list(scratch.glob("*/broker-a-slave/commitlog"))) == 1
        assert_stops_well(servers)
    assert os.listdir(scratch) == []


def test_a_slave_with_messages_that_its_master_does_not_have_is_refused(tmp_path: Path) -> None:
    with up("--slave", cwd=tmp_path) as servers:
        assert statuses(tmp_path, 5) == {"SEND_OK"}
        assert_stops_well(servers)
    shutil.rmtree(tmp_path / ".ariane" / "broker-a")
    again = run("up", "--slave", "--port", "0", "--broker-port", "0", cwd=tmp_path)
    assert (again.status, again.out) == (1, "")
    error = again.err.splitlines()[-1]
    assert error.startswith("error: the slave of broker-a cannot follow it: the master refuses us: ")
    assert error.endswith("remove .ariane/broker-a-slave")


def test_the_way_of_replication_needs_a_slave(tmp_path: Path) -> None:
    refused = run("up", "--replication", "sync", "--port", "0", "--broker-port", "0", cwd=tmp_path)
    assert (refused.status, refused.err) == (2, "error: --replication says how a slave follows: add --slave\n")


def test_no_port_of_a_broker_is_one_of_another(tmp_path: Path) -> None:
    plan = UpPlan(data=tmp_path, port=9876, broker_port=10911, brokers=16, replication="async")
    masters, slaves = plan.master_flags("127.0.0.1:9876"), plan.slave_flags("127.0.0.1:9876")
    assert len(masters) == len(slaves) == 16
    main = [int(str(flags["port"])) for flags in (*masters.values(), *slaves.values())]
    every = sorted(port + distance for port in main for distance in (-2, 0, 1))  # VIP, main, and where slaves connect
    assert all(port < following for port, following in pairwise(every))
    assert {flags["role"] for flags in masters.values()} == {"ASYNC_MASTER"}


def test_slaves_that_need_too_high_a_port_are_refused(tmp_path: Path) -> None:
    UpPlan(data=tmp_path, port=0, broker_port=65_531)
    with pytest.raises(SettingsError, match="1 brokers and their slaves from port 65531 on need port 65536"):
        UpPlan(data=tmp_path, port=0, broker_port=65_531, replication="sync")
