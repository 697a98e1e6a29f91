"""Finds commands in `console` blocks and backticks of a page, and checks that they exist with their options."""

import re
import shlex

import click

from ariane.cli.main import ariane

_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_BEGINS = re.compile(r"(?:\w+=\w+ )?ariane (?=[a-z])")


def named_commands(page: str) -> list[str]:
    """The arguments after `ariane`. Not from `sh` blocks, which other tests run."""
    shown = [line for block in _CONSOLE.findall(page) for line in block.splitlines()]
    quoted = re.findall(r"`([^`\n]+)`", _FENCED.sub("", page))
    commands = [(command, _BEGINS.match(command)) for command in [*shown, *quoted]]
    return [command[begins.end() :].split(" #")[0] for command, begins in commands if begins is not None]


def problem_of(line: str) -> str | None:
    """Why the command is invalid; None if it is valid. Words in capitals are placeholders."""
    command: click.Command = ariane
    words = shlex.split(line)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return None if words[0].isupper() else f"`ariane {line}`: there is no {words[0]}"
        command, words = found, words[1:]
    known = {name for parameter in command.params for name in parameter.opts}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word not in known]
    return f"`ariane {line}`: no such option: {unknown}" if unknown else None
