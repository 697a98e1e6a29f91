"""The exactly-once sink with drivers killed between any two steps and tasks killed in the middle: each row comes once.

A driver has a query for each step. When each query has stopped before its step the driver is killed, with its JVM and
its workers; another one continues from the checkpoints. Every query needs several processes, so these tests are run by
`make test-long`; how the sink handles a repeated batch is tested in test_exactly_once_session.py, in `make test`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.write.crashing_driver import VARIABLE
from tests.spark.write.test_sender import everything

PATIENCE_S = 600
ROWS_PER_BATCH = 40
STEPS = ("half messages sent", "recorded", "some ended", "all ended", "end recorded")
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Driver:
    """`steps` has the target of each query, and the step at which it is killed, in its first batch."""

    cluster: ClusterFixture
    source: Path
    root: Path
    steps: Mapping[str, str]

    def run(self, *, crashes: bool) -> int | None:
        """None when it was killed, with all queries at their steps; else its exit status."""
        queries = {
            target: {
                "step": step if crashes else "",
                "batch": 0,
                "reached": str(self.root / (target if crashes else "never")),
                "kill_task_in": number % 2,
            }
            for number, (target, step) in enumerate(self.steps.items())
        }
        config = {
            "nameserver": self.cluster.nameserver,
            "source": str(self.source),
            "holds": crashes,
            "checkpoints": str(self.root / "checkpoints"),
            "queries": queries,
        }
        with (self.root / f"driver-{crashes}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.write.crashing_driver"],
                cwd=ROOT,
                env={**os.environ, VARIABLE: json.dumps(config)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                self._wait(process, crashes)
            finally:
                is_killed = process.poll() is None
                kill_session(process.pid)
                process.wait()
        return None if is_killed else process.returncode

    def _wait(self, process: "subprocess.Popen[bytes]", crashes: bool) -> None:
        deadline = monotonic() + PATIENCE_S
        while process.poll() is None and not (crashes and self._all_reached()):
            assert monotonic() < deadline, self.logs()
            sleep(0.02)

    def _all_reached(self) -> bool:
        return all((self.root / target).exists() for target in self.steps)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-4000:] for path in sorted(self.root.glob("driver-*.log")))


def kill_session(leader: int) -> None:
    """The driver, its JVM and its Python workers, all at the same time: none may continue for a moment."""
    members = [leader]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[3]) == leader:
            members.append(int(stat.parent.name))
    for member in members:
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            continue


def crash_and_start_again(cluster: ClusterFixture, root: Path, steps: Sequence[str]) -> None:
    source = root / "source"
    source.mkdir()
    bodies = [b"%d" % number for number in range(ROWS_PER_BATCH * 2)]
    for number in range(2):
        of_file = bodies[number * ROWS_PER_BATCH : (number + 1) * ROWS_PER_BATCH]
        (source / f"{number}.txt").write_bytes(b"\n".join(of_file))
    targets = {cluster.topic(queues=2): step for step in steps}
    driver = Driver(cluster, source, root, targets)
    assert driver.run(crashes=True) is None, driver.logs()
    seen = {target: len(everything(cluster, target)) for target in targets}
    assert driver.run(crashes=False) == 0, driver.logs()
    for target, step in targets.items():
        assert sorted(message.body for message in everything(cluster, target)) == sorted(bodies), step
        assert seen[target] in _seen_after(step), step


def _seen_after(step: str) -> range:
    """How many messages a consumer can have seen when the driver was killed there."""
    if step in ("half messages sent", "recorded"):
        return range(1)
    return range(1, ROWS_PER_BATCH) if step == "some ended" else range(ROWS_PER_BATCH, ROWS_PER_BATCH + 1)


pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes to kill in /proc"),
]


def test_a_driver_killed_between_any_two_steps_writes_each_row_once(cluster: ClusterFixture, tmp_path: Path) -> None:
    crash_and_start_again(cluster, tmp_path, STEPS)


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_killed_with_many_queries_at_one_step_writes_each_row_once(
    cluster: ClusterFixture, tmp_path: Path, step: str
) -> None:
    """A task dies in the batch that is killed, or in the one after."""
    crash_and_start_again(cluster, tmp_path, [step] * 2)
