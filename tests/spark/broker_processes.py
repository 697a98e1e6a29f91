"""A nameserver and brokers as their users run them: processes that are killed, come back, or join later."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ariane.client.settings import ClientSettings
from ariane.spark.cluster import Cluster
from tests.cluster.processes import ServerProcess, properties
from tests.spark.cluster_fixture import ClusterFixture


@dataclass
class BrokerProcesses:
    root: Path
    nameserver: str
    cluster: ClusterFixture
    _loop: asyncio.Runner
    _brokers: dict[str, ServerProcess] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """A second start has the same port and store as the first."""
        is_new = name not in self._brokers
        if is_new:
            self._brokers[name] = self._create(name)
        broker = self._brokers[name]
        self._loop.run(broker.start())
        if is_new:
            broker.keep_address()
            self.cluster.brokers[name] = broker.address
        self.cluster.client.calls.close()  # connections to those that were killed

    def kill(self, name: str) -> None:
        self._loop.run(self._brokers[name].kill())

    def _create(self, name: str) -> ServerProcess:
        """Every message is on the disk before it is acknowledged."""
        settings = {
            "brokerName": name,
            "storePathRootDir": self.root / name,
            "flushDiskType": "SYNC_FLUSH",
            "namesrvAddr": self.nameserver,
        }
        conf = properties(self.root / f"{name}.conf", settings)
        return ServerProcess(self.root / f"{name}.log", "broker", "-c", str(conf), "--listen", "127.0.0.1:0")

    def kill_all(self) -> None:
        for name in self._brokers:
            self.kill(name)


@contextmanager
def broker_processes(root: Path, *names: str) -> Iterator[BrokerProcesses]:
    with asyncio.Runner() as loop:
        nameserver = ServerProcess(root / "namesrv.log", "namesrv", "--listen", "127.0.0.1:0")
        loop.run(nameserver.start())
        client = Cluster(ClientSettings(nameservers=nameserver.address))
        cluster = ClusterFixture(nameserver.address, {}, {}, client)
        servers = BrokerProcesses(root, nameserver.address, cluster, loop)
        try:
            for name in names:
                servers.start(name)
            yield servers
        finally:
            client.calls.close()
            servers.kill_all()
            loop.run(nameserver.kill())
