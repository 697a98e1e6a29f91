"""`ariane learn`: every lesson is run, and says the same in each language."""

import pytest

from ariane.cli.learn.command import LANGUAGES, Commands, Lesson, Text, lessons, parse_lesson
from tests.cli.command_line import CommandLine, Outcome

ENGLISH = lessons("en")


class Pupil(CommandLine):
    def learn(self, *arguments: str) -> Outcome:
        """Without `-n`: a lesson has servers of its own."""
        return self.run_words("learn", *arguments)


@pytest.fixture
def pupil() -> Pupil:
    return Pupil("")


IN_MAKE_TEST = {1, 13}
"""The others are many processes each, and for `make test-long`."""


def lesson_cases() -> list[object]:
    return [
        pytest.param(lesson, id=lesson.name, marks=() if lesson.number in IN_MAKE_TEST else pytest.mark.long)
        for lesson in ENGLISH
    ]


@pytest.mark.parametrize("lesson", lesson_cases())
def test_the_commands_of_a_lesson_work(lesson: Lesson, pupil: Pupil) -> None:
    done = pupil.learn(str(lesson.number), "--lang", "en", "--no-wait")
    assert done.status == 0, done.out + done.err


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_the_same_lessons_with_the_same_commands(language: str) -> None:
    translated = lessons(language)
    assert [(lesson.number, lesson.name) for lesson in translated] == [
        (lesson.number, lesson.name) for lesson in ENGLISH
    ]
    assert [lesson.commands for lesson in translated] == [lesson.commands for lesson in ENGLISH]
    assert all(lesson.commands for lesson in translated)


def test_lessons_are_numbered_without_gaps() -> None:
    assert [lesson.number for lesson in ENGLISH] == list(range(1, len(ENGLISH) + 1))


def test_a_page_is_text_and_commands() -> None:
    page = (
        "# Title\n\nfirst\n\n```text\nshown\n```\n\n```sh\nariane topic list\n```\nlast\n\n```sh exit=3\nfalse\n```\n"
    )
    lesson = parse_lesson(4, "name", page)
    assert (lesson.number, lesson.title) == (4, "Title")
    assert lesson.parts == (
        Text("first\n\n```text\nshown\n```"),
        Commands("ariane topic list\n"),
        Text("last"),
        Commands("false\n", 3),
    )


def test_lessons_are_listed_and_an_unknown_one_is_an_error(pupil: Pupil) -> None:
    listed = pupil.learn("--lang", "zh")
    assert len(listed.lines) == len(ENGLISH) + 1
    unknown = pupil.learn("99")
    assert (unknown.status, "no lesson 99" in unknown.err) == (2, True)
