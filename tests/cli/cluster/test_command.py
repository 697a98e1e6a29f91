"""`ariane cluster` and `ariane broker list|show|config|clean` against a real broker."""

import asyncio
import sys

from ariane.testing.broker import BrokerForTests, running_broker
from tests.cli.command_line import CommandLine
from tests.nameserver.servers import caller, registration


def test_the_cluster_is_shown_with_the_state_of_its_brokers(
    shared_broker: BrokerForTests, command: CommandLine
) -> None:
    (row,) = command.rows("cluster")
    assert (row["brokerName"], row["brokerId"], row["address"]) == ("broker-a", 0, shared_broker.address)
    assert (row["state"], row["role"]) == ("ok", "master")
    assert row["version"]
    assert "broker-a" in command.ok("cluster").out


async def test_a_broker_that_does_not_respond_is_silent_and_has_no_figures() -> None:
    with running_broker() as broker:
        async with caller() as calls:
            await calls.call(broker.namesrv, registration(broker="broker-z", address="127.0.0.1:1"))
            done = await asyncio.to_thread(CommandLine(broker.namesrv).run, "cluster", "-o", "json")
    assert done.status == 3
    silent = next(row for row in done.rows if row["brokerName"] == "broker-z")
    assert (silent["state"], silent["putTps"], silent["version"]) == ("silent", None, None)
    assert "no data from broker-z (127.0.0.1:1)" in done.err


def test_an_unknown_cluster_ends_with_1(command: CommandLine) -> None:
    done = command.run("cluster", "--cluster", "Nowhere")
    assert (done.status, "knows the clusters DefaultCluster" in done.err) == (1, True)


def test_brokers_are_listed_and_shown(shared_broker: BrokerForTests, command: CommandLine) -> None:
    (row,) = command.rows("broker", "list")
    assert row["address"] == shared_broker.address
    table = {pair["name"]: pair["value"] for pair in command.rows("broker", "show", "broker-a")}
    assert "commitLogMaxOffset" in table
    assert command.rows("broker", "show", shared_broker.address)
    unknown = command.run("broker", "show", "broker-q")
    assert (unknown.status, "the nameserver knows broker-a" in unknown.err) == (1, True)
    silent = command.run("broker", "show", "127.0.0.1:1")
    assert silent.status == 3


def test_a_setting_is_read_and_changed(command: CommandLine) -> None:
    (before,) = command.rows("broker", "config", "get", "traceOn")
    after = "false" if before["value"] == "true" else "true"
    command.ok("broker", "config", "set", f"traceOn={after}", "--broker", "broker-a")
    (row,) = command.rows("broker", "config", "get", "traceOn")
    assert row == {"brokerName": "broker-a", "name": "traceOn", "value": after}
    assert len(command.rows("broker", "config", "get")) > 20


def test_invalid_settings_end_with_the_exit_code_of_their_error(command: CommandLine) -> None:
    assert command.run("broker", "config", "get", "noSuchThing").status == 1
    assert command.run("broker", "config", "set", "traceOn").status == 2
    refused = command.run("broker", "config", "set", "brokerName=other")
    assert (refused.status, refused.out) == (4, "")


def test_brokers_are_cleaned_only_after_confirmation(command: CommandLine) -> None:
    assert command.run("broker", "clean").status == 2
    removed = [row["removed"] for row in command.rows("broker", "clean", "--yes")]
    assert removed == ["expired queues", "unused topics", "expired files"]
    assert [row["removed"] for row in command.rows("broker", "clean", "--unused-topics", "-y")] == ["unused topics"]


def test_options_of_the_server_are_not_mistaken_for_those_of_a_command(command: CommandLine) -> None:
    done = CommandLine(command.namesrv, (sys.executable, "-m", "ariane", "broker", "-n", "x:1", "list")).run()
    assert (done.status, "-c is an option" in done.err, "write it after 'list'" in done.err) == (2, False, True)
