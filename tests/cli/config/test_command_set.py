"""`ariane config set` against a broker that runs."""

from collections.abc import Callable

import pytest

from ariane.cli.main import main
from ariane.testing.broker import BrokerForTests
from tests.cli.command_line import CommandLine, Outcome

Ask = Callable[..., Outcome]


@pytest.fixture
def ask(shared_broker: BrokerForTests, capsys: pytest.CaptureFixture[str]) -> Ask:
    """In this process, which takes less time than to start one."""

    def run(*arguments: str) -> Outcome:
        status = main([*arguments, "-n", shared_broker.namesrv])
        printed = capsys.readouterr()
        return Outcome(status, printed.out, printed.err)

    return run


def value(request: Ask, name: str) -> str:
    (row,) = request("broker", "config", "get", name, "-o", "json").rows
    return str(row["value"])


def test_what_would_change_is_shown_and_asked(command: CommandLine, request: Ask) -> None:
    before = value(request, "fileReservedTime")
    screen = command.on_terminal("config", "set", "fileReservedTime=33", keys="n\n")
    assert screen.status == 1
    assert before in screen.out
    assert value(request, "fileReservedTime") == before
    screen = command.on_terminal("config", "set", "fileReservedTime=33", keys="y\n")
    assert (screen.status, value(request, "fileReservedTime")) == (0, "33")


def test_a_script_says_yes_and_gets_what_was_and_what_is(request: Ask) -> None:
    assert request("config", "set", "fileReservedTime=40", "--yes").status == 0
    rows = request("config", "set", "fileReservedTime=41", "--yes", "-o", "json").rows
    assert rows == [{"brokerName": "broker-a", "name": "fileReservedTime", "was": "40", "value": "41"}]
    done = request("config", "set", "fileReservedTime=41", "--yes")
    assert (done.status, done.out) == (0, "")
    assert done.err == "nothing to change: every broker has these values already\n"


def test_nobody_to_ask_changes_nothing(command: CommandLine, request: Ask, shared_broker: BrokerForTests) -> None:
    done = command.run("config", "set", "fileReservedTime=55", "--broker", shared_broker.address)
    assert done.status == 2
    assert "add --yes" in done.err
    assert value(request, "fileReservedTime") != "55"


def test_a_name_that_no_broker_has_is_told_with_the_nearest(request: Ask) -> None:
    done = request("config", "set", "fileReservedTim=5", "--yes")
    assert done.status == 1
    assert "did you mean fileReservedTime?" in done.err


def test_a_setting_that_is_fixed_while_a_broker_runs_is_refused(request: Ask) -> None:
    done = request("config", "set", "listenPort=1234", "--yes")
    assert done.status == 4
    assert "listenPort" in done.err
