"""A lesson: a page of Markdown whose `sh` blocks are run, one by one, by whoever reads it with `ariane learn`.

    # Push is pull                    the title
    Text that is shown.
    ```sh                             commands that are shown, then run by a shell
    ariane send orders hello
    ```
    ```sh exit=1                      commands that end with this code; 0 unless it says so
    ```text                           any other block is only shown

The pages are docs/internals/NN-name.md, and docs/internals/zh/NN-name.md in Chinese; the wheel carries them as
ariane/lessons. In each language there are the same lessons with the same commands; a test keeps them so.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ariane
from ariane.errors import SettingsError

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
    """In their order."""
    directory = _pages() if language == "en" else _pages() / language
    pages = sorted(directory.glob("*.md"))
    named = ((_NAME.fullmatch(page.name), page) for page in pages)
    return [parse_lesson(int(name[1]), name[2], page.read_text("utf-8")) for name, page in named if name]


def _pages() -> Path:
    """In the installed package, or in the clone that an editable install points to."""
    package = Path(ariane.__file__).parent
    installed = package / "lessons"
    return installed if installed.is_dir() else package.parents[1] / "docs" / "internals"


def find_lesson(number: int, language: str) -> Lesson:
    known = {lesson.number: lesson for lesson in lessons(language)}
    if number not in known:
        raise SettingsError(f"there is no lesson {number}: `ariane learn` lists those from 1 to {max(known)}")
    return known[number]


def parse_lesson(number: int, name: str, page: str) -> Lesson:
    title, _, rest = page.partition("\n")
    return Lesson(number, name, title.removeprefix("# ").strip(), tuple(_parts(rest)))


def _parts(page: str) -> Iterator[Part]:
    """Text up to the next block that is run; other blocks belong to the text."""
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
