"""The interface of a system under test: preparation, start, and its processes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from bench.load.plan import Wire
from bench.processes import cpu_s, memory_bytes


class Missing(Exception):
    """A system is not available here; the text says why."""


class Flush(StrEnum):
    """The durability of an acknowledged message."""

    ASYNC = "async"
    """In the page cache; a sync follows within a second: RocketMQ's ASYNC_FLUSH, NATS's sync_interval 500ms, Redis's
    appendfsync everysec."""
    SYNC = "sync"
    """On the disk: SYNC_FLUSH, sync_interval always, appendfsync always."""
    DEFAULT = "default"
    """As each system does it if nobody says anything: Ariane syncs, Apache does not. Of RocketMQ's systems only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The configuration of a system for a scenario."""

    flush: Flush = Flush.ASYNC
    topics: int = 1
    queues: int = 8
    environment: tuple[tuple[str, str], ...] = ()
    """Settings of Ariane that Apache does not have and does not need."""
    role: str = ""
    """brokerRole of a master that has slaves, or gets them later; RocketMQ's systems only."""
    slaves: int = 0
    """Started with their master."""
    catch_up_mib_s: float | None = None
    """A limit that only Ariane has; None: its default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slave:
    """A running slave."""

    pid: int
    address: str
    log: Path
    """The directory of its commit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running system."""

    name: str
    wire: Wire
    addresses: tuple[str, ...]
    """Of the brokers, or of the one server."""
    servers: tuple[int, ...]
    """The processes that handle messages."""
    others: tuple[int, ...] = ()
    """Processes without which it would not work: RocketMQ's nameserver."""
    nameserver: str = ""
    ready_s: float = 0.0
    """From the first command to the last server that says it is ready."""
    log: Path | None = None
    """The directory of the first broker's commit log; RocketMQ's systems only."""
    slaves: tuple[Slave, ...] = ()
    """Of the first broker."""
    start_slave: Callable[[int], AbstractContextManager[Slave]] | None = None
    """Runs the slave of this number for the length of a block, on the store that it left the last time."""

    @property
    def slave_pids(self) -> tuple[int, ...]:
        return tuple(slave.pid for slave in self.slaves)

    @property
    def all_pids(self) -> tuple[int, ...]:
        return (*self.servers, *self.slave_pids, *self.others)

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.servers))

    def rss_bytes(self, field: str = "VmRSS") -> int:
        return sum(memory_bytes(pid, field) for pid in self.servers)

    def rss_bytes_of_all(self) -> int:
        return sum(map(memory_bytes, self.all_pids))


class System(Protocol):
    @property
    def key(self) -> str:
        """As `--peers` names it."""
        ...

    @property
    def name(self) -> str:
        """As tables name it."""
        ...

    @property
    def wire(self) -> Wire: ...

    def prepare(self) -> str:
        """Installs what is needed and returns the version; Missing says why it cannot."""
        ...

    def start(self, setup: Setup, home: Path) -> AbstractContextManager[Running]:
        """Runs it on the loopback address with all its files below `home`; enters when it accepts requests."""
        ...
