"""The plots of the report, and the results they show."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.outcome import Outcome
from bench.report.svg import Bars, bar_chart


class Plot(NamedTuple):
    scenario: str
    figure: str
    title: str
    unit: str
    cases: str = ""
    """Only cases with this prefix, which the labels omit."""

    @property
    def file_name(self) -> str:
        return f"{self.scenario}-{self.figure.replace('_', '-')}.svg"


PLOTS = (
    Plot("java-sends", "messages_per_s", "Apache's Java client, binary headers, async flush", "messages/s", "binary "),
    Plot("java-sends", "server_us", "Apache's Java client, binary headers: CPU of the server", "us", "binary "),
    Plot("sends-async", "messages_per_s", "Single sends of 1 KiB, async flush", "messages/s", "1 KiB "),
    Plot("sends-async", "server_us", "CPU of the server for a send of 1 KiB, async flush", "us", "1 KiB "),
    Plot("sends-sync", "messages_per_s", "Single sends of 1 KiB, sync flush", "messages/s", "1 KiB "),
    Plot("offered-load", "p99_us", "p99 at equal offered load, 1 KiB", "us"),
    Plot("batches", "messages_per_s", "Batch sends", "messages/s"),
    Plot("pulls", "messages_per_s", "Pulls of 32 x 1 KiB", "messages/s"),
    Plot("push", "p50_us", "End to end on an idle system, p50", "us"),
    Plot("topics", "messages_per_s", "Single sends of 1 KiB over many topics", "messages/s"),
    Plot("python-clients", "messages_per_s", "Clients for Python, 1 KiB", "messages/s"),
)


def plots(outcomes: Mapping[str, Outcome]) -> Iterator[tuple[Plot, str]]:
    """Those for which there are results."""
    for plot in PLOTS:
        outcome = outcomes.get(plot.scenario)
        if outcome is not None and outcome.samples:
            yield plot, bar_chart(_bars(plot, outcome))


def _bars(plot: Plot, outcome: Outcome) -> Bars:
    cases = [case for case in outcome.cases() if case.startswith(plot.cases)]
    series = {name: [outcome.median(case, name, plot.figure) for case in cases] for name in outcome.systems()}
    return Bars(plot.title, plot.unit, [case.removeprefix(plot.cases) for case in cases], series)
