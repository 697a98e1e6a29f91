"""Runs scenarios: all systems one after the other, in alternating order, each on a fresh store."""

import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.outcome import Outcome, Sample, machine, now
from bench.scenarios.scenario import Effort, Scenario
from bench.systems.ariane import Ariane
from bench.systems.system import Missing, Running, Setup, System
from interop.processes import InteropError


class Comparison:
    def __init__(self, peers: Sequence[System], brokers: int, effort: Effort) -> None:
        self._load_average = os.getloadavg()[0]  # here, because later it is mostly that of the previous scenario
        self._effort = effort
        self._missing: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._ariane = Ariane()
        self._many = Ariane(brokers) if brokers > 1 else None
        self._peers = [peer for peer in (*peers, self._ariane) if self._is_available(peer)]

    @property
    def missing(self) -> dict[str, str]:
        return dict(self._missing)

    @property
    def versions(self) -> dict[str, str]:
        return dict(self._versions)

    def _is_available(self, system: System) -> bool:
        try:
            self._versions[system.name] = system.prepare()
        except Missing as error:
            self._missing[system.name] = str(error)
        return system.name in self._versions

    def run(self, scenario: Scenario) -> Outcome:
        outcome = Outcome(
            scenario=scenario.name,
            title=scenario.title,
            began=now(),
            machine=machine(),
            cores=os.cpu_count() or 1,
            load_average=self._load_average,
            seconds=self._effort.seconds,
            repeats=self._effort.repeats,
            is_quick=self._effort.is_quick,
            versions=self.versions,
            missing=self.missing,
        )
        systems = self._systems(scenario)
        self._calibrate(scenario, systems)
        for repeat in range(self._effort.repeats):
            for system in systems if repeat % 2 == 0 else reversed(systems):
                self._try(scenario, system, repeat, outcome)
        return outcome

    def _systems(self, scenario: Scenario) -> list[System]:
        systems: list[System] = [self._ariane, *scenario.more_systems]
        if scenario.many_brokers and self._many is not None:
            systems.append(self._many)
        if not scenario.only_ariane:
            systems += [peer for peer in self._peers if peer is not self._ariane and peer.wire in scenario.wires]
        return systems

    def _calibrate(self, scenario: Scenario, systems: Sequence[System]) -> None:
        if scenario.calibrated_on:
            system = next((system for system in systems if system.key == scenario.calibrated_on), systems[0])
            with started(system, Setup()) as running:
                scenario.calibrate(running, self._effort)

    def _try(self, scenario: Scenario, system: System, repeat: int, outcome: Outcome) -> None:
        """A system that fails is reported as missing, and the others continue."""
        try:
            for sample in self._samples(scenario, system, repeat):
                outcome.samples.append(sample)
        except (InteropError, OSError, ValueError, RuntimeError) as error:
            outcome.missing[system.name] = f"{type(error).__name__}: {error}"

    def _samples(self, scenario: Scenario, system: System, repeat: int) -> Iterator[Sample]:
        for label, setup in scenario.setups(self._effort).items():
            with started(system, setup) as running:
                for measured in scenario.measure(running, label, self._effort):
                    name = measured.system or system.name
                    yield Sample(
                        case=measured.case, system=name, repeat=repeat, figures=measured.figures, note=measured.note
                    )


@contextmanager
def started(system: System, setup: Setup) -> Iterator[Running]:
    """On a fresh store, which is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="ariane-bench-", ignore_cleanup_errors=True) as home:
        with system.start(setup, Path(home) / "home") as running:
            try:
                yield running
            finally:
                _kill(running)


def _kill(running: Running) -> None:
    """The store is not read again, and a clean shutdown of Apache takes 15 seconds."""
    for pid in (*running.servers, *running.others):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
