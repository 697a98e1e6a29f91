"""The bench of masters and slaves: their settings, a real pair, and the goals."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.compare import QUICK
from bench.outcome import Outcome, Sample
from bench.report.replication_goals import replication_goal_lines, replication_goals
from bench.scenarios.catalogue import replication_scenarios
from bench.scenarios.replicated import Logs, setups_of
from bench.scenarios.replicated_lag import ReplicatedLag
from bench.scenarios.scenario import Effort
from bench.systems.apache import Apache
from bench.systems.ariane import Ariane
from bench.systems.broker_files import write_settings
from bench.systems.system import Setup

PAIR = "SYNC_MASTER, 1 slave"


def read_settings(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_a_slave_has_the_name_of_its_master_and_an_id_of_its_own(tmp_path: Path) -> None:
    setup = setups_of((PAIR,))[PAIR]
    master = read_settings(write_settings(tmp_path / "m", "a", "127.0.0.1:1", 20_000, setup))
    slave = read_settings(write_settings(tmp_path / "s", "a", "127.0.0.1:1", 20_010, setup, 1))
    assert (master["brokerRole"], master["brokerId"]) == ("SYNC_MASTER", "0")
    assert (slave["brokerRole"], slave["brokerId"]) == ("SLAVE", "1")
    assert master["brokerName"] == slave["brokerName"]


def test_a_broker_alone_has_no_settings_of_replication(tmp_path: Path) -> None:
    assert "brokerRole" not in read_settings(write_settings(tmp_path, "a", "127.0.0.1:1", 20_000, Setup()))


def test_apache_is_measured_with_one_slave_at_most() -> None:
    sends = replication_scenarios()[0]
    measured = [label for label in sends.setups(QUICK) if sends.has_setup(Apache(), label)]
    assert measured == ["alone", "ASYNC_MASTER, 1 slave", "SYNC_MASTER, 1 slave"]
    assert len([label for label in sends.setups(QUICK) if sends.has_setup(Ariane(), label)]) == 5


def test_a_slave_that_follows_is_measured_on_a_real_pair(tmp_path: Path) -> None:
    scenario = ReplicatedLag()
    (setup,) = scenario.setups(QUICK).values()
    effort = Effort(seconds=0.3, warm_s=0.3, warm_max_s=0.3, rounds=1, is_quick=True)
    with ExitStack() as stack:
        running = stack.enter_context(Ariane().start(setup, tmp_path / "home"))
        cases = scenario.begin(running, "", effort, stack)
        measured = cases["10,000/s"]()
        logs = Logs(running)
        logs.await_equal()
        assert logs.master.read() == logs.slaves[0].read() > 0
    assert measured.figures["slave_us"] > 0
    assert measured.figures["lag_p99_kb"] > 0
    assert measured.figures["refused"] == 0


# --- goals ------------------------------------------------------------------------------------------------------------


def outcome(scenario: str, figure: str, values: dict[tuple[str, str], float]) -> Outcome:
    samples = [
        Sample(case=case, system=system, repeat=0, figures={figure: value}) for (case, system), value in values.items()
    ]
    return Outcome(
        scenario=scenario, title="", began="", machine="", cores=2, load_average=0.0, seconds=1.0, repeats=1,
        is_quick=False, versions={}, missing={}, samples=samples,
    )  # fmt: skip


def test_the_cpu_of_a_master_is_compared_with_a_broker_alone() -> None:
    measured = outcome(
        "replication-async",
        "server_us",
        {("16x16, alone", "Ariane"): 10.0, ("16x16, ASYNC_MASTER, 2 slaves", "Ariane"): 11.0},
    )
    goals = {goal.measure: goal for goal in replication_goals({"replication-async": measured})}
    reached = goals["CPU, ASYNC_MASTER, 2 slaves, 16x16, async flush (x alone)"]
    assert reached.reached == pytest.approx(1.1)
    assert reached.is_met
    assert goals["CPU, SYNC_MASTER, 2 slaves, 16x16, async flush (x alone)"].is_met is None


def test_a_latency_is_compared_with_that_of_a_broker_alone() -> None:
    measured = outcome(
        "replication-latency",
        "p50_us",
        {("one at a time, alone", "Ariane"): 100.0, ("one at a time, SYNC_MASTER, 1 slave", "Ariane"): 900.0},
    )
    lines = list(replication_goal_lines({"replication-latency": measured}))
    (line,) = [line for line in lines if line.endswith("missed")]
    assert line.split()[-3:] == ["0.5", "0.8", "missed"]


def test_a_goal_speaks_of_a_scenario_that_exists() -> None:
    names = {scenario.name for scenario in replication_scenarios()}
    requested: set[str] = set()

    class Recorder(dict[str, Outcome]):
        def get(self, key: str, default: object = None) -> None:  # type: ignore[override]
            requested.add(key)

    list(replication_goals(Recorder()))
    assert requested
    assert requested <= names
