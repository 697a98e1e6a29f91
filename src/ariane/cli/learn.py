"""`ariane learn`: short lessons on how a broker works inside, each run against a throw-away one."""

import os
import sys
from typing import TYPE_CHECKING

import click

from ariane.cli.lesson import LANGUAGES, Commands, Lesson, find_lesson, lessons
from ariane.cli.render import Form, output_option, render

if TYPE_CHECKING:
    from rich.console import Console

    from ariane.cli.classroom import Classroom

_WORDS = {
    "en": ("Enter: run it   s: skip   q: quit", "The lesson stopped: that ended with {status} instead of {wanted}."),
    "zh": ("回车：执行   s：跳过   q：退出", "课程中止：退出码是 {status}，应当是 {wanted}。"),
}


def _default_language() -> str:
    return "zh" if os.environ.get("LC_ALL", os.environ.get("LANG", "")).startswith("zh") else "en"


@click.command(short_help="Learn how a broker works inside, in lessons that run.")
@click.argument("number", type=int, required=False)
@click.option("--lang", "language", type=click.Choice(LANGUAGES), default=_default_language, help="English or Chinese.")
@click.option("--no-wait", is_flag=True, help="Run the commands without asking before each.")
@output_option()
def learn(number: int | None, language: str, no_wait: bool, form: Form) -> int:
    """Learn how a message broker works inside, by commands that show it. Without NUMBER: the list of lessons.

    A lesson starts servers of its own in a throw-away directory, shows each command before it runs, and leaves nothing
    behind. The exit code is 1 when a command does not do what the lesson says.

    \b
    Examples:
      ariane learn
      ariane learn 7
      ariane learn 7 --lang zh --no-wait
    """
    if number is None:
        render(({"lesson": one.number, "title": one.title} for one in lessons(language)), form)
        return 0
    return _teach(find_lesson(number, language), language, asks=sys.stdin.isatty() and not no_wait)


def _teach(lesson: Lesson, language: str, *, asks: bool) -> int:
    from rich.console import Console
    from rich.markdown import Markdown

    from ariane.cli.classroom import classroom

    console = Console()
    console.print(Markdown(f"# {lesson.number}. {lesson.title}"))
    with classroom() as room:
        for part in lesson.parts:
            if not isinstance(part, Commands):
                console.print(Markdown(part.markdown))
                continue
            answer = _show(console, part, language if asks else None)
            if answer == "q":
                return 0
            if answer != "s" and not _run(room, part, console, language):
                return 1
    return 0


def _show(console: "Console", part: Commands, language: str | None) -> str:
    """The answer of the reader, who is asked in `language`."""
    console.print()
    for line in part.script.splitlines():
        console.print(f"$ {line}", style="bold", markup=False, highlight=False, soft_wrap=True)
    return "" if language is None else console.input(f"[dim]{_WORDS[language][0]}[/] ").strip().lower()


def _run(room: "Classroom", part: Commands, console: "Console", language: str) -> bool:
    status = room.run(part.script)
    console.print()
    if status == part.exit_status:
        return True
    told = _WORDS[language][1].format(status=status, wanted=part.exit_status)
    click.echo(f"error: {told}", err=True)
    return False
