"""The results of a scenario, as stored in bench/results, and their medians."""

import os
import platform
import statistics
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

RESULTS = Path(__file__).resolve().parent / "results"
OURS = "Ariane"
_BUSY_SHARE = 0.5


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    case: str
    system: str
    repeat: int
    figures: dict[str, float]
    note: str = ""


class Outcome(msgspec.Struct, kw_only=True):
    scenario: str
    title: str
    began: str
    machine: str
    cores: int
    load_average: float
    """Over the last minute when the scenario began: the load of other programs on this machine."""
    seconds: float
    repeats: int
    is_quick: bool
    versions: dict[str, str]
    missing: dict[str, str]
    """Systems that are not available or failed, with the reason."""
    samples: list[Sample] = []
    took_s: float = 0.0

    @property
    def was_shared(self) -> bool:
        """Whether other programs used the machine when the scenario began."""
        return self.load_average > _BUSY_SHARE * self.cores

    def cases(self) -> list[str]:
        return list(dict.fromkeys(sample.case for sample in self.samples))

    def systems(self) -> list[str]:
        """Ariane first, then the others in the order of their runs."""
        names = dict.fromkeys(sample.system for sample in self.samples)
        return sorted(names, key=lambda name: (name != OURS, not name.startswith(OURS)))

    def median(self, case: str, system: str, figure: str) -> float | None:
        values = [s.figures[figure] for s in self._of(case, system) if figure in s.figures]
        return statistics.median(values) if values else None

    def ratio(self, case: str, peer: str, figure: str, ours: str = OURS) -> float | None:
        """Ariane / peer."""
        mine, theirs = self.median(case, ours, figure), self.median(case, peer, figure)
        return mine / theirs if mine is not None and theirs else None

    def peer(self, prefix: str) -> str | None:
        """The full name of a system, which may contain its version."""
        return next((name for name in self.systems() if name.startswith(prefix)), None)

    def notes(self) -> list[str]:
        """One per system and case."""
        notes = {(sample.system, sample.case): sample.note for sample in self.samples if sample.note}
        return [f"{system}, {case}: {note}" for (system, case), note in notes.items()]

    def _of(self, case: str, system: str) -> Iterator[Sample]:
        return (sample for sample in self.samples if sample.case == case and sample.system == system)


def machine() -> str:
    """The processor and kernel, on which the figures depend most."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    return f"{os.cpu_count()} cores ({model.partition(': ')[2] or platform.machine()}), Linux {platform.release()}"


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def save(outcome: Outcome, directory: Path = RESULTS) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{outcome.scenario}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(outcome), indent=1) + b"\n")
    return path


def read(path: Path) -> Outcome:
    return msgspec.json.decode(path.read_bytes(), type=Outcome)
