"""Downloads Apache RocketMQ's programs from the public Maven repository once, and runs them on the loopback address.

Servers are 4.9.7 and clients 4.9.8, the newest of the 4.9 line that the repository has of each; both are 5.4.0 of the
5.x line. 4.7.1 is an older client that many still use. The cache is $ARIANE_CACHE, by default ~/.cache/ariane.
"""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from interop.processes import LOOPBACK, InteropError, cache_directory, program, running

SERVER_VERSION = "4.9.7"
CLIENT_VERSION = "4.9.8"
OLD_CLIENT_VERSION = "4.7.1"
VERSION_5 = "5.4.0"
# A broker listens on its port, on port - 2 (the "VIP" channel) and on port + 1 (replication).
BROKER_PORT_OFFSETS = (-2, 0, 1)

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
Part = Literal["server", "client"]
Serialisation = Literal["JSON", "ROCKETMQ"]

POM = Path(__file__).resolve().parents[1] / "scripts" / "golden" / "pom.xml"
JVM_FLAGS = (
    "-Xms128m",
    "-Xmx512m",
    # Otherwise message ids contain an IPv6 address of the machine and have the longer form.
    "-Djava.net.preferIPv4Stack=true",
    # Java 17 closes the packages through which the 4.9 store frees its mapped files.
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)
LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """Configuration of one broker; `settings` are additional lines of its configuration file."""

    nameserver: str
    port: int
    settings: Mapping[str, str]
    cluster: str = "GoldenCluster"
    name: str = "golden-a"

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def properties(self, home: Path) -> str:
        lines = {
            "brokerClusterName": self.cluster,
            "brokerName": self.name,
            "brokerIP1": LOOPBACK,
            "brokerIP2": LOOPBACK,
            "listenPort": str(self.port),
            "namesrvAddr": self.nameserver,
            "storePathRootDir": str(home / "store"),
            "storePathCommitLog": str(home / "store" / "commitlog"),
            "mappedFileSizeCommitLog": str(16 << 20),
            "enablePropertyFilter": "true",
            "autoCreateTopicEnable": "true",
            **self.settings,
        }
        return "".join(f"{key}={value}\n" for key, value in lines.items())


def fetch(part: Part, version: str) -> str:
    """Return the class path of that release's jars, after one Maven download if they are not in the cache."""
    cache = cache_directory()
    jars = cache / f"apache-{version}-{part}"
    if not jars.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as download:
            _download(part, version, Path(download) / "jars")
            # Renamed only when complete, so that an interrupted download is not used.
            (Path(download) / "jars").rename(jars)
    return str(jars / "*")


def _download(part: Part, version: str, target: Path) -> None:
    maven = [program("mvn"), "-q", "-B", "-f", str(POM), "-P", part, f"-Drocketmq.version={version}"]
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}"]
    done = subprocess.run([*maven, *goal], check=False, capture_output=True, text=True)
    if done.returncode:
        raise InteropError(f"Maven could not fetch the {part} jars of {version}:\n{done.stdout[-2000:]}")


def java_command(
    classpath: str,
    main_class: str,
    *args: str,
    home: Path,
    properties: Mapping[str, str],
    flags: Sequence[str] = (),
) -> list[str]:
    """`home` stands in for the user's home directory, under which Apache's programs put logs and defaults. Of two flags
    that contradict each other Java takes the last, so `flags` win."""
    directories = {"user.home": home, "rocketmq.home.dir": home, "rocketmq.client.logRoot": home / "logs"}
    defines = {**directories, **properties}
    all_flags = [*JVM_FLAGS, *flags, *(f"-D{key}={value}" for key, value in defines.items())]
    return [program("java"), *all_flags, "-cp", classpath, main_class, *args]


def prepare_home(home: Path) -> None:
    """Write the logging configuration; without it servers and mqadmin fail to start or log many errors."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for kind in ("namesrv", "broker", "tools"):
        (conf / f"logback_{kind}.xml").write_text(LOGBACK)


def java(
    main_class: str,
    *args: str,
    classpath: str,
    home: Path,
    properties: Mapping[str, str] | None = None,
    timeout_seconds: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run a Java program to its end; the caller checks the exit status."""
    prepare_home(home)
    command = java_command(classpath, main_class, *args, home=home, properties=properties or {})
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout_seconds)


def compile_java(sources: Sequence[Path], classpath: str, target: Path) -> str:
    """Compile into `target`; return the class path that also holds the new classes."""
    command = [program("javac"), "-nowarn", "-d", str(target), "-cp", classpath, *map(str, sources)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise InteropError(f"javac failed:\n{done.stderr}")
    return f"{target}{os.pathsep}{classpath}"


@contextlib.contextmanager
def start_nameserver(
    port: int,
    home: Path,
    serialisation: Serialisation = "JSON",
    version: str = SERVER_VERSION,
    properties: Mapping[str, str] = NO_PROPERTIES,
) -> Iterator[int]:
    """Its process id, while it runs."""
    main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
    properties = {"rocketmq.serialize.type": serialisation, **properties}
    with _server(version, main_class, "namesrv", f"listenPort={port}\n", home, properties) as process_id:
        yield process_id


@contextlib.contextmanager
def start_broker(
    plan: BrokerPlan,
    home: Path,
    serialisation: Serialisation = "JSON",
    version: str = SERVER_VERSION,
    properties: Mapping[str, str] = NO_PROPERTIES,
) -> Iterator[int]:
    """Its process id, while it runs."""
    main_class = "org.apache.rocketmq.broker.BrokerStartup"
    properties = {"rocketmq.serialize.type": serialisation, **properties}
    with _server(version, main_class, "broker", plan.properties(home), home, properties) as process_id:
        yield process_id


@contextlib.contextmanager
def _server(
    version: str, main_class: str, kind: str, settings: str, home: Path, properties: Mapping[str, str]
) -> Iterator[int]:
    """Run one Apache server until the end of the block, with all its files below `home`."""
    prepare_home(home)
    config = home / "conf" / f"{kind}.conf"
    config.write_text(settings)
    command = java_command(fetch("server", version), main_class, "-c", str(config), home=home, properties=properties)
    with running(command, ready="boot success", log=home / f"{kind}.log") as process_id:
        yield process_id
