"""Apache RocketMQ: its nameserver and its broker from the public Maven repository, on Java 17.

The heap is a quarter of what Apache's runbroker.sh takes, which is more than this class of machine has; the collector
and its settings are those of that script. Memory is not touched beforehand, so that it counts as used when it is used.
"""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.load.plan import Wire
from bench.systems.broker_files import SlavesFiles, log_directory, write_settings
from bench.systems.system import Missing, Running, Setup, Slave
from interop.apache import BROKER_PORT_OFFSETS, JVM_FLAGS, LOGBACK, SERVER_VERSION, fetch
from interop.processes import InteropError, free_port, program, running

HEAP = ("-Xms2g", "-Xmx2g", "-Xmn1g")
SLAVE_HEAP = ("-Xms1g", "-Xmx1g", "-Xmn512m")
NAMESERVER_HEAP = ("-Xms256m", "-Xmx256m")
COLLECTOR = (
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
)
_READY = "boot success"
_START_S = 120.0


@dataclass(frozen=True)
class Apache:
    version: str = SERVER_VERSION
    wire: Wire = Wire.ROCKETMQ

    @property
    def key(self) -> str:
        return "apache" if self.version == SERVER_VERSION else f"apache-{self.version}"

    @property
    def name(self) -> str:
        return f"Apache {self.version}"

    def prepare(self) -> str:
        try:
            fetch("server", self.version)
            java = subprocess.run([program("java"), "-version"], capture_output=True, text=True, check=True)
        except (InteropError, subprocess.CalledProcessError) as error:
            raise Missing(f"Apache RocketMQ {self.version}: {error}") from error
        return f"{self.version}, {java.stderr.splitlines()[0]}, heap {HEAP[1][4:]}"

    @contextmanager
    def start(self, setup: Setup, home: Path) -> Iterator[Running]:
        nameserver = f"127.0.0.1:{(name_port := free_port())}"
        port = free_port(BROKER_PORT_OFFSETS)
        home.mkdir(parents=True, exist_ok=True)
        name_settings = home / "namesrv.conf"
        name_settings.write_text(f"listenPort={name_port}\n")
        settings = write_settings(home, "bench-a", nameserver, port, setup)
        began = time.perf_counter()
        with (
            self._server("namesrv.NamesrvStartup", NAMESERVER_HEAP, name_settings, home / "namesrv") as names,
            self._server("broker.BrokerStartup", (*HEAP, *COLLECTOR), settings, home / "broker") as broker,
            ExitStack() as stack,
        ):
            files = SlavesFiles(home, "bench-a", nameserver, setup)
            start_slave = partial(self._slave, files)
            yield Running(
                name=self.name,
                wire=self.wire,
                addresses=(f"127.0.0.1:{port}",),
                servers=(broker,),
                others=(names,),
                nameserver=nameserver,
                ready_s=time.perf_counter() - began,
                log=log_directory(home),
                slaves=tuple(stack.enter_context(start_slave(number + 1)) for number in range(setup.slaves)),
                start_slave=start_slave,
            )

    @contextmanager
    def _slave(self, slaves: SlavesFiles, number: int) -> Iterator[Slave]:
        files = slaves.of(number)
        heap = (*SLAVE_HEAP, *COLLECTOR)
        with self._server("broker.BrokerStartup", heap, files.settings, files.directory / "broker") as pid:
            yield Slave(pid=pid, address=f"127.0.0.1:{files.port}", log=log_directory(files.directory))

    @contextmanager
    def _server(self, main_class: str, heap: Sequence[str], settings: Path, home: Path) -> Iterator[int]:
        _write_log_settings(home)
        flags = [flag for flag in JVM_FLAGS if not flag.startswith("-Xm")]
        directories = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
        command = [program("java"), *heap, *flags, *directories, "-cp", fetch("server", self.version)]
        command += [f"org.apache.rocketmq.{main_class}", "-c", str(settings)]
        with running(command, ready=_READY, log=home / "out.log", timeout_seconds=_START_S) as pid:
            yield pid


def _write_log_settings(home: Path) -> None:
    """The servers need these files to start; only warnings are logged, less than with Apache's own file."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for kind in ("namesrv", "broker"):
        (conf / f"logback_{kind}.xml").write_text(LOGBACK)
        (conf / f"rmq.{kind}.logback.xml").write_text(LOGBACK)
