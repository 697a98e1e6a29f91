"""The order in which systems are run, and missing ones, with instant fake systems."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench import comparison
from bench.comparison import Comparison
from bench.load.plan import Wire
from bench.scenarios.scenario import Effort, Measured, Scenario
from bench.systems.system import Missing, Running, Setup
from interop.processes import InteropError

EFFORT = Effort(seconds=0, warm_s=0, repeats=2)


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
        yield Running(name=self.name, wire=self.wire, addresses=(), servers=())


class EmptyScenario(Scenario):
    name = "nothing"
    title = "Nothing"

    def measure(self, running: Running, setup: str, effort: Effort) -> Iterator[Measured]:
        yield Measured("case", {"figure": 1.0})


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(comparison, "Ariane", lambda brokers=1: FakeSystem("Ariane", names))
    return names


def test_the_order_alternates_between_repeats(starts: list[str]) -> None:
    outcome = Comparison([FakeSystem("Peer", starts)], 1, EFFORT).run(EmptyScenario())
    assert starts == ["Ariane", "Peer", "Peer", "Ariane"]
    assert [(sample.system, sample.repeat) for sample in outcome.samples] == [
        ("Ariane", 0),
        ("Peer", 0),
        ("Peer", 1),
        ("Ariane", 1),
    ]


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
