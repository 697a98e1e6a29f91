"""The base of all scenarios: supported systems, setup, measurements, and the columns of the table."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from bench.load.plan import LoadResult, Wire
from bench.systems.system import Running, Setup, System

EVERY_WIRE = frozenset(Wire)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Duration and number of measurements."""

    seconds: float
    warm_s: float
    """The least before the first case of each kind on a fresh server: Java compiles hot code first."""
    warm_max_s: float
    """The most, if CPU for a message is not steady before."""
    rounds: int
    is_quick: bool = False
    """A smoke run: the fewest cases and the smallest numbers that still run all the code."""
    case_part: str = ""
    """Only cases whose names contain it."""
    is_profiled: bool = False
    """After all rounds each case runs once more on Ariane, for a profile."""

    def wants(self, case: str) -> bool:
        return self.case_part in case


class Column(NamedTuple):
    figure: str
    heading: str
    form: str = ",.0f"
    ratio: bool = False
    """Whether Ariane / peer is shown for it."""


class Measured(NamedTuple):
    case: str
    figures: dict[str, float]
    system: str | None = None
    """If something else than the running system was measured."""
    note: str = ""
    """A remark for the reader, for example why requests were refused."""


Cases = Mapping[str, Callable[[], Measured]]
"""The cases of a scenario on one system: each measures once, in each round."""

LOAD_COLUMNS = (
    Column("messages_per_s", "messages/s", ratio=True),
    Column("server_us", "CPU us", ".1f", ratio=True),
    Column("p50_us", "p50 us"),
    Column("p99_us", "p99 us", ratio=True),
    Column("p999_us", "p99.9 us"),
    Column("rss_mb", "RSS MB"),
    Column("generator_us", "gen. us", ".1f"),
    Column("refused", "refused"),
)


LATENCY_COLUMNS = tuple(column._replace(ratio=True) if column.figure == "p50_us" else column for column in LOAD_COLUMNS)


class Scenario:
    name: str
    title: str
    wires: frozenset[Wire] = EVERY_WIRE
    many_brokers: bool = False
    """Whether several broker processes of Ariane are measured as well."""
    only_ariane: bool = False
    alone: bool = False
    """Whether each round starts each system anew, with nothing else running. Otherwise all run, and take turns."""
    room_gb: int = 8
    """On the disk, for what all systems together keep until its end."""
    rounds_max: int = 1_000
    """For scenarios that take long and whose figures hardly vary."""
    more_systems: tuple[System, ...] = ()
    """Further systems that only this scenario measures."""
    calibrated_on: str = ""
    """The key of the peer that begins first, because parameters of the measurements depend on it."""
    columns: tuple[Column, ...] = LOAD_COLUMNS

    def rounds(self, effort: Effort) -> int:
        return min(effort.rounds, self.rounds_max)

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        """A system is started once for each; `begin` gets its key."""
        return {"": Setup()}

    def has_setup(self, system: System, label: str) -> bool:
        """Whether this system is measured with the setup of this key."""
        return True

    def open(self, stack: ExitStack, effort: Effort) -> None:
        """Starts what all systems of the scenario share; the stack closes it."""

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        """Prepares a system, warms it up, and returns what is measured on it; the stack is closed with the system. On
        the peer `calibrated_on` first."""
        raise NotImplementedError


def load_figures(result: LoadResult, running: Running) -> dict[str, float]:
    """When every request was refused, there are no messages that CPU and time were spent on."""
    accepted = {
        "server_us": result.server_us,
        "generator_us": result.own_us,
        "p50_us": result.p50_us,
        "p99_us": result.p99_us,
        "p999_us": result.p999_us,
    }
    return {
        "messages_per_s": result.messages_per_s,
        "rss_mb": running.rss_bytes() / 1e6,
        "rss_anon_mb": running.rss_bytes("RssAnon") / 1e6,
        "refused": result.refused,
    } | (accepted if result.messages else {})
