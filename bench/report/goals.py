"""The performance goals of Ariane, and how far they are met, from the stored results."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.outcome import OURS, Outcome
from bench.scenarios.latency import ASYNC
from bench.scenarios.offered_load import FIXED, HALF

APACHE = "Apache"
NATS = "NATS"
CPP = "rocketmq"
UP, TWO = "Ariane up", "Ariane x 2"
RATE, CPU = "messages_per_s", "server_us"

Outcomes = Mapping[str, Outcome]


class Goal(NamedTuple):
    measure: str
    limit: float
    at_most: bool
    """Whether less is better."""
    reached: float | None
    """None: not measured, or no peer to compare with."""

    @property
    def is_met(self) -> bool | None:
        if self.reached is None:
            return None
        return self.reached <= self.limit if self.at_most else self.reached >= self.limit

    @property
    def sign(self) -> str:
        return "<=" if self.at_most else ">="


def goals(outcomes: Outcomes) -> Iterator[Goal]:
    sends = "sends-async"
    yield Goal("CPU of a send, 1 KiB, 16x16 (x Apache)", 0.5, True, ratio(outcomes, sends, "1 KiB 16x16", CPU))
    for shape in ("16x16", "4x256"):
        case = f"1 KiB {shape}"
        yield Goal(f"sends/s, 1 KiB, {shape} (x Apache)", 1.3, False, ratio(outcomes, sends, case, RATE))
        twice = ratio(outcomes, sends, case, RATE, ours=TWO)
        yield Goal(f"sends/s, 1 KiB, {shape}, two brokers (x Apache)", 2.0, False, twice)
    nats = ratio(outcomes, sends, "1 KiB 16x16", CPU, peer=NATS)
    yield Goal("CPU of a send, 1 KiB, 16x16 (x NATS)", 1.0, True, nats)
    yield from _latency_goals(outcomes)
    batch = ratio(outcomes, "batches", "32 x 100 B, 4x16", RATE)
    yield Goal("messages/s in batches of 32 x 100 B (x Apache)", 1.0, False, batch)
    yield Goal("messages/s pulled, 32 x 1 KiB, 16x4 (x Apache)", 1.3, False, ratio(outcomes, "pulls", "16x4", RATE))
    sync = ratio(outcomes, "sends-sync", "1 KiB 16x8", RATE)
    yield Goal("sends/s, sync flush, 128 in flight (x Apache)", 1.5, False, sync)
    yield Goal("sends/s over 5,000 topics (x one topic)", 0.9, False, _topics(outcomes))
    yield Goal("delayed sends/s (x Apache)", 1.0, False, ratio(outcomes, "delayed", "100,000 more", RATE))
    yield Goal("CPU growth, 256 to 2,000 connections (x Apache)", 1.0, True, _connections(outcomes))
    yield from _client_goals(outcomes)
    yield Goal("RSS of `ariane up`, idle (MB)", 100, True, _own(outcomes, "start", "empty", "idle_rss_mb", UP))
    yield Goal("seconds until `ariane up` is ready", 1.0, True, _own(outcomes, "start", "empty", "ready_s", UP))


def _latency_goals(outcomes: Outcomes) -> Iterator[Goal]:
    offered = "offered-load"
    half = ratio(outcomes, offered, HALF, "p99_us")
    yield Goal("p99 at half of Apache's maximum (x Apache)", 0.5, True, half)
    for figure in ("p50", "p99"):
        fixed = ratio(outcomes, offered, FIXED, f"{figure}_us")
        yield Goal(f"{figure} at 2,000 sends/s, sync flush (x Apache)", 1.0, True, fixed)
    single = ratio(outcomes, "latency", ASYNC, "p50_us")
    yield Goal("p50 one at a time, async flush (x Apache)", 1.0, True, single)
    push = ratio(outcomes, "push", "one at a time", "p50_us")
    yield Goal("end to end p50, idle (x Apache)", 0.7, True, push)


def _client_goals(outcomes: Outcomes) -> Iterator[Goal]:
    name = "python-clients"
    for case, limit in (("send, batched", 100_000), ("consume", 150_000)):
        yield Goal(f"our client: {case} (messages/s)", limit, False, _own(outcomes, name, case, RATE))
        compared = ratio(outcomes, name, case, RATE, peer=CPP)
        yield Goal(f"our client: {case} (x C++ client)", 2.0, False, compared)


def ratio(
    outcomes: Outcomes, scenario: str, case: str, figure: str, *, ours: str = OURS, peer: str = APACHE
) -> float | None:
    outcome = outcomes.get(scenario)
    name = outcome.peer(peer) if outcome else None
    return outcome.ratio(case, name, figure, ours) if outcome and name else None


def _own(outcomes: Outcomes, scenario: str, case: str, figure: str, ours: str = OURS) -> float | None:
    outcome = outcomes.get(scenario)
    return outcome.median(case, ours, figure) if outcome else None


def _topics(outcomes: Outcomes) -> float | None:
    many, single = (_own(outcomes, "topics", f"{count} topics", RATE) for count in ("5,000", "1"))
    return many / single if many is not None and single else None


def _connections(outcomes: Outcomes) -> float | None:
    """How much more CPU a send takes over 2,000 connections than over 256, as a ratio of Ariane's and Apache's."""
    many, few = (ratio(outcomes, "connections", case, CPU) for case in ("2,000x1", "256x1"))
    return many / few if many is not None and few else None


def verdict(goal: Goal) -> str:
    return {True: "met", False: "missed", None: "not measured"}[goal.is_met]


def goal_lines(outcomes: Outcomes) -> Iterator[str]:
    yield f"{'measure':<52}{'goal':>11}{'reached':>11}  "
    yield from map(line, goals(outcomes))


def line(goal: Goal) -> str:
    limit = f"{goal.sign} {goal.limit:,.6g}"
    reached = "-" if goal.reached is None else f"{goal.reached:,.3g}" if goal.reached < 100 else f"{goal.reached:,.0f}"
    return f"{goal.measure:<52}{limit:>11}{reached:>11}  {verdict(goal)}"
