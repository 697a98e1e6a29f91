"""Redis Streams: the server of this machine, or Debian's, unpacked into the cache."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load.plan import Wire
from bench.systems.downloads import from_debian
from bench.systems.system import Flush, Missing, Running, Setup
from interop.processes import free_port, running

# The program and the libraries it needs beyond a plain Debian's.
PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1")


@dataclass(frozen=True)
class Redis:
    key: str = "redis"
    name: str = "Redis Streams"
    wire: Wire = Wire.REDIS

    def prepare(self) -> str:
        program, environment = _program()
        result = subprocess.run([program, "--version"], env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            raise Missing(f"{program} does not run: {result.stderr.strip()[:300]}")
        return result.stdout.split("v=")[1].split()[0]

    @contextmanager
    def start(self, setup: Setup, home: Path) -> Iterator[Running]:
        """Append-only file on, and never rewritten: a rewrite would disturb some runs and not others."""
        program, environment = _program()
        port = free_port()
        home.mkdir(parents=True, exist_ok=True)
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": str(home),
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "always" if setup.flush is Flush.SYNC else "everysec",
            "auto-aof-rewrite-percentage": "0",
        }
        file = home / "redis.conf"
        file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        began = time.perf_counter()
        ready = "Ready to accept connections"
        with running([program, str(file)], ready=ready, log=home / "redis.log", environment=environment) as pid:
            ready_s = time.perf_counter() - began
            address = f"127.0.0.1:{port}"
            yield Running(name=self.name, wire=self.wire, addresses=(address,), servers=(pid,), ready_s=ready_s)


def _program() -> tuple[str, Mapping[str, str]]:
    path = shutil.which("redis-server")
    if path:
        return path, os.environ
    root = from_debian(PACKAGES)
    libraries = {str(path.parent) for path in root.rglob("*.so*")}
    return str(root / "usr" / "bin" / "redis-server"), {**os.environ, "LD_LIBRARY_PATH": ":".join(sorted(libraries))}
