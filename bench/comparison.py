"""Runs scenarios: all systems are up and warm, and take turns case by case in alternating order, the others stopped."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product

from bench.contestant import Contestant, enter, in_turn, started, turn
from bench.java.program import LoadFailed
from bench.load.plan import Wire
from bench.outcome import OURS, Outcome, Sample, machine, now
from bench.profiles import profiled
from bench.scenarios.scenario import Effort, Measured, Scenario
from bench.systems.ariane import Ariane
from bench.systems.system import Missing, System
from interop.processes import InteropError

OUR_WIRE = Wire.ROCKETMQ
"""Systems that speak another protocol are measured in every second round: no goal but one compares with them."""
FAILURES = (InteropError, LoadFailed, OSError, ValueError, RuntimeError)


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
        began = time.perf_counter()
        outcome = Outcome(
            scenario=scenario.name,
            title=scenario.title,
            began=now(),
            machine=machine(),
            cores=os.cpu_count() or 1,
            load_average=self._load_average,
            seconds=self._effort.seconds,
            repeats=scenario.rounds(self._effort),
            is_quick=self._effort.is_quick,
            versions=self.versions,
            missing=self.missing,
        )
        _Run(scenario, self._effort, outcome).run(self._systems(scenario))
        outcome.took_s = time.perf_counter() - began
        return outcome

    def _systems(self, scenario: Scenario) -> list[System]:
        systems: list[System] = [self._ariane, *scenario.more_systems]
        if scenario.many_brokers and self._many is not None:
            systems.append(self._many)
        if not scenario.only_ariane:
            systems += [peer for peer in self._peers if peer is not self._ariane and peer.wire in scenario.wires]
        return systems


class _Run:
    """One scenario. A system that fails is reported as missing, and the others continue."""

    def __init__(self, scenario: Scenario, effort: Effort, outcome: Outcome) -> None:
        self._scenario = scenario
        self._effort = effort
        self._outcome = outcome
        self._contestants: list[Contestant] = []

    def run(self, systems: Sequence[System]) -> None:
        with ExitStack() as stack, self._or_missing(self._scenario.name):
            self._scenario.open(stack, self._effort)
            if self._scenario.alone:
                self._alone(systems)
            else:
                self._together(systems, stack)

    def _together(self, systems: Sequence[System], stack: ExitStack) -> None:
        """All are started and warmed up once, and then take turns."""
        for system, (label, setup) in product(systems, self._scenario.setups(self._effort).items()):
            if not self._scenario.has_setup(system, label):
                continue
            with self._or_missing(system.name):
                contestant = enter(system, label, setup)
                stack.callback(contestant.close)
                contestant.stop()
                self._contestants.append(contestant)
        for contestant in self._calibrated_first():
            self._begin(contestant)
        for number in range(self._outcome.repeats):
            for index, case in enumerate(self._case_names()):
                for contestant in in_turn(self._contestants, number + index):
                    self._measure(contestant, case, number)
        if self._effort.is_profiled:
            self._profile()

    def _calibrated_first(self) -> list[Contestant]:
        return sorted(self._contestants, key=lambda contestant: contestant.system.key != self._scenario.calibrated_on)

    def _begin(self, contestant: Contestant) -> None:
        with self._or_missing(contestant.system.name), turn(contestant):
            cases = self._scenario.begin(contestant.running, contestant.label, self._effort, contestant.stack)
            contestant.cases = {case: measure for case, measure in cases.items() if self._effort.wants(case)}

    def _case_names(self) -> list[str]:
        return list(dict.fromkeys(case for contestant in self._contestants for case in contestant.cases))

    def _measure(self, contestant: Contestant, case: str, number: int) -> None:
        measure = contestant.cases.get(case)
        if measure is not None and (contestant.system.wire is OUR_WIRE or number % 2 == 0):
            with self._or_missing(contestant.system.name, contestant), turn(contestant):
                self._keep(contestant.system, measure(), number)

    def _profile(self) -> None:
        for contestant in self._contestants:
            if contestant.system.name == OURS:
                for case, measure in contestant.cases.items():
                    with turn(contestant), profiled(contestant.running.servers[0], f"{self._scenario.name}, {case}"):
                        measure()

    def _alone(self, systems: Sequence[System]) -> None:
        """Each is started on a fresh store for each round, and nothing else runs."""
        for number in range(self._outcome.repeats):
            for system in in_turn(systems, number):
                for label, setup in self._scenario.setups(self._effort).items():
                    if not self._scenario.has_setup(system, label):
                        continue
                    with self._or_missing(system.name), started(system, setup) as running, ExitStack() as stack:
                        for measure in self._scenario.begin(running, label, self._effort, stack).values():
                            self._keep(system, measure(), number)

    def _keep(self, system: System, measured: Measured, number: int) -> None:
        name = measured.system or system.name
        sample = Sample(case=measured.case, system=name, repeat=number, figures=measured.figures, note=measured.note)
        self._outcome.samples.append(sample)

    @contextmanager
    def _or_missing(self, name: str, contestant: Contestant | None = None) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            self._outcome.missing[name] = f"{type(error).__name__}: {error}"
            if contestant is not None:
                contestant.cases = {}
                contestant.close()
