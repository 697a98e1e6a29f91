"""`ariane up` as its users run it: processes, signals, files and ports."""

import json
import os
import re
import select
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.testing.commands import HANG_S, READY, Outcome, run, terminal, up


def refused(outcome: Outcome, status: int, *words: str) -> None:
    """One sentence, on stderr alone."""
    assert (outcome.status, outcome.out) == (status, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1, outcome.err
    for word in words:
        assert word in outcome.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_command_is_enough_to_send_and_receive(tmp_path: Path, number: signal.Signals) -> None:
    with up(cwd=tmp_path) as servers:
        shown = "".join(servers.lines_until("ariane cluster"))
        assert servers.namesrv in shown
        assert re.search(r"broker-a +127\.0\.0\.1:\d+", shown)
        assert run("send", "orders", "hello", cwd=tmp_path).status == 0  # found without -n
        tail = run("tail", "orders", "--from", "earliest", "--exit-at-end", "-o", "jsonl", cwd=tmp_path)
        assert [row["body"] for row in tail.rows] == ["hello"]
        stopped = servers.stop(number)
        assert (stopped.status, stopped.out, stopped.err) == (0, "", "")
    assert not (tmp_path / ".ariane" / "up.json").exists()
    assert not (tmp_path / ".ariane" / "broker-a" / "abort").exists()


def test_messages_survive_a_restart(tmp_path: Path) -> None:
    for number in range(2):
        with up("--data", "shop", cwd=tmp_path) as servers:
            run("send", "orders", f"run {number}", "-n", servers.namesrv, cwd=tmp_path)
            options = ("--from", "earliest", "--exit-at-end", "-o", "jsonl", "-n", servers.namesrv)
            bodies = {row["body"] for row in run("tail", "orders", *options, cwd=tmp_path).rows}
            assert bodies == {f"run {before}" for before in range(number + 1)}
            servers.stop()
    assert os.listdir(tmp_path) == ["shop"]


def test_a_temporary_run_leaves_nothing(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with up("--tmp", cwd=tmp_path, TMPDIR=str(scratch)) as servers:
        assert len(list(scratch.glob("*/broker-a"))) == 1
        servers.stop()
    assert os.listdir(scratch) == []
    assert os.listdir(tmp_path) == ["scratch"]


def test_several_brokers_are_processes_that_can_be_killed_one_by_one(tmp_path: Path) -> None:
    with up("--brokers", "3", cwd=tmp_path) as servers:
        shown = "".join(servers.lines_until("ariane cluster"))
        assert all(f"broker-{letter}" in shown for letter in "abc")
        assert run("send", "orders", "m{n}", "--count", "12", "--sharding-key", "{n}", cwd=tmp_path).status == 0
        rows = run("tail", "orders", "--from", "earliest", "--exit-at-end", "-o", "jsonl", cwd=tmp_path).rows
        assert {row["brokerName"] for row in rows} == {"broker-a", "broker-b", "broker-c"}
        children = _children(servers.process.pid)
        assert len(children) == 3
        os.kill(children[0], signal.SIGKILL)
        assert servers.process.stderr is not None
        notice = f"(pid {children[0]}) ended with status -9; the others continue"
        assert any(notice in line for line in servers.process.stderr)
        assert servers.stop().status == 0
        assert not any(Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.parametrize("options", [("--brokers", "2"), ("--slave",)])
def test_no_broker_outlives_a_command_that_was_killed(tmp_path: Path, options: tuple[str, ...]) -> None:
    with up(*options, cwd=tmp_path) as servers:
        watched = [os.pidfd_open(child) for child in _children(servers.process.pid)]
        assert len(watched) == 2
        servers.process.kill()
        for pidfd in watched:
            assert select.select([pidfd], [], [], HANG_S)[0]
            os.close(pidfd)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_brokers_that_have_data_but_are_not_started_are_listed(tmp_path: Path) -> None:
    with up("--brokers", "2", cwd=tmp_path) as servers:
        run("send", "orders", "m{n}", "--count", "8", "--sharding-key", "{n}", cwd=tmp_path)
        servers.stop()
    with up(cwd=tmp_path) as servers:
        assert "broker-b (data exists here)" in "".join(servers.lines_until("Ctrl-C"))


@pytest.mark.parametrize(("option", "distance"), [("--port", 0), ("--broker-port", 0), ("--broker-port", 2)])
@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_port_in_use_is_reported_with_the_option_for_it(
    tmp_path: Path, option: str, distance: int, brokers: str
) -> None:
    free = {"--port": "0", "--broker-port": "0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = free | {option: str(taken.getsockname()[1] + distance)}
        flags = [text for pair in ports.items() for text in pair]
        refused(run("up", *flags, "--brokers", brokers, cwd=tmp_path), 3, f"{option} PORT", "already in use")


def test_a_second_run_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    with up(cwd=tmp_path):
        again = run("up", "--port", "0", "--broker-port", "0", cwd=tmp_path)
    refused(again, 1, "another `ariane up` runs on .ariane", "--data")


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_store_in_use_is_reported(tmp_path: Path, brokers: str) -> None:
    """By a broker that was started by hand."""
    with up("--data", "one", cwd=tmp_path):
        (tmp_path / "two").mkdir()
        (tmp_path / "two" / "broker-a").symlink_to(tmp_path / "one" / "broker-a")
        flags = ("--data", "two", "--port", "0", "--broker-port", "0", "--brokers", brokers)
        refused(run("up", *flags, cwd=tmp_path), 1, "in use by another broker", "choose another directory")


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_store_with_other_file_sizes_is_reported(tmp_path: Path, brokers: str) -> None:
    with up(cwd=tmp_path) as servers:
        run("send", "orders", "hello", cwd=tmp_path)
        servers.stop()
    other = {"ARIANE_BROKER__STORE__SEGMENT_BYTES": "4194304"}
    flags = ("--port", "0", "--broker-port", "0", "--brokers", brokers)
    refused(run("up", *flags, cwd=tmp_path, **other), 1, "8388608 bytes", "the size that the store was written with")


def test_an_unusable_data_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(run("up", "--data", "file/below", "--port", "0", cwd=tmp_path), 2, "--data")


def test_brokers_that_need_too_high_a_port_are_refused(tmp_path: Path) -> None:
    refused(run("up", "--broker-port", "65530", "--brokers", "2", cwd=tmp_path), 2, "65540")


def test_the_demo_sends_orders(tmp_path: Path) -> None:
    with up("--demo", "--demo-rate", "500", cwd=tmp_path) as servers:
        servers.lines_until("500 events a second")
        rows: list[dict[str, Any]] = []
        while not rows:  # the first send makes the topic
            rows = run("tail", "orders", "--from", "earliest", "--limit", "20", "-o", "jsonl", cwd=tmp_path).rows
        assert len(rows) == 20
        assert {"created"} <= {row["tags"] for row in rows}
        assert all(row["properties"]["region"] for row in rows)
        assert json.loads(rows[0]["body"])["order_id"] in rows[0]["keys"]
        stopped = servers.stop()
        assert (stopped.status, stopped.err) == (0, "")


@pytest.mark.parametrize("options", [(), ("--brokers", "2"), ("--slave",)])
def test_ctrl_c_at_a_terminal_stops_everything(tmp_path: Path, options: tuple[str, ...]) -> None:
    with terminal("up", "--port", "0", "--broker-port", "0", *options, cwd=tmp_path) as person:
        person.read_until("ariane cluster -n")
        assert READY.search(person.seen)
        person.type("\x03")
        assert person.status() == 0
        assert "error" not in person.seen
        assert "ended with status" not in person.seen
        assert "WARNING" not in person.seen
