"""Apache's mqadmin, RocketMQ's command-line administration tool: many commands in one JVM, one at a time."""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlencode

from interop.apache import CLIENT_VERSION, compile_java, fetch, java_command, prepare_home
from interop.processes import InteropError

JAVA = Path(__file__).resolve().parent / "java"
SOURCES = [JAVA / "Line.java", JAVA / "MqadminShell.java"]


def shell_command(home: Path, properties: Mapping[str, str] | None = None, version: str = CLIENT_VERSION) -> list[str]:
    """The program that runs one mqadmin command per line of its standard input."""
    prepare_home(home)
    classpath = compile_java(SOURCES, fetch("client", version), home / "classes")
    return java_command(classpath, "MqadminShell", home=home, properties=properties or {})


@dataclass(frozen=True, slots=True)
class Mqadmin:
    """Runs mqadmin commands against one nameserver."""

    nameserver: str
    shell: "subprocess.Popen[str]"

    def run(self, command: str, *options: str) -> str:
        """Run one command and return its output. mqadmin always exits with 0, so only the output shows success."""
        words = [command, "-n", self.nameserver, *options]
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        self.shell.stdin.write(urlencode({"id": "1", **{f"word{n}": word for n, word in enumerate(words)}}) + "\n")
        self.shell.stdin.flush()
        response = parse_qs(self.shell.stdout.readline(), keep_blank_values=True)
        if "printed" not in response:
            raise InteropError(f"mqadmin {' '.join(words)} terminated the JVM: check its options")
        return response["printed"][0]

    def cluster_rows(self) -> list[list[str]]:
        """Cluster, broker name, broker id and address of each line of clusterList."""
        return [line.split()[:4] for line in self.run("clusterList").splitlines()]


@contextlib.contextmanager
def open_mqadmin(nameserver: str, home: Path) -> Iterator[Mqadmin]:
    with subprocess.Popen(
        shell_command(home),
        cwd=home,  # consumerStatus writes its result to the working directory
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()  # "ready"
        try:
            yield Mqadmin(nameserver, shell)
        finally:
            shell.kill()
