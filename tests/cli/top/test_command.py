"""`ariane top`: one reading in a pipe, a live screen on a terminal."""

import csv
import io
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ariane.cli.top.run import Reading, group_figures
from ariane.client.admin.groups import GroupSummary
from ariane.client.admin.lag import GroupLag, QueueLag
from ariane.client.admin.members import GroupMembers
from ariane.client.admin.requests import PerServer
from ariane.model.route import MessageQueue
from ariane.testing.broker import BrokerForTests
from tests.cli.command_line import ENVIRONMENT, PROGRAM, CommandLine


@pytest.fixture(scope="module")
def topic(shared_broker: BrokerForTests) -> str:
    command = CommandLine(shared_broker.namesrv)
    command.ok("topic", "create", "watched", "--read-queues", "2", "--write-queues", "2")
    command.ok("send", "watched", "one")
    return "watched"


def test_a_reading_in_a_pipe_has_brokers_topics_and_groups(command: CommandLine, topic: str) -> None:
    figures = json.loads(command.ok("top", "--interval", "0.2", "-o", "json").out)
    assert [row["brokerName"] for row in figures["brokers"]] == ["broker-a"]
    (row,) = [row for row in figures["topics"] if row["topic"] == topic]
    assert (row["queues"], row["messages"], row["inPerS"]) == (2, 1, 0)
    assert isinstance(figures["groups"], list)


def test_as_tables_and_as_lines(command: CommandLine, topic: str) -> None:
    assert topic in command.ok("top", "--once", "--interval", "0.2").out
    kinds = {json.loads(line)["kind"] for line in command.ok("top", "--interval", "0.2", "-o", "jsonl").lines}
    assert {"broker", "topic"} <= kinds


def test_a_csv_has_the_same_columns_in_every_line(command: CommandLine, topic: str) -> None:
    heading, *lines = csv.reader(io.StringIO(command.ok("top", "--interval", "0.2", "-o", "csv").out))
    assert {"kind", "brokerName", "topic"} <= set(heading)
    assert {len(line) for line in lines} == {len(heading)}


def test_what_was_not_read_is_reported(command: CommandLine, topic: str) -> None:
    command.ok("topic", "create", "not-read", "--read-queues", "1", "--write-queues", "1")
    done = command.ok("top", "--interval", "0.2", "--most", "1", "-o", "json")
    assert len(json.loads(done.out)["topics"]) == 1
    assert "read 1 of 2 topics (--most)" in done.err
    assert "read 1 of " in done.err.splitlines()[1]


@pytest.mark.parametrize(
    ("before", "now", "rate"),
    [
        ({0: 10, 1: 10}, {0: 30, 1: 10}, 10),
        ({0: 10, 1: None}, {0: 30, 1: 1_000_000}, 10),
        ({0: None}, {0: 1_000_000}, None),
        ({0: 10}, {0: 0}, None),
    ],
)
def test_a_first_offset_does_not_count_as_consumption(
    before: dict[int, int | None], now: dict[int, int | None], rate: int | None
) -> None:
    (row,) = group_figures(reading(2.0, now), reading(0.0, before))
    assert row["outPerS"] == rate


def reading(at_s: float, offsets: dict[int, int | None]) -> Reading:
    """Of a cluster in which one group has these offsets."""
    queues = [
        QueueLag(
            queue=MessageQueue(topic="t", broker_name="b", queue_id=queue_id),
            end=2_000_000,
            offset=offset,
            last_consumed_ms=None,
        )
        for queue_id, offset in offsets.items()
    ]
    lag = GroupLag(group="g", queues=tuple(queues), consume_tps=0.0)
    groups = {"g": GroupSummary(members=GroupMembers(group="g"), lag=lag)}
    return Reading(at_s, [], PerServer({}), {}, topics_known=0, groups=groups)


def test_q_quits_and_restores_the_terminal(command: CommandLine, topic: str) -> None:
    done = command.on_terminal("top", "--interval", "0.2", keys="q")
    assert done.status == 0
    assert done.out.rstrip().endswith("\x1b[?25h\x1b[?1049l")  # the cursor, the screen before


def test_an_unreachable_cluster_is_reported_before_the_screen_opens(shared_broker: BrokerForTests) -> None:
    done = CommandLine("127.0.0.1:1").run("top", "--once")
    assert (done.status, "127.0.0.1:1" in done.err) == (3, True)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_the_screen_in_tmux(shared_broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    with terminal(tmp_path, [*PROGRAM, "top", "--interval", "0.2", "-n", shared_broker.namesrv]) as window:
        screen = window.until("inPerS")
        assert "broker-a" in screen
        assert topic in screen
        assert "q: quit" in screen
        window.type("q")
        window.until_closed()


class Window:
    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket)]

    def until(self, text: str) -> str:
        give_up = time.monotonic() + 60
        while text not in (screen := self.run("capture-pane", "-p").stdout):
            assert time.monotonic() < give_up, screen
            time.sleep(0.1)
        return screen

    def until_closed(self) -> None:
        give_up = time.monotonic() + 60
        while self.run("has-session").returncode == 0:
            assert time.monotonic() < give_up
            time.sleep(0.1)

    def type(self, keys: str) -> None:
        self.run("send-keys", keys)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, env=ENVIRONMENT)


@contextmanager
def terminal(home: Path, command: list[str]) -> Iterator[Window]:
    window = Window(home / "tmux")
    started = window.run("-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "30", *command)
    assert started.returncode == 0, started.stderr
    try:
        yield window
    finally:
        window.run("kill-server")
