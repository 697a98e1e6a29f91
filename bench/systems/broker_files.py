"""Configuration files for Ariane and Apache RocketMQ: both start with the same settings and topics."""

import json
from dataclasses import dataclass
from pathlib import Path

from bench.load.names import topic_name
from bench.systems.system import Flush, Setup
from interop.apache import BROKER_PORT_OFFSETS
from interop.processes import free_port

CLUSTER = "BenchCluster"
_FLUSH = {
    Flush.SYNC: {"flushDiskType": "SYNC_FLUSH"},
    Flush.ASYNC: {"flushDiskType": "ASYNC_FLUSH"},
    Flush.DEFAULT: {},
}


HOUSEKEEPING_MS = 600_000
"""A master and its slaves are stopped for longer than the 20 s after which they would give each other up."""


def log_directory(home: Path) -> Path:
    return home / "store" / "commitlog"


def write_settings(home: Path, name: str, nameserver: str, port: int, setup: Setup, broker_id: int = 0) -> Path:
    """broker.conf: names, addresses, flush mode and role. Everything else is the default of each system."""
    store = home / "store"
    lines = {
        "brokerClusterName": CLUSTER,
        "brokerName": name,
        "brokerIP1": "127.0.0.1",
        "listenPort": str(port),
        "namesrvAddr": nameserver,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(log_directory(home)),
        **_FLUSH[setup.flush],
        **_replication(setup, broker_id),
    }
    write_topics(store, setup)
    path = home / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path


def _replication(setup: Setup, broker_id: int) -> dict[str, str]:
    """Slaves find their master through the nameserver."""
    if not setup.role:
        return {}
    return {
        "brokerId": str(broker_id),
        "brokerRole": "SLAVE" if broker_id else setup.role,
        "brokerIP2": "127.0.0.1",
        "haHousekeepingInterval": str(HOUSEKEEPING_MS),
    }


@dataclass(frozen=True, slots=True)
class SlaveFiles:
    """The directory, settings and port of a slave, the same at each start."""

    directory: Path
    settings: Path
    port: int

    @classmethod
    def write(cls, home: Path, name: str, nameserver: str, setup: Setup, number: int) -> "SlaveFiles":
        directory = home / f"slave-{number}"
        directory.mkdir(parents=True)
        port = free_port(BROKER_PORT_OFFSETS)
        return cls(directory, write_settings(directory, name, nameserver, port, setup, number), port)


class SlavesFiles:
    """Of all slaves of a master; those of a slave are written when it first starts."""

    def __init__(self, home: Path, name: str, nameserver: str, setup: Setup) -> None:
        self._arguments = home, name, nameserver, setup
        self._of: dict[int, SlaveFiles] = {}

    def of(self, number: int) -> SlaveFiles:
        if number not in self._of:
            self._of[number] = SlaveFiles.write(*self._arguments, number)
        return self._of[number]


def write_topics(store: Path, setup: Setup) -> None:
    """Topics in the file that a broker reads at start: creating thousands by requests would take minutes."""
    table = {topic_name(number): _topic(topic_name(number), setup.queues) for number in range(setup.topics)}
    path = store / "config" / "topics.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table}))


def _topic(name: str, queues: int) -> dict[str, object]:
    return {
        "order": False,
        "perm": 6,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }
