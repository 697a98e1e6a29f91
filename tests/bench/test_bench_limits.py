"""The limits bench, with small numbers."""

import re
import subprocess
import sys


def test_the_bench_runs_to_its_end() -> None:
    counts = {"topics": 50, "groups": 40, "connections": 20, "pulls": 60, "sends": 20}
    options = [word for name, count in counts.items() for word in (f"--{name}", str(count))]
    run = subprocess.run(
        [sys.executable, "-m", "bench.limits", *options], capture_output=True, text=True, timeout=120, check=True
    )
    steps = [line.split("|")[1].strip() for line in run.stdout.splitlines()]
    assert steps[0] == "start with 50 topics and 40 groups with offsets"
    assert "60 waiting pulls" in steps
    assert steps[-1].startswith("100 strangers")
    assert len(re.findall(r"\| \d+ \| \d+\.\d\d \| \d+\.\d\d \|", run.stdout)) == 6
