"""`ariane doctor` with things that are wrong, each really so."""

import asyncio
import json
import os
import resource
import shutil
import socket
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from ariane.broker.settings import BrokerSettings
from ariane.cli.doctor.cluster import broker_time_s, is_too_small
from ariane.cli.doctor.machine import (
    StoreChecks,
    check_java,
    check_open_files,
    check_ports,
    file_system_of,
    load_config,
    reserves_space,
)
from ariane.cli.main import main
from ariane.client.admin.cluster import Runtime
from ariane.client.consumer.invocation import Retry
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.client.settings import ClientSettings
from ariane.spark.cluster import Calls
from ariane.store.settings import StoreSettings
from ariane.testing.broker import BrokerForTests, running_broker
from ariane.wire.requests.topics import GetCluster
from tests.cli.command_line import ENVIRONMENT, HANG_S, PROGRAM, CommandLine
from tests.client.cluster_fixture import fresh
from tests.nameserver.servers import registration
from tests.store.golden_stores import held_by_another_process, unpack

QUICK = ("--watch", "0")
Checks = dict[str, list[dict[str, Any]]]


def found(capsys: pytest.CaptureFixture[str], namesrv: str, *arguments: str) -> tuple[int, Checks]:
    """The exit status, and what each check found."""
    status = main(["doctor", "--watch", "0", *arguments, "-n", namesrv, "-o", "json"])
    checks: Checks = {}
    for row in json.loads(capsys.readouterr().out):
        checks.setdefault(row["check"], []).append(row)
    return status, checks


def verdicts(rows: list[dict[str, Any]]) -> set[str]:
    return {row["verdict"] for row in rows}


