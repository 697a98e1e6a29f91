import re
from collections.abc import Callable

import click
import pytest

from ariane import __version__
from ariane.cli.main import ariane, main
from ariane.errors import ArianeError, ListenFailed, RequestFailed, SettingsError


def raising(error: BaseException) -> click.Command:
    def fail() -> None:
        raise error

    return click.Command("fail", callback=fail)


@pytest.fixture
def run_failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a command that raises the given error."""

    def run(error: BaseException, *options: str) -> int:
        monkeypatch.setitem(ariane.commands, "fail", raising(error))
        return main([*options, "fail"])

    return run


@pytest.mark.parametrize(
    ("error", "status"),
    [(SettingsError("bad"), 2), (ListenFailed("bad"), 3), (RequestFailed(1, "bad"), 4), (ArianeError("bad"), 1)],
)
def test_an_error_of_ours_is_one_line_and_its_exit_code(
    run_failing: Callable[..., int], capsys: pytest.CaptureFixture[str], error: ArianeError, status: int
) -> None:
    assert run_failing(error) == status
    assert capsys.readouterr() == ("", f"error: {error}\n")


def test_an_error_alone_in_a_group_is_told_as_itself(
    run_failing: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_failing(ExceptionGroup("tasks", [ExceptionGroup("jobs", [ListenFailed("port in use")])])) == 3
    assert capsys.readouterr().err == "error: port in use\n"


def test_an_unexpected_error_is_one_sentence_with_the_way_to_the_traceback(
    run_failing: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_failing(ValueError("first\nsecond")) == 70
    told = capsys.readouterr().err
    assert told.startswith("error: unexpected ValueError: first second. ")
    assert "--debug" in told
    assert told.count("\n") == 1


def test_debug_shows_the_traceback(run_failing: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_failing(ValueError("bad"), "--debug") == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_the_variable_shows_the_traceback_too(
    run_failing: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARIANE_DEBUG", "1")
    assert run_failing(SettingsError("bad")) == 2
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(13, "Permission denied", "/data/store"), "/data/store: Permission denied"),
        (OSError(28, "No space left on device"), "reading or writing failed: No space left on device"),
    ],
)
def test_a_disk_that_fails_is_no_fault_of_ours(
    run_failing: Callable[..., int], capsys: pytest.CaptureFixture[str], error: OSError, told: str
) -> None:
    assert run_failing(error) == 1
    assert capsys.readouterr().err == f"error: {told}\n"


def test_a_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic"]) == 2
    assert capsys.readouterr().err.startswith("Usage: ariane topic")


def test_ctrl_c_leaves_with_130(run_failing: Callable[..., int]) -> None:
    assert run_failing(KeyboardInterrupt()) == 130


@pytest.mark.parametrize("arguments", [["namesvr"], ["namesrv", "--lisen", "x"], ["namesrv", "extra"], ["--what"]])
def test_wrong_usage_is_one_line_that_names_the_help(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert re.fullmatch(r"error: .*\. Try 'ariane( namesrv)? --help'\.\n", told)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ariane, version {__version__}\n"


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Usage: ariane" in capsys.readouterr().out


@pytest.mark.parametrize("name", ariane.list_commands(click.Context(ariane)))
def test_every_command_has_help_with_an_example_and_a_word_on_each_option(name: str) -> None:
    command = ariane.commands[name]
    assert f"  ariane {name}" in (command.help or "")
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name
