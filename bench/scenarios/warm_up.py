"""Warm-up under load until the CPU of the server for a message is steady: Java compiles hot code, files are created."""

from collections.abc import Callable, Sequence

from bench.load.plan import Wire
from bench.scenarios.scenario import Effort
from bench.systems.system import Running

WINDOW_S = 4.0
TOLERANCE = 0.05
COMPILED_SHARE = 0.25
"""Of the warm-up, for programs that were compiled before they started: NATS and Redis."""


def until_flat(
    running: Running,
    effort: Effort,
    load: Callable[[float], float],
    window_s: float = WINDOW_S,
    share: float = 1.0,
) -> None:
    """Loads, window by window, until two of them differ by little.

    `load` loads for so many seconds and returns the CPU of the server for a message. `share` is how much of the
    warm-up a system of RocketMQ's protocol gets.
    """
    least_s = effort.warm_s * (share if running.wire is Wire.ROCKETMQ else COMPILED_SHARE)
    most_s = effort.warm_max_s * share
    window_s = min(window_s, least_s)
    spent_s, costs = 0.0, list[float]()
    while spent_s < most_s and (spent_s < least_s or not _is_flat(costs)):
        costs.append(load(window_s))
        spent_s += window_s
    steady = "" if _is_flat(costs) or effort.is_quick else ", still changing"
    print(f"  {running.name}: {spent_s:.0f} s of warm-up, {costs[-1]:.1f} us of CPU a message{steady}", flush=True)


def _is_flat(costs: Sequence[float]) -> bool:
    return len(costs) > 1 and abs(costs[-1] - costs[-2]) <= TOLERANCE * costs[-2]
