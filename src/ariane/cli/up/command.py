"""`ariane up`: runs a nameserver and brokers with one command, for trying out and for development."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ariane.cli.common.connection import DATA, locked_notice
from ariane.cli.servers.command import insecure_option
from ariane.cli.servers.garbage_collector import collector_disabled
from ariane.errors import SettingsError
from ariane.logs import LogForm, configure

if TYPE_CHECKING:
    from ariane.broker.settings import BrokerSettings
    from ariane.nameserver.settings import NameserverSettings


BROKERS_MAX = 16
SLAVE = "-slave"
"""Behind a broker's name: the directory of its slave."""
_PORT_DISTANCE = 10  # each broker also listens on its own port minus two, and a master on its own plus one
_SLAVE_PORT_DISTANCE = 5
_SLAVE_ID = 1
_PORT_MAX = 65_535
_AUTO_CREATE = {"ARIANE_BROKER__AUTO_CREATE_TOPICS": "true"}
"""The first send creates a topic, so that trying things out needs no preparation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpPlan:
    """Names, ports and directories of the servers to start."""

    data: Path
    port: int
    broker_port: int
    brokers: int = 1
    replication: str | None = None
    """`sync` or `async` when each broker has a slave."""
    insecure: bool | None = None

    def __post_init__(self) -> None:
        last = self.broker_port + (self.brokers - 1) * _PORT_DISTANCE
        last += _SLAVE_PORT_DISTANCE if self.has_slaves else 0
        if last > _PORT_MAX:
            brokers = f"{self.brokers} brokers" + (" and their slaves" if self.has_slaves else "")
            raise SettingsError(f"{brokers} from port {self.broker_port} on need port {last}: lower --broker-port")

    @property
    def has_slaves(self) -> bool:
        return self.replication is not None

    @property
    def names(self) -> list[str]:
        return [f"broker-{letter}" for letter in "abcdefghijklmnop"[: self.brokers]]

    def idle(self, suffix: str = "") -> list[str]:
        """Brokers, or with SLAVE slaves, that have data here and are not started this time."""
        stores = sorted(path.name for path in self.data.glob(f"broker-?{suffix}") if (path / "commitlog").is_dir())
        running = [name + suffix for name in self.names if self.has_slaves or not suffix]
        return [name for name in stores if name not in running]

    def master_flags(self, namesrv: str) -> dict[str, dict[str, object]]:
        """By the name of the process."""
        role = {} if self.replication is None else {"role": f"{self.replication.upper()}_MASTER"}
        return {name: self._flags(name, 0, namesrv) | role for name in self.names}

    def slave_flags(self, namesrv: str) -> dict[str, dict[str, object]]:
        role = {"role": "SLAVE", "broker_id": _SLAVE_ID}
        names = self.names if self.has_slaves else ()
        return {name + SLAVE: self._flags(name, _SLAVE_PORT_DISTANCE, namesrv, SLAVE) | role for name in names}

    def _flags(self, name: str, distance: int, namesrv: str, suffix: str = "") -> dict[str, object]:
        distance += self.names.index(name) * _PORT_DISTANCE
        return {
            "name": name,
            "port": self.broker_port + distance if self.broker_port else 0,
            "namesrv_addr": namesrv,
            "store.root": str(self.data / (name + suffix)),
            "insecure": self.insecure,
        }

    def nameserver(self, environ: Mapping[str, str]) -> "NameserverSettings":
        from ariane.nameserver.settings import NameserverSettings
        from ariane.settings import load

        kv_config = str(self.data / "namesrv" / "kvConfig.json")
        flags = {"port": self.port, "kv_config_path": kv_config, "insecure": self.insecure}
        return load(
            NameserverSettings, section="nameserver", file=None, environ=environ, flags=flags, unsupported={}
        ).settings


def up_broker_settings(flags: Mapping[str, object], environ: Mapping[str, str]) -> "BrokerSettings":
    from ariane.cli.config.load import load_broker_settings

    return load_broker_settings(None, {**_AUTO_CREATE, **environ}, flags).settings


_PORT = click.IntRange(0, 65_535)


@click.command(short_help="Run a nameserver and a broker here, until Ctrl-C.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=DATA,
    show_default=True,
    metavar="DIR",
    help="Directory for messages and settings.",
)
@click.option("--tmp", is_flag=True, help="Use a temporary directory instead of --data, and delete it at the end.")
@click.option("--port", type=_PORT, default=9876, show_default=True, help="Port of the nameserver; 0 for a free one.")
@click.option(
    "--broker-port",
    type=_PORT,
    default=10911,
    show_default=True,
    help="Port of the first broker, which also listens on port-2 and port+1; its slave uses port+5, the next broker "
    "port+10. 0 for free ones.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, BROKERS_MAX),
    default=1,
    show_default=True,
    help="Number of brokers; if more than one, each is a separate process.",
)
@click.option(
    "--slave",
    is_flag=True,
    help="Give each broker a slave: a second process with a copy of all messages, which consumers read from when the "
    "broker is down.",
)
@click.option(
    "--replication",
    type=click.Choice(["sync", "async"]),
    default="sync",
    show_default=True,
    help="With --slave: whether a send is acknowledged when the slave has the message, too (SYNC_MASTER), or at once "
    "(ASYNC_MASTER).",
)
@click.option(
    "--demo", is_flag=True, help="Send a stream of sample orders, 1 % of them malformed, to the topic `orders`."
)
@click.option(
    "--demo-rate",
    type=click.FloatRange(min=0.01, max=100_000),
    default=20.0,
    show_default=True,
    metavar="N",
    help="With --demo: events a second.",
)
@insecure_option
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="Lowest level to log, on stderr.",
)
@collector_disabled()
def up(
    data: Path,
    tmp: bool,
    port: int,
    broker_port: int,
    brokers: int,
    slave: bool,
    replication: str,
    demo: bool,
    demo_rate: float,
    insecure: bool | None,
    log_level: str,
) -> None:
    """Run a nameserver and a broker in the foreground until Ctrl-C: all that you need to try Ariane.

    The first send creates a topic. Other commands in this directory find these servers without -n. The first line on
    stdout says that all servers are ready; then come their addresses and what to try next. To run servers in
    production, see `ariane namesrv` and `ariane broker`.

    \b
    Examples:
      ariane up
      ariane up --tmp --demo
      ariane up --data shop --brokers 3
      ariane up --slave
    """
    from ariane.cli.servers.run import run_server
    from ariane.cli.up.run import Session

    if not slave and _is_given("replication"):
        raise SettingsError("--replication says how a slave follows: add --slave")
    configure(log_level, LogForm.TEXT, sys.stderr)
    with _directory(data, tmp) as directory, locked_notice(directory) as notice:
        plan = UpPlan(
            data=directory,
            port=port,
            broker_port=broker_port,
            brokers=brokers,
            replication=replication if slave else None,
            insecure=insecure,
        )
        session = Session(plan, notice, demo_rate if demo else None, log_level)
        run_server("up", session.serve)


def _is_given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


@contextmanager
def _directory(data: Path, tmp: bool) -> Iterator[Path]:
    if not tmp:
        yield data
        return
    directory = Path(tempfile.mkdtemp(prefix="ariane-up-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
