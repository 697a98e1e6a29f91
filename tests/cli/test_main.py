"""The root command: errors as one line and an exit status, usage, version, help."""

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
def test_an_ariane_error_is_one_line_with_its_exit_code(
    run_failing: Callable[..., int], capsys: pytest.CaptureFixture[str], error: ArianeError, status: int
) -> None:
    assert run_failing(error) == status
    assert capsys.readouterr() == ("", f"error: {error}\n")


def test_a_single_error_in_a_group_is_unwrapped(
    run_failing: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_failing(ExceptionGroup("tasks", [ExceptionGroup("jobs", [ListenFailed("port in use")])])) == 3
    assert capsys.readouterr().err == "error: port in use\n"


def test_an_unexpected_error_is_one_line_that_mentions_debug(
    run_failing: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_failing(ValueError("first\nsecond")) == 70
    err = capsys.readouterr().err
    assert err.startswith("error: unexpected ValueError: first second. ")
    assert "--debug" in err
    assert err.count("\n") == 1


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
    ("error", "expected"),
    [
        (PermissionError(13, "Permission denied", "/data/store"), "/data/store: Permission denied"),
        (OSError(28, "No space left on device"), "reading or writing failed: No space left on device"),
    ],
)
def test_a_disk_error_is_not_reported_as_a_bug(
    run_failing: Callable[..., int], capsys: pytest.CaptureFixture[str], error: OSError, expected: str
) -> None:
    assert run_failing(error) == 1
    assert capsys.readouterr().err == f"error: {expected}\n"


def test_a_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic"]) == 2
    assert capsys.readouterr().err.startswith("Usage: ariane topic")


def test_ctrl_c_leaves_with_130(run_failing: Callable[..., int]) -> None:
    assert run_failing(KeyboardInterrupt()) == 130


@pytest.mark.parametrize("arguments", [["namesvr"], ["namesrv", "--lisen", "x"], ["namesrv", "extra"], ["--what"]])
def test_wrong_usage_is_one_line_that_names_the_help(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert re.fullmatch(r"error: .*\. Try 'ariane( namesrv)? --help'\.\n", err)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ariane, version {__version__}\n"


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Usage: ariane" in capsys.readouterr().out


@pytest.mark.parametrize("name", ariane.list_commands(click.Context(ariane)))
def test_every_command_has_an_example_and_help_for_each_option(name: str) -> None:
    command = ariane.commands[name]
    assert f"  ariane {name}" in (command.help or "")
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name
