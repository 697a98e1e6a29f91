"""The README: its programs and shell blocks are run, and all commands and files in it exist."""

import asyncio
import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from ariane.cli.learn.command import parse_lesson
from ariane.cli.learn.sandbox import sandbox
from ariane.cli.main import ariane
from tests.broker.brokers import running_cluster
from tests.examples.named_commands import named_commands, problem_of
from tests.examples.snippets import ADDRESS, ROOT, blocks

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


async def test_the_python_of_the_readme_sends_and_receives(tmp_path: Path) -> None:
    """Its Spark is run in tests/spark/test_readme_snippets.py, where there is a session."""
    blocking, awaiting, _ = (program for program, _ in blocks("README.md"))
    async with running_cluster(tmp_path, auto_create_topics=True) as cluster:
        assert await _printed(blocking, cluster.nameserver) == "b'two tickets'\n"
        assert await _printed(awaiting, cluster.nameserver) == "b'two tickets' paid\n"


async def _printed(program: str, nameserver: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", program.replace(ADDRESS, nameserver)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        printed, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return printed.decode()


def test_the_shell_blocks_of_the_readme_do_what_they_say() -> None:
    scripts = parse_lesson(0, "readme", TEXT).commands
    assert len(scripts) == 2
    with redirect_stdout(io.StringIO()), sandbox() as room:
        for commands in scripts:
            assert room.run(commands.script) == commands.exit_status, commands.script


def test_every_command_that_the_readme_names_exists() -> None:
    named = named_commands(TEXT)
    assert len(named) > 5
    assert not [fault for fault in map(problem_of, named) if fault is not None]


def test_every_make_target_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", TEXT, re.MULTILINE))
    assert {"demo", "test", "install"} <= named <= targets


def test_the_readme_names_every_command_there_is() -> None:
    row = re.search(r"^\| shell \|.*", TEXT, re.MULTILINE)
    assert row is not None
    assert set(ariane.list_commands(click.Context(ariane))) - set(re.findall(r"`([a-z]+)`", row[0])) == {
        "admin",
        "namesrv",
    }


def test_every_file_that_the_readme_and_the_pages_of_clients_and_promises_name_exists() -> None:
    pages = TEXT + "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("client.md", "promises.md"))
    named = set(re.findall(r"`((?:tests|docs|examples)/[\w/.]*)`", pages))
    linked = set(re.findall(r"\]\(([\w/.-]+)\)", TEXT))
    assert len(named) > 8
    assert not [name for name in named | linked if not (ROOT / name).exists()]
