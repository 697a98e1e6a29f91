"""How long a system is warmed up: by what its CPU for a message does."""

from collections.abc import Sequence

import pytest

from bench.load.plan import Wire
from bench.scenarios.scenario import Effort
from bench.scenarios.warm_up import until_flat
from bench.systems.system import Running

EFFORT = Effort(seconds=2, warm_s=16, warm_max_s=48, rounds=5)


def windows(costs: Sequence[float], wire: Wire = Wire.ROCKETMQ) -> list[float]:
    """The lengths of the windows; the last of the costs goes on for ever."""
    lengths: list[float] = []

    def load(seconds: float) -> float:
        lengths.append(seconds)
        return costs[min(len(lengths), len(costs)) - 1]

    until_flat(Running(name="x", wire=wire, addresses=(), servers=()), EFFORT, load)
    return lengths


def test_a_steady_system_is_warmed_up_for_the_least_time() -> None:
    assert windows([10.0]) == [4.0] * 4


def test_one_that_becomes_cheaper_is_warmed_up_until_it_does_not() -> None:
    assert windows([90.0, 60.0, 50.0, 40.0, 35.0, 34.0]) == [4.0] * 6


def test_one_that_never_becomes_steady_is_warmed_up_for_the_most_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(windows([2.0**number for number in range(20)])) == 48.0
    assert "still changing" in capsys.readouterr().out


def test_a_program_that_was_compiled_before_needs_less() -> None:
    assert sum(windows([10.0], Wire.NATS)) == 8.0
