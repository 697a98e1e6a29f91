"""Every command tells how it is used, and docs/cli.md tells it too."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ariane.cli.main import ariane

ROOT = Path(__file__).parents[2]


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


OURS = [
    (path, command)
    for path, command in commands(ariane, "ariane")
    if path.split()[1] in {"topic", "group", "msg", "dlq", "cluster", "broker", "admin"}
]


def test_the_page_of_commands_is_up_to_date() -> None:
    script = ROOT / "scripts" / "cli_docs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("path", "command"), OURS, ids=[path for path, _ in OURS])
def test_every_command_has_an_example_and_a_word_on_each_option(path: str, command: click.Command) -> None:
    assert f"  {path}" in (command.help or "")
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


def test_the_help_of_one_group_does_not_import_what_the_others_need() -> None:
    code = "import sys, ariane.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncio", "ariane.client.admin", "ariane.cli.topics"} & set(done.stdout.split())
