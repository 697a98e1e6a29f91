"""A running system that takes turns with others: while one is measured, all others are stopped."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench.scenarios.scenario import Cases
from bench.systems.system import Running, Setup, System

T = TypeVar("T")

SETTLE_S = 0.2


@dataclass(slots=True)
class Contestant:
    system: System
    label: str
    """Of its setup."""
    running: Running
    stack: ExitStack
    """What is to be closed with it."""
    cases: Cases = field(default_factory=dict)

    def stop(self) -> None:
        """Returns when all its processes have stopped, or ended."""
        self._signal(signal.SIGSTOP)
        for pid in self.running.all_pids:
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        self.stack.close()

    def _signal(self, number: int) -> None:
        for pid in self.running.all_pids:
            os.kill(pid, number)


def enter(system: System, label: str, setup: Setup) -> Contestant:
    """Starts the system on a fresh store."""
    with ExitStack() as stack:
        running = stack.enter_context(started(system, setup))
        return Contestant(system, label, running, stack.pop_all())


def write_back() -> None:
    """Or what one system wrote would go to the disk while the next is measured."""
    os.sync()


def settle() -> None:
    """The timers of a server that are overdue after a stop fire at once."""
    time.sleep(SETTLE_S)


@contextmanager
def turn(contestant: Contestant) -> Iterator[None]:
    """Lets it run; all contestants are stopped before and after."""
    write_back()
    contestant.resume()
    settle()
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # a server that died; the request to it failed as well
            contestant.stop()


def in_turn(contestants: Sequence[T], number: int) -> Iterator[T]:
    """In alternating order."""
    yield from contestants if number % 2 == 0 else reversed(contestants)


@contextmanager
def started(system: System, setup: Setup) -> Iterator[Running]:
    """On a fresh store, which is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="ariane-bench-", ignore_cleanup_errors=True) as home:
        with system.start(setup, Path(home) / "home") as running:
            try:
                yield running
            finally:
                _kill(running)


def _kill(running: Running) -> None:
    """The store is not read again, and a clean shutdown of Apache takes 15 seconds."""
    for pid in running.all_pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
