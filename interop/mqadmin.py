"""Apache's mqadmin, the command line tool of RocketMQ's operators."""

from dataclasses import dataclass
from pathlib import Path

from interop.apache import CLIENT_VERSION, fetch, java

MAIN_CLASS = "org.apache.rocketmq.tools.command.MQAdminStartup"


@dataclass(frozen=True, slots=True)
class Mqadmin:
    """The command, told which nameserver to ask."""

    nameserver: str
    home: Path

    def run(self, command: str, *options: str) -> str:
        """Run one command. mqadmin exits 0 whatever happened, so what it printed is all there is to judge."""
        jars = fetch("client", CLIENT_VERSION)
        done = java(MAIN_CLASS, command, "-n", self.nameserver, *options, classpath=jars, home=self.home)
        return f"{done.stdout}\n{done.stderr}"

    def cluster_rows(self) -> list[list[str]]:
        """Cluster, broker name, broker id and address of each line of clusterList."""
        return [line.split()[:4] for line in self.run("clusterList").splitlines()]
