"""`ariane config set` against a running broker."""

from collections.abc import Callable

import pytest

from ariane.cli.main import main
from ariane.testing.broker import BrokerForTests
from tests.cli.command_line import CommandLine, Outcome

Run = Callable[..., Outcome]


@pytest.fixture
def run_here(shared_broker: BrokerForTests, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process, which is faster than starting one."""

    def run(*arguments: str) -> Outcome:
        status = main([*arguments, "-n", shared_broker.namesrv])
        printed = capsys.readouterr()
        return Outcome(status, printed.out, printed.err)

    return run


def value(run_here: Run, name: str) -> str:
    (row,) = run_here("broker", "config", "get", name, "-o", "json").rows
    return str(row["value"])


def test_changes_are_shown_before_the_confirmation(command: CommandLine, run_here: Run) -> None:
    before = value(run_here, "fileReservedTime")
    screen = command.on_terminal("config", "set", "fileReservedTime=33", keys="n\n")
    assert screen.status == 1
    assert before in screen.out
    assert value(run_here, "fileReservedTime") == before
    screen = command.on_terminal("config", "set", "fileReservedTime=33", keys="y\n")
    assert (screen.status, value(run_here, "fileReservedTime")) == (0, "33")


def test_with_yes_the_old_and_new_values_are_printed(run_here: Run) -> None:
    assert run_here("config", "set", "fileReservedTime=40", "--yes").status == 0
    rows = run_here("config", "set", "fileReservedTime=41", "--yes", "-o", "json").rows
    assert rows == [{"brokerName": "broker-a", "name": "fileReservedTime", "was": "40", "value": "41"}]
    done = run_here("config", "set", "fileReservedTime=41", "--yes")
    assert (done.status, done.out) == (0, "")
    assert done.err == "nothing to change: all brokers have these values already\n"


def test_without_a_terminal_and_without_yes_nothing_changes(
    command: CommandLine, run_here: Run, shared_broker: BrokerForTests
) -> None:
    done = command.run("config", "set", "fileReservedTime=55", "--broker", shared_broker.address)
    assert done.status == 2
    assert "add --yes" in done.err
    assert value(run_here, "fileReservedTime") != "55"


def test_an_unknown_name_is_reported_with_the_most_similar_one(run_here: Run) -> None:
    done = run_here("config", "set", "fileReservedTim=5", "--yes")
    assert done.status == 1
    assert "did you mean fileReservedTime?" in done.err


def test_a_setting_that_cannot_change_at_run_time_is_refused(run_here: Run) -> None:
    done = run_here("config", "set", "listenPort=1234", "--yes")
    assert done.status == 4
    assert "listenPort" in done.err
