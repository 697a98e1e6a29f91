"""`ariane namesrv` as its users run it: a process, its signals, its two streams and its exit status."""

import asyncio
import json
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
from ariane.cli.main import main
from ariane.nameserver.settings import NameserverSettings
from ariane.settings import load

HANG_S = 30  # only a hang is this long; nothing here is measured
READY = re.compile(r"ariane namesrv ready on (\S+):(\d+) \(pid (\d+)\)\n")
# The source tree under test, whether it is installed or not, and no settings of the user who runs the tests.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("ARIANE_")} | {
    "PYTHONPATH": str(Path(ariane.__file__).parents[1])
}

Process = asyncio.subprocess.Process


@asynccontextmanager
async def started(*arguments: str, cwd: Path, **variables: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "ariane", "namesrv", *arguments),
        cwd=cwd,
        env=ENVIRONMENT | variables,
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


async def ready_line(process: Process) -> re.Match[str]:
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    match = READY.fullmatch(line)
    assert match, line
    return match


async def outcome(*arguments: str, cwd: Path, **variables: str) -> tuple[int | None, str]:
    """Exit status and stderr of a run that ends by itself, with nothing on stdout."""
    async with started(*arguments, cwd=cwd, **variables) as process:
        out, err = await process.communicate()
        assert out == b""
        return process.returncode, err.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_reports_that_it_is_ready_and_stops_cleanly_on_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with started("--listen", "127.0.0.1:0", cwd=tmp_path) as process:
        host, port, pid = (await ready_line(process)).groups()
        assert host == "127.0.0.1"
        assert int(pid) == process.pid
        _, writer = await asyncio.open_connection(host, int(port))
        process.send_signal(number)
        out, _ = await process.communicate()
        assert process.returncode == 0
        assert out == b""  # the ready line was the only one
        writer.close()
        await writer.wait_closed()


async def test_only_the_port_is_changed_when_no_host_is_given(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[nameserver]\nhost = "127.0.0.2"\nport = 1\n')
    async with started("-c", "a.toml", "--listen", ":0", cwd=tmp_path) as process:
        assert (await ready_line(process))[1] == "127.0.0.2"


async def test_an_unused_key_is_logged(tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text("listenPort=0\nserverWorkerThreads=8\nrocketmqHome=/opt/rocketmq\n")
    async with started("-c", "namesrv.conf", "--log-format", "json", cwd=tmp_path) as process:
        await ready_line(process)
        process.send_signal(signal.SIGTERM)
        _, err = await process.communicate()
    warnings = [line for line in map(json.loads, err.decode().splitlines()) if line["level"] == "WARNING"]
    assert [line["event"] for line in warnings] == ["setting ignored", "setting ignored"]
    assert warnings[0]["setting"].startswith("namesrv.conf:2: serverWorkerThreads is not used: ")


async def test_a_misspelt_key_in_namesrv_conf_ends_with_2_and_a_similar_key(tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text("# ours\nlistenprot=9876\n")
    assert await outcome("-c", "namesrv.conf", cwd=tmp_path) == (
        2,
        "error: namesrv.conf:2: unknown key 'listenprot', did you mean 'listenPort'?\n",
    )


async def test_a_misspelt_key_in_toml_ends_with_2_and_a_similar_key(tmp_path: Path) -> None:
    (tmp_path / "ariane.toml").write_text("[nameserver.transport]\nidle_timout_s = 5\n")
    assert await outcome("-c", "ariane.toml", cwd=tmp_path) == (
        2,
        "error: ariane.toml:2: unknown key 'transport.idle_timout_s', did you mean 'transport.idle_timeout_s'?\n",
    )


async def test_a_misspelt_variable_ends_with_2_and_a_similar_one(tmp_path: Path) -> None:
    status, err = await outcome(cwd=tmp_path, ARIANE_NAMESERVER__PROT="1")
    assert status == 2
    assert err == "error: unknown variable 'ARIANE_NAMESERVER__PROT', did you mean ARIANE_NAMESERVER__PORT?\n"


async def test_a_missing_file_ends_with_2(tmp_path: Path) -> None:
    err = "error: none.conf: cannot read this settings file: No such file or directory\n"
    assert await outcome("-c", "none.conf", cwd=tmp_path) == (2, err)


async def test_a_port_in_use_ends_with_3_and_a_hint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, err = await outcome("--listen", f"127.0.0.1:{port}", cwd=tmp_path)
    assert status == 3
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert f"127.0.0.1:{port}" in err
    assert "--listen" in err


@pytest.mark.parametrize("text", ["9876", "host", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"])
def test_a_bad_listen_address_is_refused_with_an_example(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["namesrv", "--listen", text]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: Invalid value for '--listen': ")
    assert "127.0.0.1:9876" in err
    assert err.count("\n") == 1


def test_the_printed_configuration_can_be_loaded_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text('listenPort=9999\nkvConfigPath=/srv/a "b"\\\\c/kv.json\ntls.server.keyPassword=hunter2\n')
    monkeypatch.setenv("ARIANE_NAMESERVER__TRANSPORT__DRAIN_TIMEOUT_S", "0.25")
    assert main(["namesrv", "-c", str(conf), "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert "hunter2" not in printed

    again = tmp_path / "again.toml"
    again.write_text(printed)
    settings = load(NameserverSettings, section="nameserver", file=again, environ={}, flags={}, unsupported={}).settings
    assert (settings.port, settings.transport.drain_timeout_s) == (9999, 0.25)
    assert settings.kv_config_path == Path('/srv/a "b"\\c/kv.json')
