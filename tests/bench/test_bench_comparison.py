"""Turns of systems, who is stopped meanwhile, and missing ones, with instant fake systems."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench import comparison, contestant
from bench.comparison import Comparison
from bench.load.plan import Wire
from bench.scenarios.scenario import Cases, Effort, Measured, Scenario
from bench.systems.system import Missing, Running, Setup
from interop.processes import InteropError

EFFORT = Effort(seconds=0, warm_s=0, warm_max_s=0, rounds=2)


@dataclass
class FakeSystem:
    """A system that starts immediately and records it."""

    name: str
    starts: list[str]
    failure: str = ""
    wire: Wire = Wire.ROCKETMQ
    key: str = field(default="instant")

    def prepare(self) -> str:
        if self.failure == "missing":
            raise Missing("not installed")
        return "1.0"

    @contextmanager
    def start(self, setup: Setup, home: Path) -> Iterator[Running]:
        if self.failure:
            raise InteropError("it does not start")
        self.starts.append(self.name)
        with subprocess.Popen(["sleep", "600"]) as server:
            try:
                yield Running(name=self.name, wire=self.wire, addresses=(), servers=(server.pid,))
            finally:
                server.kill()


class EmptyScenario(Scenario):
    name = "nothing"
    title = "Nothing"

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        return {"case": lambda: Measured("case", {"figure": 1.0})}


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(comparison, "Ariane", lambda brokers=1: FakeSystem("Ariane", names))
    monkeypatch.setattr(contestant, "write_back", lambda: None)
    monkeypatch.setattr(contestant, "settle", lambda: None)
    return names


def test_all_are_started_once_and_the_order_alternates_between_rounds(starts: list[str]) -> None:
    outcome = Comparison([FakeSystem("Peer", starts)], 1, EFFORT).run(EmptyScenario())
    assert starts == ["Ariane", "Peer"]
    assert [(sample.system, sample.repeat) for sample in outcome.samples] == [
        ("Ariane", 0),
        ("Peer", 0),
        ("Peer", 1),
        ("Ariane", 1),
    ]


def test_a_scenario_of_systems_alone_starts_each_in_each_round(starts: list[str]) -> None:
    class Alone(EmptyScenario):
        alone = True

    Comparison([FakeSystem("Peer", starts)], 1, EFFORT).run(Alone())
    assert starts == ["Ariane", "Peer", "Peer", "Ariane"]


def test_the_others_are_stopped_while_one_is_measured(starts: list[str]) -> None:
    servers: list[int] = []
    stopped: list[list[bool]] = []

    class Watching(EmptyScenario):
        def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
            servers.extend(running.servers)
            return {"case": lambda: self._watch(running.servers[0])}

        def _watch(self, own: int) -> Measured:
            stopped.append([is_stopped(pid) for pid in servers if pid != own] + [is_stopped(own)])
            return Measured("case", {})

    Comparison([FakeSystem("Peer", starts)], 1, EFFORT).run(Watching())
    assert stopped == [[True, False]] * 4


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_system_that_fails_in_a_round_is_reported_and_the_others_continue(starts: list[str]) -> None:
    class Failing(EmptyScenario):
        def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
            return {"case": lambda: self._measure(running.name)}

        def _measure(self, name: str) -> Measured:
            if name == "Peer":
                raise RuntimeError("it broke")
            return Measured("case", {})

    outcome = Comparison([FakeSystem("Peer", starts)], 1, EFFORT).run(Failing())
    assert outcome.missing == {"Peer": "RuntimeError: it broke"}
    assert [sample.system for sample in outcome.samples] == ["Ariane", "Ariane"]


def test_a_missing_peer_is_reported(starts: list[str]) -> None:
    outcome = Comparison([FakeSystem("Peer", starts, failure="missing")], 1, EFFORT).run(EmptyScenario())
    assert outcome.missing == {"Peer": "not installed"}
    assert outcome.systems() == ["Ariane"]


def test_a_peer_that_does_not_start_is_reported_and_the_others_continue(starts: list[str]) -> None:
    outcome = Comparison([FakeSystem("Peer", starts, failure="broken")], 1, EFFORT).run(EmptyScenario())
    assert outcome.missing == {"Peer": "InteropError: it does not start"}
    assert len(outcome.samples) == 2


def test_a_protocol_that_a_scenario_does_not_support_is_skipped(starts: list[str]) -> None:
    class OnlyRocketmq(EmptyScenario):
        wires = frozenset({Wire.ROCKETMQ})

    Comparison([FakeSystem("Peer", starts, wire=Wire.NATS)], 1, EFFORT).run(OnlyRocketmq())
    assert set(starts) == {"Ariane"}
