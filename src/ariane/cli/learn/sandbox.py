"""The sandbox of a lesson: a temporary directory with a running `ariane up`, and shells that run the commands there.

Background processes of a lesson end with it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ariane.errors import ArianeError, ClientError

_STOP_S = 10.0


@dataclass(slots=True)
class Sandbox:
    """Commands in it need no `-n`: they find the servers through the directory."""

    directory: Path
    variables: dict[str, str]
    _shells: list[int] = field(default_factory=list)

    def run(self, script: str) -> int:
        """Returns the exit status of the script, which stops at its first error. Its output is not captured."""
        shell = subprocess.Popen(  # noqa: S603  the lessons are part of Ariane
            ["/bin/sh", "-euc", script],
            cwd=self.directory,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # so that its background processes can be killed with it
        )
        self._shells.append(shell.pid)
        try:
            return shell.wait()
        except KeyboardInterrupt:
            self.close()
            raise

    def close(self) -> None:
        for group in self._shells:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self._shells.clear()


@contextmanager
def sandbox() -> Iterator[Sandbox]:
    """SIGTERM ends it like Ctrl-C: otherwise a lesson's shell would keep running after this process."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="ariane-learn-"))
    try:
        with _servers(directory) as servers:
            box = Sandbox(directory, _variables(servers))
            try:
                yield box
            finally:
                box.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _servers(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "ariane", "up", "--port", "0", "--broker-port", "0", "--log-level", "error"]
    servers = subprocess.Popen(  # noqa: S603  no argument comes from outside
        command, cwd=directory, stdout=subprocess.PIPE, text=True, env=_variables(None)
    )
    try:
        assert servers.stdout is not None
        if "ready" not in servers.stdout.readline():
            raise _not_started()
        yield servers
    finally:
        servers.terminate()
        try:
            servers.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            servers.kill()
            servers.wait()
        if servers.stdout is not None:
            servers.stdout.close()


def _not_started() -> ArianeError:
    return ClientError("the lesson's servers did not start: run `ariane up --tmp` to see why")


def _variables(servers: "subprocess.Popen[str] | None") -> dict[str, str]:
    """The environment of the commands: `ariane` of this Python on the PATH, and no settings of the user's cluster."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("ARIANE_")}
    own.pop("NAMESRV_ADDR", None)
    path = os.pathsep.join((str(Path(sys.executable).parent), own.get("PATH", os.defpath)))
    return own | {"PATH": path} | ({} if servers is None else {"SERVERS_PID": str(servers.pid)})
