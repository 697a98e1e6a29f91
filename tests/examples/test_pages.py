"""The shell blocks of the guides, run as a reader would: in a directory where an `ariane up` runs."""

import io
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from ariane.cli.classroom import classroom
from ariane.cli.lesson import parse_lesson

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["start.md", "delay.md", "operations.md"])
def test_every_command_of_the_page_does_what_it_says(page: str) -> None:
    lesson = parse_lesson(0, page, (DOCS / page).read_text(encoding="utf-8"))
    assert lesson.commands
    with redirect_stdout(io.StringIO()), classroom() as room:
        for commands in lesson.commands:
            assert room.run(commands.script) == commands.exit_status, commands.script


def test_the_page_of_errors_is_up_to_date() -> None:
    script = DOCS.parent / "scripts" / "errors_docs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
