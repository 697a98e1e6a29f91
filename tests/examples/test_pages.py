"""The guides: their shell blocks are run with a running `ariane up`, and all commands in them exist."""

import io
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from ariane.cli.learn.command import parse_lesson
from ariane.cli.learn.sandbox import sandbox
from tests.examples.named_commands import named_commands, problem_of

DOCS = Path(__file__).parents[2] / "docs"
RUN = ("start.md", "delay.md", "operations.md", "replication.md", "transactions.md")


@pytest.mark.parametrize("page", RUN)
def test_every_command_of_the_page_does_what_it_says(page: str) -> None:
    lesson = parse_lesson(0, page, (DOCS / page).read_text(encoding="utf-8"))
    assert lesson.commands
    with redirect_stdout(io.StringIO()), sandbox() as room:
        for commands in lesson.commands:
            assert room.run(commands.script) == commands.exit_status, commands.script


def test_every_command_that_any_page_names_exists() -> None:
    named = {command for page in DOCS.rglob("*.md") for command in named_commands(page.read_text(encoding="utf-8"))}
    assert len(named) > 20
    assert not [fault for fault in map(problem_of, sorted(named)) if fault is not None]


def test_the_page_of_errors_is_up_to_date() -> None:
    script = DOCS.parent / "scripts" / "errors_docs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
