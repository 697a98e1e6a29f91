"""The demo in examples/: it succeeds, and leaves no files."""

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from examples.demo import DEMOS, run
from examples.demo_common import DemoCluster, Result
from tests.examples.snippets import ROOT


def demo(tmp_path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "examples.demo", *options],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )


def test_the_demo_shows_every_kind_of_message_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = demo(tmp_path, "--without-spark")
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in DEMOS:
        (line,) = [line for line in done.stdout.splitlines() if line.split("  ")[1:2] == [kind]]
        assert line.rstrip().endswith("✓"), line
    assert "✗" not in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_the_demo_with_its_stream_through_spark(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "turnover by window and region" in done.stdout
    assert "bad rows to dead letters" in done.stdout


async def test_a_demo_that_fails_is_reported_in_its_row() -> None:
    async def broken(cluster: DemoCluster) -> Result:
        raise ValueError("on purpose")

    cluster = cast(DemoCluster, None)
    assert await run(cluster, "broken", broken) == ("broken", Result(0, 0, "ValueError: on purpose", ok=False))
