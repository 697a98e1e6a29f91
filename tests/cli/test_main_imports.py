"""Which modules a command imports. The interpreter lists them; nothing is measured."""

import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ariane.cli.main import ariane, main
from ariane.cli.servers.garbage_collector import collector_disabled, enable_collector
from tests.testing.commands import COMMAND, ENVIRONMENT, HANG_S, READY, SMALL

HEAVY = {
    "deltalake",
    "duckdb",
    "grpc",
    "hypothesis",
    "pandas",
    "pyarrow",
    "pyiceberg",
    "py4j",
    "pyspark",
    "pytest",
    "rich",
    "sphinx",
}
FOR_SOME_BROKERS = {
    "ariane.broker.pull.sql92": "the first SQL subscription",
    "ariane.client": "a client",
    "ariane.spark": "Spark",
    "ariane.sql": "queries",
    "lz4": "the first lz4 body",
    "prometheus_client": "the first scrape",
    "yaml": "access control",
    "zstandard": "the first zstd body",
}


def imported(err: str) -> set[str]:
    """The modules that PYTHONPROFILEIMPORTTIME names on stderr, and the packages that they are in."""
    names = re.findall(r"^import time:.*\| +(\S+)$", err, re.MULTILINE)
    return {".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2)}


def modules_of(*words: str) -> set[str]:
    variables = ENVIRONMENT | {"PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run([*COMMAND, *words], env=variables, capture_output=True, text=True, timeout=HANG_S, check=True)
    modules = imported(done.stderr)
    assert "ariane.cli.main" in modules
    return modules


def test_the_help_imports_neither_servers_nor_clients() -> None:
    assert not modules_of("--help") & {
        *HEAVY,
        "asyncio",
        "numpy",
        "ariane.broker",
        "ariane.client",
        "ariane.nameserver",
    }


@pytest.mark.parametrize("name", ["send", "topic", "up"])
def test_a_command_imports_no_other_command(name: str) -> None:
    others = {f"ariane.cli.{other}" for other in ("bench", "doctor", "learn", "sql", "store", "send", "up")}
    modules = modules_of(name, "--help")
    assert not modules & ((others - {f"ariane.cli.{name}"}) | HEAVY | {"numpy"})


def test_a_broker_is_ready_without_what_only_some_brokers_need(tmp_path: Path) -> None:
    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            [*COMMAND, "up", "--tmp", "--port", "0", "--broker-port", "0"],
            env=ENVIRONMENT | SMALL | {"PYTHONPROFILEIMPORTTIME": "1", "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert READY.fullmatch(process.stdout.readline())
            process.terminate()
            process.communicate(timeout=HANG_S)
        finally:
            process.kill()
            process.wait()
    modules = imported((tmp_path / "err").read_text())
    assert "ariane.broker.server" in modules
    assert not modules & (HEAVY | FOR_SOME_BROKERS.keys())


def test_the_parent_of_broker_processes_imports_no_broker() -> None:
    program = "import sys, ariane.cli.up.run; sys.exit('ariane.broker.server' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, timeout=HANG_S).returncode == 0


def test_an_unknown_command_is_reported_with_a_similar_one() -> None:
    program = "import sys; from ariane.cli.main import main; sys.exit(main(['nmesrv']))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 2
    assert "'nmesrv'" in done.stderr


def test_every_command_is_in_the_module_that_the_root_names() -> None:
    context = click.Context(ariane, info_name="ariane")
    names = ariane.list_commands(context)
    assert {"up", "send", "topic", "broker"} <= set(names)
    assert [command.name for name in names if (command := ariane.get_command(context, name))] == names


@pytest.fixture
def collector() -> Iterator[None]:
    """As it was, whatever a test does to it."""
    before = gc.get_threshold()
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collector")
def test_the_collector_is_disabled_until_the_server_is_ready() -> None:
    with collector_disabled():
        assert not gc.isenabled()
        enable_collector()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        assert gc.get_count()[0] < gc.get_threshold()[0]


@pytest.mark.usefixtures("collector")
def test_a_failed_start_leaves_the_collector_enabled(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["broker", "-c", str(tmp_path / "missing.conf")]) == 2
    assert "missing.conf" in capsys.readouterr().err
    assert gc.isenabled()
