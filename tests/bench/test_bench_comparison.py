"""How systems are run in turn, with systems that take no time."""

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
class Instant:
    """A system that is there at once, and notes when it was started."""

    name: str
    starts: list[str]
    fault: str = ""
    wire: Wire = Wire.ROCKETMQ
    key: str = field(default="instant")

    def prepare(self) -> str:
        if self.fault == "missing":
            raise Missing("nobody has it")
        return "1.0"

    @contextmanager
    def start(self, setup: Setup, home: Path) -> Iterator[Running]:
        if self.fault:
            raise InteropError("it does not start")
        self.starts.append(self.name)
        yield Running(name=self.name, wire=self.wire, addresses=(), servers=())


class Nothing(Scenario):
    name = "nothing"
    title = "Nothing"

    def measure(self, running: Running, setup: str, effort: Effort) -> Iterator[Measured]:
        yield Measured("case", {"figure": 1.0})


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(comparison, "Ariane", lambda brokers=1: Instant("Ariane", names))
    return names


def test_the_order_is_turned_round_from_repeat_to_repeat(starts: list[str]) -> None:
    outcome = Comparison([Instant("Peer", starts)], 1, EFFORT).run(Nothing())
    assert starts == ["Ariane", "Peer", "Peer", "Ariane"]
    assert [(sample.system, sample.repeat) for sample in outcome.samples] == [
        ("Ariane", 0),
        ("Peer", 0),
        ("Peer", 1),
        ("Ariane", 1),
    ]


def test_a_peer_that_cannot_be_had_is_told(starts: list[str]) -> None:
    outcome = Comparison([Instant("Peer", starts, fault="missing")], 1, EFFORT).run(Nothing())
    assert outcome.missing == {"Peer": "nobody has it"}
    assert outcome.systems() == ["Ariane"]


def test_a_peer_that_does_not_start_is_told_and_the_others_go_on(starts: list[str]) -> None:
    outcome = Comparison([Instant("Peer", starts, fault="broken")], 1, EFFORT).run(Nothing())
    assert outcome.missing == {"Peer": "InteropError: it does not start"}
    assert len(outcome.samples) == 2


def test_a_protocol_without_such_a_request_is_left_out(starts: list[str]) -> None:
    class OnlyRocketmq(Nothing):
        wires = frozenset({Wire.ROCKETMQ})

    Comparison([Instant("Peer", starts, wire=Wire.NATS)], 1, EFFORT).run(OnlyRocketmq())
    assert set(starts) == {"Ariane"}
