"""`ariane topic` against a real broker."""

import csv
import io
import json

import pytest

from ariane.testing.broker import BrokerForTests
from tests.cli.command_line import CommandLine
from tests.client.cluster_fixture import fresh


def test_a_topic_is_created_with_the_given_settings(command: CommandLine) -> None:
    topic = fresh("made")
    done = command.ok("topic", "create", topic, "--read-queues", "3", "--write-queues", "2", "--order", "--perm", "r")
    assert topic in done.out
    (row,) = command.rows("topic", "show", topic)
    assert {name: row[name] for name in ("readQueueNums", "writeQueueNums", "order", "perm", "messages")} == {
        "readQueueNums": 3, "writeQueueNums": 2, "order": True, "perm": "r", "messages": 0
    }  # fmt: skip
    (route,) = command.rows("topic", "route", topic)
    assert (route["brokerName"], route["writeQueueNums"], route["perm"]) == ("broker-a", 2, "r")


def test_an_existing_topic_is_not_created_again(command: CommandLine) -> None:
    topic = fresh("twice")
    command.ok("topic", "create", topic)
    again = command.run("topic", "create", topic)
    assert (again.status, again.out) == (1, "")
    assert "exists at broker-a" in again.err
    assert command.ok("topic", "create", topic, "--if-missing").out == ""


def test_the_list_hides_system_topics_and_says_so(command: CommandLine) -> None:
    topic = fresh("listed")
    command.ok("topic", "create", topic)
    short = command.ok("topic", "list", "-o", "json")
    assert {"topic": topic, "kind": "topic"} in short.rows
    assert {row["kind"] for row in short.rows} == {"topic"}
    assert "system topics are not shown: --all" in short.err
    everything = command.ok("topic", "list", "--all", "-o", "json")
    assert {"topic": "TBW102", "kind": "system"} in everything.rows
    assert everything.err == ""


def test_the_long_list_counts_queues_and_messages(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic = fresh("counted")
    shared_broker.create_topic(topic, queues=2)
    shared_broker.send(topic, b"one")
    rows = {row["topic"]: row for row in command.rows("topic", "list", "--long")}
    assert (rows[topic]["readQueueNums"], rows[topic]["messages"]) == (2, 1)


def test_stats_show_each_queue(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic = fresh("stats")
    shared_broker.create_topic(topic, queues=2)
    shared_broker.send(topic, b"one")
    rows = command.rows("topic", "stats", topic)
    assert [row["queueId"] for row in rows] == [0, 1]
    assert sorted(row["messages"] for row in rows) == [0, 1]
    empty = next(row for row in rows if row["messages"] == 0)
    assert empty["lastStored"] is None


def test_an_update_changes_only_the_given_settings(command: CommandLine) -> None:
    topic = fresh("changed")
    command.ok("topic", "create", topic, "--read-queues", "4", "--write-queues", "4")
    command.ok("topic", "update", topic, "--write-queues", "2")
    (row,) = command.rows("topic", "show", topic)
    assert (row["readQueueNums"], row["writeQueueNums"], row["perm"]) == (4, 2, "rw")
    nothing = command.run("topic", "update", topic)
    assert nothing.status == 2
    assert "nothing to change" in nothing.err


@pytest.mark.parametrize("verb", ["show", "route", "stats", "delete", "update --perm r"])
def test_a_missing_topic_ends_with_1(command: CommandLine, verb: str) -> None:
    name, *options = verb.split()
    done = command.run("topic", name, "nowhere", *options)
    assert (done.status, done.out) == (1, "")
    assert "no route for topic nowhere" in done.err


def test_deleting_a_topic_asks_for_confirmation(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic = fresh("deleted")
    shared_broker.create_topic(topic)
    shared_broker.send(topic, b"one")
    unasked = command.run("topic", "delete", topic)
    assert (unasked.status, "--yes" in unasked.err) == (2, True)
    said_no = command.on_terminal("topic", "delete", topic, keys="n\n")
    assert said_no.status == 1
    assert f"Delete {topic} with 1 messages" in said_no.out
    assert command.rows("topic", "stats", topic)
    assert command.on_terminal("topic", "delete", topic, keys="y\n").status == 0
    assert command.run("topic", "show", topic).status == 1


def test_a_system_topic_is_not_deleted(command: CommandLine) -> None:
    done = command.run("topic", "delete", "TBW102", "--yes")
    assert (done.status, "is a system topic and cannot be deleted" in done.err) == (1, True)


def test_a_table_is_truncated_only_on_a_terminal(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic = "a-topic-with-a-name-that-is-so-long-that-no-terminal-of-eighty-columns-has-the-room-for-it"
    shared_broker.create_topic(topic)
    screen = command.on_terminal("topic", "show", topic)
    assert screen.status == 0
    assert all(len(line) <= 80 for line in screen.lines)
    assert any(line.endswith("…") for line in screen.lines)
    piped = command.ok("topic", "show", topic)
    assert topic in piped.out
    assert "…" not in piped.out


def test_every_format_has_the_same_rows(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic = fresh("forms")
    shared_broker.create_topic(topic, queues=2)
    rows = command.rows("topic", "stats", topic)
    lines = command.ok("topic", "stats", topic, "-o", "jsonl").lines
    assert [json.loads(line) for line in lines] == rows
    table = list(csv.DictReader(io.StringIO(command.ok("topic", "stats", topic, "-o", "csv").out)))
    assert [row["queueId"] for row in table] == ["0", "1"]


def test_without_a_nameserver_only_that_is_reported(command: CommandLine) -> None:
    done = CommandLine("127.0.0.1:1").run("topic", "show", "orders")
    assert (done.status, done.out) == (3, "")
    assert "no nameserver answers" in done.err
