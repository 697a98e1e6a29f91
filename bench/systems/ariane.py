"""Ariane: a nameserver and one broker or several, each a process, started by its command."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ariane
from bench.load.plan import Wire
from bench.systems.broker_files import SlavesFiles, log_directory, write_settings
from bench.systems.system import Running, Setup, Slave
from interop.apache import BROKER_PORT_OFFSETS
from interop.processes import free_port, running

_READY = "ready on"


@dataclass(frozen=True)
class Ariane:
    brokers: int = 1
    python: str = sys.executable
    wire: Wire = Wire.ROCKETMQ

    @property
    def key(self) -> str:
        return "ariane" if self.brokers == 1 else f"ariane-x{self.brokers}"

    @property
    def name(self) -> str:
        return "Ariane" if self.brokers == 1 else f"Ariane x {self.brokers}"

    def prepare(self) -> str:
        return f"{ariane.__version__}, Python {'.'.join(map(str, sys.version_info[:3]))}"

    @contextmanager
    def start(self, setup: Setup, home: Path) -> Iterator[Running]:
        nameserver = f"127.0.0.1:{free_port()}"
        home.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            began = time.perf_counter()
            words = (self.python, "namesrv", "--listen", nameserver)
            names = stack.enter_context(_command(home / "namesrv.log", *words))
            ports = [free_port(BROKER_PORT_OFFSETS) for _ in range(self.brokers)]
            pids = [stack.enter_context(_broker(self.python, home, nameserver, port, setup)) for port in ports]
            ready_s = time.perf_counter() - began
            start_slave = partial(_slave, self.python, SlavesFiles(home, _name(ports[0]), nameserver, setup), setup)
            yield Running(
                name=self.name,
                wire=self.wire,
                addresses=tuple(f"127.0.0.1:{port}" for port in ports),
                servers=tuple(pids),
                others=(names,),
                nameserver=nameserver,
                ready_s=ready_s,
                log=log_directory(_directory(home, ports[0])),
                slaves=tuple(stack.enter_context(start_slave(number + 1)) for number in range(setup.slaves)),
                start_slave=start_slave,
            )


@dataclass(frozen=True)
class ArianeUp:
    """`ariane up`: nameserver and broker in one process, as new users start them."""

    key: str = "ariane-up"
    name: str = "Ariane up"
    wire: Wire = Wire.ROCKETMQ

    def prepare(self) -> str:
        return Ariane().prepare()

    @contextmanager
    def start(self, setup: Setup, home: Path) -> Iterator[Running]:
        home.mkdir(parents=True, exist_ok=True)
        ports = free_port(), free_port(BROKER_PORT_OFFSETS)
        words = ("up", "--data", str(home / "data"), "--port", str(ports[0]), "--broker-port", str(ports[1]))
        began = time.perf_counter()
        with _command(home / "up.log", sys.executable, *words) as pid:
            nameserver, broker = (f"127.0.0.1:{port}" for port in ports)
            ready_s = time.perf_counter() - began
            yield Running(
                name=self.name,
                wire=self.wire,
                addresses=(broker,),
                servers=(pid,),
                nameserver=nameserver,
                ready_s=ready_s,
            )


@contextmanager
def _broker(python: str, home: Path, nameserver: str, port: int, setup: Setup) -> Iterator[int]:
    directory = _directory(home, port)
    directory.mkdir(parents=True)
    settings = write_settings(directory, _name(port), nameserver, port, setup)
    words = (python, "broker", "-c", str(settings))
    with _command(directory / "broker.log", *words, more=_environment(setup)) as pid:
        yield pid


@contextmanager
def _slave(python: str, slaves: SlavesFiles, setup: Setup, number: int) -> Iterator[Slave]:
    files = slaves.of(number)
    words = (python, "broker", "-c", str(files.settings))
    with _command(files.directory / "broker.log", *words, more=_environment(setup)) as pid:
        yield Slave(pid=pid, address=f"127.0.0.1:{files.port}", log=log_directory(files.directory))


def _directory(home: Path, port: int) -> Path:
    return home / f"broker-{port}"


def _name(port: int) -> str:
    return f"bench-{port}"


def _environment(setup: Setup) -> tuple[tuple[str, str], ...]:
    if setup.catch_up_mib_s is None:
        return setup.environment
    return (*setup.environment, ("ARIANE_BROKER__REPLICATION__CATCH_UP_MIB_S", f"{setup.catch_up_mib_s:g}"))


@contextmanager
def _command(log: Path, python: str, *words: str, more: tuple[tuple[str, str], ...] = ()) -> Iterator[int]:
    """Without settings from the environment, which the other systems would not get, but for `more`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ARIANE_", "NAMESRV"))}
    environment |= dict(more)
    with running([python, "-m", "ariane", *words], ready=_READY, log=log, environment=environment) as pid:
        yield pid
