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

import fcntl
import json
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ariane.errors import SettingsError, StoreInUse, sole_cause
from ariane.model.address import Address

if TYPE_CHECKING:
    from ariane.client.settings import ClientSettings
    from ariane.settings import LoadedSettings


# --- address file of `ariane up` ---
#
# A running `ariane up` writes its address to DATA/up.json, so that commands in the same directory need no `-n`. It
# locks the file while it runs. The lock ends with the process, even after a crash, so a stale file is never taken for
# a running server.

DATA = Path(".ariane")
"""Default data directory of `ariane up`, where clients look for a running one."""

_NAME = "up.json"
_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Notice:
    _descriptor: int

    def publish(self, namesrv: str, brokers: Iterable[Mapping[str, object]] = ()) -> None:
        """Writes through the locked descriptor: closing any other descriptor of the file would drop the lock."""
        text = json.dumps({"namesrv": namesrv, "pid": os.getpid(), "brokers": list(brokers)}) + "\n"
        os.pwrite(self._descriptor, text.encode(), 0)


@contextmanager
def locked_notice(directory: Path) -> Iterator[Notice]:
    """The address file of `directory`, locked by this process and removed on exit. StoreInUse if another holds it."""
    path = directory / _NAME
    descriptor = _open(path)
    try:
        _lock(descriptor, directory)
        os.ftruncate(descriptor, 0)
        try:
            yield Notice(descriptor)
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)  # and with it the lock


def find_running_up(directory: Path) -> str | None:
    """The nameserver address of the `ariane up` that runs on `directory` now."""
    from ariane.store.lock import lock_holder

    path = directory / _NAME
    if lock_holder(path) is None:
        return None
    try:
        with path.open("rb") as file:
            notice = json.loads(file.read(_BYTES_MAX))
        return str(Address.parse(notice["namesrv"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # not written yet, or by another program
        return None


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(
            f"cannot use {path.parent} as data directory: {error.strerror}; choose another one with --data"
        ) from error


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        raise StoreInUse(
            f"another `ariane up` runs on {directory}: use it, stop it, or choose another directory with --data"
        ) from error


# --- the connection of a command ---

T = TypeVar("T")

_APACHE_VARIABLE = "NAMESRV_ADDR"
_PROFILE_VARIABLE = "ARIANE_PROFILE"


@dataclass(frozen=True, slots=True)
class Connection:
    settings: "ClientSettings"
    origin: str
    """Where the nameserver address comes from: `flag`, a line of a file, a variable, `ariane up`, `default`."""

    @property
    def namesrv(self) -> str:
        return self.settings.nameservers

    def run(self, work: Callable[["ClientSettings"], Coroutine[Any, Any, T]]) -> T:
        """Runs `work` with these settings and returns its result. Its error is raised outside any exception group.

        Ctrl-C cancels it.
        """
        import asyncio

        import ariane.logs  # noqa: F401 - keeps log warnings out of the command's own output

        try:
            return asyncio.run(work(self.settings))
        except ExceptionGroup as group:
            raise sole_cause(group) from group
        except UnicodeEncodeError as error:  # an argument that is not UTF-8: Python keeps its bytes as lone surrogates
            raise SettingsError(f"{error.object!a} is not UTF-8 text: check the argument and LC_ALL") from error


def connected(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `-n` and `--profile`; the command gets the parameter `connection`."""

    @click.option(
        "-n",
        "--namesrv",
        metavar="HOST:PORT[;HOST:PORT]",
        help="Nameservers of the cluster. Default: the profile's, $NAMESRV_ADDR, those of an `ariane up` running "
        "on ./.ariane, or 127.0.0.1:9876.",
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
    """SettingsError when a name or a file cannot be used; no server is contacted."""
    loaded = _load(profile, environ, namesrv)
    if loaded.file_warning is not None:
        click.echo(f"warning: {loaded.file_warning}", err=True)
    origin = loaded.origins["nameservers"]
    if origin != "default":
        return Connection(loaded.settings, origin)
    if environ.get(_APACHE_VARIABLE):
        return Connection(_load(profile, environ, environ[_APACHE_VARIABLE]).settings, _APACHE_VARIABLE)
    running = find_running_up(DATA)
    if running is not None:
        return Connection(_load(profile, environ, running).settings, "ariane up")
    return Connection(loaded.settings, origin)


def _load(profile: str | None, environ: Mapping[str, str], namesrv: str | None) -> "LoadedSettings[ClientSettings]":
    from ariane.client.settings import ClientSettings
    from ariane.settings import load

    file = _profile_file(profile, environ) if profile else None
    flags = {"nameservers": namesrv}
    return load(ClientSettings, section="client", file=file, environ=environ, flags=flags, unsupported={})


def _profile_file(name: str, environ: Mapping[str, str]) -> Path:
    if not name.replace("-", "").replace("_", "").isalnum():
        raise SettingsError(f"invalid profile name {name!r}: use letters, digits, '-' and '_'")
    home = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    file = Path(home) / "ariane" / f"{name}.toml"
    try:
        file.stat()
    except FileNotFoundError:
        existing = ", ".join(sorted(path.stem for path in file.parent.glob("*.toml"))) or "none"
        raise SettingsError(f"profile {name} does not exist: create {file} (existing profiles: {existing})") from None
    except OSError:
        pass  # reading the file reports the reason
    return file