def test_a_healthy_cluster_has_no_failures(command: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    status, checks = found(capsys, command.namesrv)
    assert status == 0
    for name in ("python", "extras", "nameserver", "brokers", "clocks", "masters", "lag", "dead letters"):
        assert verdicts(checks[name]) == {"ok"}, checks[name]
    screen = command.on_terminal("doctor", *QUICK)
    assert screen.status == 0
    assert screen.lines[0].startswith(("ok", "\x1b"))


def test_a_configured_nameserver_that_does_not_respond_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    status, checks = found(capsys, "127.0.0.1:1")
    (row,) = checks["nameserver"]
    assert status == 1
    assert row["verdict"] == "failure"
    assert row["cure"] == "start it, or correct its address, which came from -n"


def test_no_nameserver_at_the_default_address_is_a_warning(tmp_path: Path) -> None:
    """127.0.0.1:9876 may be somebody's, so only the sentence is looked at."""
    done = subprocess.run(
        [*PROGRAM, "doctor", *QUICK], capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path, timeout=HANG_S
    )
    assert "nameserver" in done.stdout
    assert "ariane up" in done.stdout or "127.0.0.1:9876 responds" in done.stdout


def test_a_low_limit_of_open_files_is_a_warning_with_a_hint() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        (finding,) = check_open_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (finding.verdict, "only 512 files" in finding.found) == ("warning", True)
    assert "ulimit -n" in str(finding.hint)


def test_a_java_that_does_not_run_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (finding,) = check_java()
    assert finding.verdict == "warning"
    assert "unset JAVA_HOME" in str(finding.hint)


# --- settings, ports ------------------------------------------------------------------------------------------------


def write(file: Path, *lines: str) -> str:
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def test_an_unknown_key_is_a_failure_and_an_unused_one_a_warning(
    capsys: pytest.CaptureFixture[str], command: CommandLine, tmp_path: Path
) -> None:
    status, checks = found(capsys, command.namesrv, "-c", write(tmp_path / "bad.conf", "brokerNane=a"))
    (row,) = checks["settings"]
    assert (status, row["verdict"], "brokerNane" in row["found"]) == (1, "failure", True)
    findings, loaded = load_config(Path(write(tmp_path / "odd.conf", "transientStorePoolSize=5")))
    assert loaded is not None
    assert [(finding.verdict, "transientStorePoolSize" in finding.found) for finding in findings] == [("warning", True)]


def test_a_port_in_use_is_a_failure_unless_the_broker_itself_uses_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = BrokerSettings(port=taken.getsockname()[1])
        (finding,) = check_ports(settings, runs=False)
        assert (finding.verdict, str(settings.port) in finding.found) == ("failure", True)
        (finding,) = check_ports(settings, runs=True)
        assert finding.verdict == "ok"
    (finding,) = check_ports(BrokerSettings(port=0), runs=True)
    assert finding.verdict == "warning"


# --- stores ---------------------------------------------------------------------------------------------------------


def test_a_clean_shutdown_is_ok_and_a_kill_is_a_warning(
    capsys: pytest.CaptureFixture[str], command: CommandLine, tmp_path: Path
) -> None:
    _, clean = found(capsys, command.namesrv, "--store", str(unpack("clean", tmp_path / "clean").root))
    assert verdicts(clean["last run"]) == {"ok"}
    assert "failure" not in verdicts(clean["store files"])
    (finding,) = StoreChecks(unpack("killed", tmp_path / "killed").root).last_run()
    assert (finding.verdict, "abort" in finding.found) == ("warning", True)


def test_a_broken_table_and_a_missing_log_file_are_failures(tmp_path: Path) -> None:
    layout = unpack("clean", tmp_path)
    (layout.config / "topics.json").write_text("{")
    files = sorted(layout.commit_log.iterdir())
    shutil.copy(files[-1], layout.commit_log / f"{int(files[-1].name) + 5 * files[-1].stat().st_size:020d}")
    failed = [finding.found for finding in StoreChecks(layout.root).files() if finding.verdict == "failure"]
    assert any("topics.json" in text for text in failed)
    assert any("is missing" in text for text in failed)


def test_a_running_broker_is_not_a_crash(tmp_path: Path) -> None:
    layout = unpack("clean", tmp_path)
    with held_by_another_process(layout.lock) as process:
        (finding,) = StoreChecks(layout.root).last_run()
        assert (finding.verdict, str(process) in finding.found) == ("ok", True)


def test_a_full_disk_is_judged_by_the_effective_settings(tmp_path: Path) -> None:
    settings = StoreSettings(root=tmp_path, disk_max_used_ratio=0.1, force_clean_ratio=0.3, refuse_writes_ratio=0.35)
    (finding,) = StoreChecks(tmp_path, settings).space()
    used = os.statvfs(tmp_path)
    ratio = 1 - used.f_bfree / used.f_blocks
    expected = "failure" if ratio > 0.36 else "warning" if 0.11 < ratio < 0.34 else None
    assert expected is None or finding.verdict == expected


def test_the_file_system_is_detected_and_tested(tmp_path: Path) -> None:
    assert file_system_of(Path("/proc/self")) == "proc"
    assert file_system_of(Path("/dev/shm")) in ("tmpfs", file_system_of(Path("/dev")))
    assert isinstance(reserves_space(tmp_path), bool)
    assert list(tmp_path.iterdir()) == []
    assert reserves_space(Path("/dev/shm"))


# --- cluster --------------------------------------------------------------------------------------------------------


def test_the_time_of_a_broker_is_its_boot_time_plus_its_uptime() -> None:
    table = {"bootTimestamp": "1000000", "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"}
    assert broker_time_s(Runtime(table=table)) == 1000 + 93_784 + 0.5
    assert broker_time_s(Runtime(table={})) is None


@pytest.mark.parametrize(
    ("capacity", "file_bytes", "expected"),
    [
        ("Total : 2.0 GiB, Free : 0.9 GiB.", "1073741824", True),
        ("Total : 2.0 GiB, Free : 1.5 GiB.", "1073741824", False),
        ("Total : 8.0 MiB, Free : 512 KiB.", "1048576", True),
        ("Total : 8.0 MiB, Free : 512 B.", "256", False),
        ("nobody knows", "1073741824", False),
        ("Total : 2.0 GiB, Free : 0.0 GiB.", "", False),
    ],
)
def test_a_disk_without_room_for_a_log_file_is_detected(capacity: str, file_bytes: str, expected: bool) -> None:
    runtime = Runtime(table={"commitLogDirCapacity": capacity})
    assert is_too_small(runtime, {"mappedFileSizeCommitLog": file_bytes}) is expected


def test_no_color_disables_colours() -> None:
    nobody = CommandLine("127.0.0.1:1", variables={"NO_COLOR": "1"})
    assert "\x1b[" not in nobody.on_terminal("doctor", *QUICK).out
    assert "\x1b[" in CommandLine("127.0.0.1:1").on_terminal("doctor", *QUICK).out


def test_a_registered_broker_that_does_not_respond_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """A slave whose process hangs: its connection to the nameserver is open, and nobody listens at its address."""
    with socket.socket() as silent, running_broker() as broker, calls_to(broker) as slave:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with calls_to(broker) as master:
            master.call(broker.namesrv, registration("lonely", broker="pair", address="127.0.0.1:1"))
            slave.call(broker.namesrv, registration("lonely", broker="pair", address=address, broker_id=1))
        while 0 in slave.call(broker.namesrv, GetCluster()).body.broker_addr_table["pair"].broker_addrs:
            sleep(0.01)  # until the nameserver has noticed that the master's connection is closed
        status, checks = found(capsys, broker.namesrv)
    assert status == 1
    assert any(address in row["found"] and row["verdict"] == "failure" for row in checks["brokers"])
    (row,) = checks["masters"]
    assert row["found"] == "broker pair has no master; topics on no other broker: lonely"


def calls_to(broker: BrokerForTests) -> closing[Calls]:
    return closing(Calls(ClientSettings(nameservers=broker.namesrv)))


@dataclass
class GivesUp:
    topic: str
    group: str

    async def handle(self, message: Received) -> Retry:
        return Retry(delay_level=-1)


@pytest.fixture
async def given_up(shared_broker: BrokerForTests) -> GivesUp:
    """A group with a dead letter, and then with nobody in it and a message to consume."""
    story = GivesUp(fresh("topic"), fresh("group"))
    await shared_broker.aio.create_topic(story.topic, queues=1)
    consumer = PushConsumer(shared_broker.namesrv, group=story.group, start="earliest", handler=story.handle)
    consumer.subscribe(story.topic)
    await shared_broker.aio.send(story.topic, b"letter")
    async with consumer:
        await shared_broker.aio.wait_for_messages(f"%DLQ%{story.group}", 1, timeout_s=HANG_S)
    await shared_broker.aio.send(story.topic, b"nobody reads this")
    return story


async def test_dead_letters_and_a_group_without_members_are_warnings(
    capsys: pytest.CaptureFixture[str], command: CommandLine, given_up: GivesUp
) -> None:
    status, checks = await asyncio.to_thread(found, capsys, command.namesrv)
    assert status == 0
    letters = [row for row in checks["dead letters"] if given_up.group in row["found"]]
    assert verdicts(letters) == {"warning"}
    assert f"ariane dlq show {given_up.group}" in letters[0]["cure"]
    lags = [row for row in checks["lag"] if given_up.group in row["found"]]
    assert verdicts(lags) == {"warning"}
    assert "has no member and 1 messages" in lags[0]["found"]


async def test_members_that_subscribe_differently_are_a_failure(
    capsys: pytest.CaptureFixture[str], shared_broker: BrokerForTests
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await shared_broker.aio.create_topic(topic, queues=2)

    async def consume(message: Received) -> None:
        return None

    one = PushConsumer(shared_broker.namesrv, group=group, handler=consume)
    other = PushConsumer(shared_broker.namesrv, group=group, handler=consume)
    one.subscribe(topic, "paid")
    other.subscribe(topic, "shipped")
    async with one, other:
        status, checks = await asyncio.to_thread(found, capsys, shared_broker.namesrv)
    assert status == 1
    rows = [row for row in checks["subscriptions"] if group in row["found"]]
    assert verdicts(rows) == {"failure"}
    assert topic in rows[0]["found"]
