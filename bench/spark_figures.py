"""The figures of bench/spark.py: saved in bench/results/spark.json, shown in docs/performance.md."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from bench.outcome import RESULTS, machine, now

KEPT = RESULTS / "spark.json"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    run: str
    """Time and parameters of the run: parts of the bench may be run separately."""

    @property
    def goal(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    @property
    def verdict(self) -> str:
        if not self.goal:
            return ""
        is_met = self.value >= (self.at_least or 0) and (self.at_most is None or self.value <= self.at_most)
        return "met" if is_met else "missed"

    def line(self) -> str:
        shown = f"{self.value:,.0f}" if self.value >= 1000 else f"{self.value:,.3g}"
        return f"{self.name:<52}{shown:>10} {self.unit:<14}{self.goal:<9}{self.verdict}".rstrip()


class Kept(msgspec.Struct, kw_only=True):
    machine: str
    spark: str
    figures: list[Figure]

    def lines(self) -> Iterator[str]:
        """As a table, with a line above those of one run."""
        run = ""
        for figure in self.figures:
            if figure.run != run:
                run = figure.run
                yield run if figure is self.figures[0] else f"\n{run}"
            yield f"  {figure.line()}"


def read_kept(path: Path = KEPT) -> Kept | None:
    return msgspec.json.decode(path.read_bytes(), type=Kept) if path.exists() else None


def keep(figures: Iterable[Figure], spark: str, path: Path = KEPT) -> None:
    """New figures replace those of the same name; the others stay."""
    before = read_kept(path)
    known = {figure.name: figure for figure in (before.figures if before is not None else ())}
    for figure in figures:
        known.pop(figure.name, None)
        known[figure.name] = figure
    path.parent.mkdir(exist_ok=True)
    kept = Kept(machine=machine(), spark=spark, figures=list(known.values()))
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


def run_name(load_average: float, **settings: object) -> str:
    """The description of one run, with the load of the machine before it, which shows how reliable the figures are."""
    parameters = ", ".join(f"{name} {value}" for name, value in settings.items())
    return f"{now()}, load average {load_average:.1f} before, {parameters}"
