import asyncio
import re
import sys
from pathlib import Path

import click

from ariane.cli.main import ariane
from tests.broker.brokers import running_cluster
from tests.examples.snippets import ADDRESS, ROOT, blocks

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


async def test_the_python_of_the_readme_sends_and_receives(tmp_path: Path) -> None:
    (async_program, _), (sync_program, _) = blocks("README.md")
    async with running_cluster(tmp_path, auto_create_topics=True) as cluster:
        for program, expected in ((async_program, b"b'two tickets'\n"), (sync_program, b"SEND_OK\n")):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program.replace(ADDRESS, cluster.nameserver), stdout=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(40):
                printed, _ = await process.communicate()
            assert (process.returncode, printed) == (0, expected)


def test_every_command_that_the_readme_runs_exists() -> None:
    lines = re.findall(r"\.venv/bin/ariane ([^\n#]+)", TEXT)
    assert len(lines) == 6
    for line in lines:
        command: click.Command | None = ariane
        for word in line.split():
            if isinstance(command, click.Group) and not word.startswith("-"):
                command = command.commands.get(word)
            else:
                break
        assert command is not None, line


def test_every_file_that_the_readme_and_the_clients_page_name_exists() -> None:
    pages = TEXT + (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tests|docs|examples)/[\w/.]*)`", pages))
    linked = set(re.findall(r"\]\(([\w/.-]+)\)", TEXT))
    assert len(named) > 8
    assert not [name for name in named | linked if not (ROOT / name).exists()]
