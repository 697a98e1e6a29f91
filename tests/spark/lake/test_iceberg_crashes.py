"""Drivers killed before and after the commit of an Iceberg table: the next one continues, and each row comes once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.spark.lake.killed_iceberg_driver import VARIABLE
from tests.spark.lake.numbered_lines import add_lines
from tests.spark.lake.test_iceberg import Lake, snapshots_expired
from tests.spark.write.test_exactly_once import PATIENCE_S, ROOT, kill_session

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes to kill in /proc"),
]


@pytest.mark.parametrize(("step", "seen"), [("before", 10), ("after", 20)])
def test_a_driver_killed_at_a_commit_loses_no_row_and_writes_none_twice(tmp_path: Path, step: str, seen: int) -> None:
    lake = Lake(tmp_path)
    for number in range(3):
        add_lines(tmp_path / "source", number)
    assert not ended(lake, step)
    assert len(lake.ids) == seen
    snapshots_expired(lake)
    assert ended(lake, "")
    assert lake.ids == list(range(30))


def ended(lake: Lake, step: str) -> bool:
    """Whether a driver ended by itself; else it was killed, with its JVM and its workers, at the step."""
    reached, log = lake.root / f"reached-{step}", lake.root / f"driver-{step}.log"
    config = {"source": f"{lake.root}/source", "checkpoint": f"{lake.root}/checkpoint", "options": lake.options}
    config |= {"step": step, "reached": str(reached)}
    command = [sys.executable, "-m", "tests.spark.lake.killed_iceberg_driver"]
    variables, deadline = {**os.environ, VARIABLE: json.dumps(config)}, monotonic() + PATIENCE_S
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdout=output, stderr=output, start_new_session=True
        )
        try:
            while process.poll() is None and not reached.exists():
                assert monotonic() < deadline, log.read_text()[-4000:]
                sleep(0.02)
        finally:
            kill_session(process.pid)
            status = process.wait()
    assert reached.exists() or status == 0, log.read_text()[-4000:]
    return not reached.exists()
