import os
import subprocess
import sys
from pathlib import Path
from typing import cast

from examples.demo import KINDS, run
from examples.demo_stage import Row, Stage
from tests.examples.snippets import ROOT


def test_the_demo_shows_every_kind_of_message_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in KINDS:
        (line,) = [line for line in done.stdout.splitlines() if line.split("  ")[1:2] == [kind]]
        assert line.rstrip().endswith("✓"), line
    assert "✗" not in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


async def test_a_kind_that_fails_is_a_row_that_says_so() -> None:
    async def broken(stage: Stage) -> Row:
        raise ValueError("no such luck")

    nowhere = cast(Stage, None)
    assert await run(nowhere, "broken", broken) == ("broken", Row(0, 0, "ValueError: no such luck", ok=False))
