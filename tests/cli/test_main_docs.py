"""Every command has help, and docs/cli.md has it too."""

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
def test_every_command_has_an_example_and_help_for_each_option(path: str, command: click.Command) -> None:
    assert f"  {path}" in (command.help or "")
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


def test_no_short_help_is_truncated_on_80_columns() -> None:
    groups = [
        command
        for path, command in commands(ariane, "ariane")
        if isinstance(command, click.Group) and path != "ariane admin"
    ]
    assert len(groups) > 8
    for group in groups:
        listed = group.list_commands(context := click.Context(group))
        room = 80 - 6 - max(map(len, listed))  # as click counts
        shown = [one.get_short_help_str(room) for name in listed if (one := group.get_command(context, name))]
        assert not [line for line in shown if line.endswith("...")]


def test_the_help_of_one_group_does_not_import_what_the_others_need() -> None:
    code = "import sys, ariane.cli.main as cli; cli.main(['group', '--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"ariane.cli.topic", "ariane.cli.msg.command"} & set(done.stdout.split())
