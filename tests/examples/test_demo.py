import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from examples.demo import KINDS, run
from examples.demo_stage import Row, Stage
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
    for kind in KINDS:
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
    assert "bad rows kept apart" in done.stdout


async def test_a_kind_that_fails_is_a_row_that_says_so() -> None:
    async def broken(stage: Stage) -> Row:
        raise ValueError("no such luck")

    nowhere = cast(Stage, None)
    assert await run(nowhere, "broken", broken) == ("broken", Row(0, 0, "ValueError: no such luck", ok=False))
