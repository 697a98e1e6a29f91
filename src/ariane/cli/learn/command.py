"""`ariane learn`: short lessons on how a broker works inside, each run against a temporary broker.

A lesson is a Markdown page. `ariane learn` runs its `sh` blocks, one by one.

    # Push is pull                    the title
    Text that is shown.
    ```sh                             commands that are shown, then run by a shell
    ariane send orders hello
    ```
    ```sh exit=1                      commands that end with this exit status; 0 by default
    ```text                           any other block is only shown

The pages are docs/internals/NN-name.md, and docs/internals/zh/NN-name.md in Chinese; the wheel has them in
ariane/lessons. Both languages have the same lessons with the same commands; a test checks this.
"""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

import ariane
from ariane.cli.common.output import OutputFormat, output_option, render
from ariane.errors import SettingsError

if TYPE_CHECKING:
    from rich.console import Console

    from ariane.cli.learn.sandbox import Sandbox


LANGUAGES = ("en", "zh")

_NAME = re.compile(r"(\d\d)-([a-z0-9-]+)\.md")
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```[ ]*$\n?", re.MULTILINE | re.DOTALL)
_RUN = re.compile(r"sh(?: exit=(\d+))?")


@dataclass(frozen=True, slots=True)
class Text:
    markdown: str


@dataclass(frozen=True, slots=True)
class Commands:
    script: str
    exit_status: int = 0


Part = Text | Commands


@dataclass(frozen=True, slots=True)
class Lesson:
    number: int
    name: str
    title: str
    parts: tuple[Part, ...]

    @property
    def commands(self) -> list[Commands]:
        return [part for part in self.parts if isinstance(part, Commands)]


def lessons(language: str) -> list[Lesson]:
    """Ordered by number."""
    directory = _pages() if language == "en" else _pages() / language
    pages = sorted(directory.glob("*.md"))
    named = ((_NAME.fullmatch(page.name), page) for page in pages)
    return [parse_lesson(int(name[1]), name[2], page.read_text("utf-8")) for name, page in named if name]


def _pages() -> Path:
    """In the installed package, or in the clone of an editable install."""
    package = Path(ariane.__file__).parent
    installed = package / "lessons"
    return installed if installed.is_dir() else package.parents[1] / "docs" / "internals"


def find_lesson(number: int, language: str) -> Lesson:
    by_number = {lesson.number: lesson for lesson in lessons(language)}
    if number not in by_number:
        raise SettingsError(
            f"there is no lesson {number}: lessons are 1 to {max(by_number)}; `ariane learn` lists them"
        )
    return by_number[number]


def parse_lesson(number: int, name: str, page: str) -> Lesson:
    title, _, rest = page.partition("\n")
    return Lesson(number, name, title.removeprefix("# ").strip(), tuple(_parts(rest)))


def _parts(page: str) -> Iterator[Part]:
    """Splits at the blocks that are run; other blocks belong to the text."""
    text_start = 0
    for fence in _FENCE.finditer(page):
        run = _RUN.fullmatch(fence["info"].strip())
        if run is None:
            continue
        if text := page[text_start : fence.start()].strip():
            yield Text(text)
        yield Commands(fence["body"], int(run[1] or 0))
        text_start = fence.end()
    if text := page[text_start:].strip():
        yield Text(text)


# --- command ---

_PROMPTS = {
    "en": ("Enter: run it   s: skip   q: quit", "the lesson stopped: exit status {status} instead of {expected}"),
    "zh": ("回车：执行   s：跳过   q：退出", "课程中止：退出码是 {status}，应当是 {expected}。"),
}


def _default_language() -> str:
    return "zh" if os.environ.get("LC_ALL", os.environ.get("LANG", "")).startswith("zh") else "en"


@click.command(short_help="Learn how a broker works inside, in lessons that run.")
@click.argument("number", type=int, required=False)
@click.option("--lang", "language", type=click.Choice(LANGUAGES), default=_default_language, help="English or Chinese.")
@click.option("--no-wait", is_flag=True, help="Run all commands without waiting for Enter.")
@output_option()
def learn(number: int | None, language: str, no_wait: bool, output: OutputFormat) -> int:
    """Learn how a message broker works inside, by running commands. Without NUMBER: list the lessons.

    A lesson starts its own servers in a temporary directory, shows each command before it runs, and leaves nothing
    behind. Exits with 1 if a command does not end as the lesson expects.

    \b
    Examples:
      ariane learn
      ariane learn 7
      ariane learn 7 --lang zh --no-wait
    """
    if number is None:
        render(({"lesson": lesson.number, "title": lesson.title} for lesson in lessons(language)), output)
        return 0
    return _teach(find_lesson(number, language), language, asks=sys.stdin.isatty() and not no_wait)


def _teach(lesson: Lesson, language: str, *, asks: bool) -> int:
    from rich.console import Console
    from rich.markdown import Markdown

    from ariane.cli.learn.sandbox import sandbox

    console = Console()
    console.print(Markdown(f"# {lesson.number}. {lesson.title}"))
    with sandbox() as box:
        for part in lesson.parts:
            if not isinstance(part, Commands):
                console.print(Markdown(part.markdown))
                continue
            response = _show(console, part, language if asks else None)
            if response == "q":
                return 0
            if response != "s" and not _run(box, part, console, language):
                return 1
    return 0


def _show(console: "Console", part: Commands, language: str | None) -> str:
    """Shows the commands and returns the key that the reader presses; no prompt if `language` is None."""
    console.print()
    for line in part.script.splitlines():
        console.print(f"$ {line}", style="bold", markup=False, highlight=False, soft_wrap=True)
    return "" if language is None else console.input(f"[dim]{_PROMPTS[language][0]}[/] ").strip().lower()


def _run(box: "Sandbox", part: Commands, console: "Console", language: str) -> bool:
    status = box.run(part.script)
    console.print()
    if status == part.exit_status:
        return True
    problem = _PROMPTS[language][1].format(status=status, expected=part.exit_status)
    click.echo(f"error: {problem}", err=True)
    return False
