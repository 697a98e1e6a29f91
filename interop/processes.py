"""Child processes and ports for the interop scripts. Every process that is started here is also stopped here."""

import contextlib
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

LOOPBACK = "127.0.0.1"
# Below the range Linux takes outgoing ports from, so that no client socket takes a port between the check and the bind.
PORT_LOWEST, PORT_HIGHEST = 20_000, 32_000
STOP_SECONDS = 20.0
START_SECONDS = 240.0
"""A broker of Apache 5 took more than a minute on a machine with thirty busy processes."""


class InteropError(Exception):
    """A required program is missing, or a process failed to start."""


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise InteropError(f"{name} is not on the PATH: the interop checks need a JDK 17, Maven, Go and Node")
    return found


def cache_directory() -> Path:
    """Where downloads are kept between runs."""
    directory = Path(os.environ.get("ARIANE_CACHE", "~/.cache/ariane")).expanduser()
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def free_port(offsets: Sequence[int] = (0,)) -> int:
    """Return a base port for which base + each offset is free: a RocketMQ broker takes port - 2, port and port + 1."""
    for _ in range(200):
        base = random.randint(PORT_LOWEST, PORT_HIGHEST)
        if all(_is_free(base + offset) for offset in offsets):
            return base
    raise InteropError(f"no free ports between {PORT_LOWEST} and {PORT_HIGHEST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            # The wildcard address, because Apache's servers bind that one.
            probe.bind(("", port))
        except OSError:
            return False
    return True


def wait_until(condition: Callable[[], bool], what: str, timeout_seconds: float = 30.0) -> None:
    """Poll until the condition holds: for state of another process, which has no event to wait for."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise InteropError(f"{what}: not within {timeout_seconds:.0f} s")
        time.sleep(0.1)


def exit_on_sigterm() -> None:
    """Turn SIGTERM into an exception, so that the script stops its child processes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@contextlib.contextmanager
def running(
    command: Sequence[str],
    *,
    ready: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = START_SECONDS,
) -> Iterator[int]:
    """Run a server for the length of the block; enter it, with its id, once it has printed a line with `ready`."""
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    started_or_ended = threading.Event()
    seen_ready = threading.Event()
    reader = threading.Thread(
        target=_copy_output, args=(process, ready, log, seen_ready, started_or_ended), daemon=True
    )
    reader.start()
    try:
        started_or_ended.wait(timeout_seconds)
        if not seen_ready.is_set():
            raise InteropError(f"{shlex.join(command)[:200]} ... did not print {ready!r}:\n{tail(log)}")
        yield process.pid
    finally:
        _stop(process)
        reader.join(STOP_SECONDS)


@contextlib.contextmanager
def paused(process_id: int) -> Iterator[None]:
    """The process stands still for the length of the block, with its connections open."""
    os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)


def _copy_output(
    process: subprocess.Popen[bytes],
    ready: str,
    log: Path,
    seen_ready: threading.Event,
    started_or_ended: threading.Event,
) -> None:
    """Drain the output as long as the process lives: a full pipe would block it."""
    assert process.stdout is not None
    with process.stdout as lines, log.open("ab") as copy:
        for line in lines:
            copy.write(line)
            copy.flush()
            if ready.encode() in line:
                seen_ready.set()
                started_or_ended.set()
    started_or_ended.set()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM first: a broker then unregisters and writes its checkpoint."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else "(no output)"
