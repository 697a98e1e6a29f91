"""The group `ariane`: of all commands it imports the one that was typed, so that a script waits for no other."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class Root(click.Group):
    """Only the root's own help and completion import them all; and a name that is none, to suggest a similar one."""

    def __init__(self, *arguments: Any, homes: Mapping[str, str], **attributes: Any) -> None:
        """`homes`: from the name of a command to the module that has it under that name."""
        super().__init__(*arguments, **attributes)
        self._homes = homes

    def list_commands(self, context: click.Context) -> list[str]:
        self._load(*self._homes)
        return super().list_commands(context)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        self._load(*([name] if name in self._homes else self._homes))
        return super().get_command(context, name)

    def _load(self, *names: str) -> None:
        for name in names:
            if name not in self.commands:
                self.add_command(getattr(import_module(self._homes[name]), name), name)
