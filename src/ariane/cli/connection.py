"""Which cluster a command talks to: `-n`, a profile, $NAMESRV_ADDR, a running `ariane up`, or this machine.

    @click.command()
    @connected
    def list_topics(connection: Connection) -> None:
        connection.run(lambda settings: ...)

A profile is a settings file, `~/.config/ariane/NAME.toml`, with what its cluster needs in the table `[client]`:

    [client]
    nameservers = "10.0.0.1:9876;10.0.0.2:9876"
    access_key = "operator"
    secret_key = "..."
"""

import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ariane.cli.up_notice import DATA, find_notice
from ariane.errors import SettingsError, sole_cause

if TYPE_CHECKING:
    from ariane.client.settings import ClientSettings
    from ariane.settings import Loaded

T = TypeVar("T")

_APACHE_VARIABLE = "NAMESRV_ADDR"
_PROFILE_VARIABLE = "ARIANE_PROFILE"


@dataclass(frozen=True, slots=True)
class Connection:
    settings: "ClientSettings"
    origin: str
    """Who named the nameserver: `flag`, a file's line, a variable, `ariane up`, `default`."""

    @property
    def namesrv(self) -> str:
        return self.settings.nameservers

    def run(self, work: Callable[["ClientSettings"], Coroutine[Any, Any, T]]) -> T:
        """The result of `work`, run with these settings; its error as itself, not in a task group's wrapping.

        Ctrl-C cancels it.
        """
        import asyncio

        import ariane.logs  # noqa: F401 - so that warnings are not printed beside what the command itself tells

        try:
            return asyncio.run(work(self.settings))
        except ExceptionGroup as group:
            raise sole_cause(group) from group
        except UnicodeEncodeError as error:  # the bytes of an argument, kept by Python as halves of surrogate pairs
            raise SettingsError(f"{error.object!a} is no UTF-8 text: check what was typed, and LC_ALL") from error


def connected(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-n` and `--profile`, handed to the command as `connection`."""

    @click.option(
        "-n",
        "--namesrv",
        metavar="HOST:PORT[;HOST:PORT]",
        help="Nameservers of the cluster. Without it: the profile's, $NAMESRV_ADDR, those of an `ariane up` that runs "
        "on ./.ariane, 127.0.0.1:9876.",
    )
    @click.option(
        "--profile",
        metavar="NAME",
        envvar=_PROFILE_VARIABLE,
        help="Settings of a cluster, from ~/.config/ariane/NAME.toml (or $ARIANE_PROFILE).",
    )
    @wraps(command)
    def with_connection(namesrv: str | None, profile: str | None, **options: Any) -> Any:
        return command(connection=find_connection(namesrv, profile, os.environ), **options)

    return with_connection


def find_connection(namesrv: str | None, profile: str | None, environ: Mapping[str, str]) -> Connection:
    """SettingsError when a name or a file cannot be used; nobody is contacted."""
    loaded = _load(profile, environ, namesrv)
    origin = loaded.origins["nameservers"]
    if origin != "default":
        return Connection(loaded.settings, origin)
    if environ.get(_APACHE_VARIABLE):
        return Connection(_load(profile, environ, environ[_APACHE_VARIABLE]).settings, _APACHE_VARIABLE)
    running = find_notice(DATA)
    if running is not None:
        return Connection(_load(profile, environ, running).settings, "ariane up")
    return Connection(loaded.settings, origin)


def _load(profile: str | None, environ: Mapping[str, str], namesrv: str | None) -> "Loaded[ClientSettings]":
    from ariane.client.settings import ClientSettings
    from ariane.settings import load

    file = _profile_file(profile, environ) if profile else None
    flags = {"nameservers": namesrv}
    return load(ClientSettings, section="client", file=file, environ=environ, flags=flags, unsupported={})


def _profile_file(name: str, environ: Mapping[str, str]) -> Path:
    if not name.replace("-", "").replace("_", "").isalnum():
        raise SettingsError(f"profile {name!r}: a name has letters, digits, '-' and '_'")
    home = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    file = Path(home) / "ariane" / f"{name}.toml"
    try:
        file.stat()
    except FileNotFoundError:
        known = ", ".join(sorted(path.stem for path in file.parent.glob("*.toml"))) or "none"
        raise SettingsError(f"there is no profile {name}: write {file} (profiles there: {known})") from None
    except OSError:
        pass  # whoever reads it tells why that cannot be
    return file
