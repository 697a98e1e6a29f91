"""`ariane broker` as its users run it: a process, its signals, its two streams and its exit status."""

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import ariane
from ariane.broker.settings import BrokerSettings
from ariane.broker.settings.rocketmq_keys import UNSUPPORTED
from ariane.cli.main import main
from ariane.settings import load
from ariane.wire.requests.send import SendMessage
from ariane.wire.requests.topics import GetRoute, GetTopicStats, UpdateTopic
from tests.nameserver.servers import caller, nameserver

HANG_S = 60  # only a hang is this long; nothing here is measured
READY = re.compile(r"ariane broker ready on (\S+:\d+) \(pid (\d+)\)\n")
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith("ARIANE_") and name != "NAMESRV_ADDR"
} | {"PYTHONPATH": str(Path(ariane.__file__).parents[1])}
SMALL = {"ARIANE_BROKER__STORE__SEGMENT_BYTES": "8388608", "ARIANE_BROKER__STORE__INDEX_ENTRIES": "4000"}

Process = asyncio.subprocess.Process


@asynccontextmanager
async def started(*arguments: str, cwd: Path, **variables: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "ariane", "broker", *arguments),
        cwd=cwd,
        env=ENVIRONMENT | SMALL | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(HANG_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def address_of(process: Process) -> str:
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    match = READY.fullmatch(line)
    assert match, (line, await process.communicate())
    assert int(match[2]) == process.pid
    return match[1]


async def outcome(*arguments: str, cwd: Path, **variables: str) -> tuple[int | None, str]:
    """Exit status and stderr of a run that ends by itself, with nothing on stdout."""
    async with started(*arguments, cwd=cwd, **variables) as process:
        out, err = await process.communicate()
        assert out == b""
        return process.returncode, err.decode()


def message(body: bytes) -> SendMessage:
    return SendMessage(
        producer_group="producers",
        topic="orders",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="",
        body=body,
    )


ORDERS = UpdateTopic(
    topic="orders",
    default_topic="TBW102",
    read_queue_nums=1,
    write_queue_nums=1,
    perm=6,
    topic_filter_type="SINGLE_TAG",
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_registers_serves_and_stops_cleanly_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    async with nameserver() as names, caller() as client:
        flags = ("--listen", "127.0.0.1:0", "-n", names, "--store", "here", "--advertise", "127.0.0.1:4711")
        async with started(*flags, cwd=tmp_path) as process:
            await client.call(await address_of(process), ORDERS)
            route = (await client.call(names, GetRoute("SELF_TEST_TOPIC"))).body
            assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:4711"}
            process.send_signal(number)
            out, _ = await process.communicate()
            assert (process.returncode, out) == (0, b"")
    assert (tmp_path / "here" / "config" / "topics.json").exists()
    assert not (tmp_path / "here" / "abort").exists()


async def test_acknowledged_messages_survive_kill_9(tmp_path: Path) -> None:
    async with caller() as client:
        async with started("--listen", "127.0.0.1:0", cwd=tmp_path) as process:
            address = await address_of(process)
            await client.call(address, ORDERS)
            for number in range(50):
                await client.call(address, message(b"%d" % number))
            process.kill()
            await process.wait()
        async with started("--listen", "127.0.0.1:0", cwd=tmp_path) as process:
            address = await address_of(process)
            (offsets,) = (await client.call(address, GetTopicStats("orders"))).body.offset_table.values()
            assert offsets.max_offset == 50


async def test_the_variable_of_apache_names_the_nameservers(tmp_path: Path) -> None:
    async with nameserver() as names, caller() as client:
        async with started("--listen", "127.0.0.1:0", cwd=tmp_path, NAMESRV_ADDR=names) as process:
            await address_of(process)
            assert (await client.call(names, GetRoute("SELF_TEST_TOPIC"))).body.broker_datas


async def test_a_store_in_use_ends_with_1_and_one_line(tmp_path: Path) -> None:
    async with started("--listen", "127.0.0.1:0", cwd=tmp_path) as process:
        await address_of(process)
        status, err = await outcome("--listen", "127.0.0.1:0", "--log-level", "error", cwd=tmp_path)
    assert status == 1
    assert err.startswith("error: ")
    assert "in use by another broker" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("distance", [0, 2])
async def test_a_port_or_vip_port_in_use_ends_with_3_and_a_hint(tmp_path: Path, distance: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] + distance
        status, err = await outcome("--listen", f"127.0.0.1:{port}", "--log-level", "error", cwd=tmp_path)
    assert status == 3
    assert err.count("\n") == 1
    assert "--listen" in err
    assert ("VIP" in err) == bool(distance)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("brokerip1=10.0.0.1\n", "did you mean 'brokerIP1'?"),
        ("listenPort=high\n", "expected a whole number"),
        ("brokerRole=SLAVE\n", "brokerId above 0"),
        ("namesrvAddr=nowhere\n", "HOST:PORT expected"),
        ("brokerIP1=0.0.0.0\nlistenPort=0\n", "--advertise"),
        ("brokerIP1=nothing here\nlistenPort=0\n", "neither an IP address nor a name"),
        ("messageDelayLevel=soon\nlistenPort=0\n", "messageDelayLevel"),
        ("deleteWhen=99\nlistenPort=0\n", "deleteWhen"),
        ("aclEnable=true\nlistenPort=0\n", "plain_acl.yml"),
    ],
)
async def test_a_bad_broker_conf_ends_with_2_and_a_hint(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "broker.conf").write_text(text)
    status, error = await outcome("-c", "broker.conf", "--log-level", "error", cwd=tmp_path)
    assert (status, error.count("\n")) == (2, 1)
    assert error.startswith("error: ")
    assert expected in error


@pytest.mark.parametrize("text", ["127.0.0.1:x", "host:99999", "[::1"])
def test_a_bad_advertised_address_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--advertise", text]) == 2
    assert "--advertise" in capsys.readouterr().err


def test_the_printed_configuration_can_be_loaded_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=b\nfileReservedTime=48\ntls.server.keyPassword=hunter2\nhaListenPort=1\n")
    assert main(["broker", "-c", str(conf), "--advertise", "::1", "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert "hunter2" not in printed
    again = tmp_path / "again.toml"
    again.write_text(printed)
    settings = load(
        BrokerSettings, section="broker", file=again, environ={}, flags={}, unsupported=UNSUPPORTED
    ).settings
    assert (settings.name, settings.store.retention_hours, settings.advertised_host) == ("b", 48, "::1")


def test_m_prints_only_settings_that_were_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=b\nfileReservedTime=48\nnamesrvAddr=127.0.0.1:9876\n")
    assert main(["broker", "-c", str(conf), "-m"]) == 0
    assert capsys.readouterr().out == (
        '[broker]\nname = "b"\nnamesrv_addr = "127.0.0.1:9876"\n\n[broker.store]\nretention_hours = 48\n'
    )
