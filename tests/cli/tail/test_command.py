"""`ariane tail` as its users run it."""

import csv
import io
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ariane.testing import BrokerForTests, running_broker
from tests.testing.commands import COMMAND, ENVIRONMENT, HANG_S, Outcome, run, terminal

STORED = ("--from", "earliest", "--exit-at-end")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerForTests]:
    with running_broker() as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: BrokerForTests) -> str:
    """One for each test, with ten messages."""
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)[:100]
    broker.create_topic(name, queues=3)
    for number in range(10):
        tags = "even" if number % 2 == 0 else "odd"
        broker.send(name, b"m%d" % number, tags=tags, keys=[f"k{number}"], properties={"number": str(number)})
    return name


def tail(broker: BrokerForTests, topic: str, *arguments: str, cwd: Path) -> Outcome:
    return run("tail", topic, *arguments, "-n", broker.namesrv, cwd=cwd)


def bodies(outcome: Outcome) -> list[str]:
    return [row["body"] for row in outcome.rows]


def test_everything_is_shown_by_time_over_all_queues(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    outcome = tail(broker, topic, *STORED, "-o", "jsonl", cwd=tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    assert sorted(bodies(outcome)) == [f"m{number}" for number in range(10)]
    assert {row["queueId"] for row in outcome.rows} == {0, 1, 2}
    times = [row["storeTimestamp"] for row in outcome.rows]
    assert times == sorted(times)


def test_a_row_has_all_fields_of_a_message(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    message = broker.messages(topic)[0]
    row = next(row for row in tail(broker, topic, *STORED, "-o", "json", cwd=tmp_path).json if row["body"] == "m0")
    assert row == {
        "topic": topic,
        "brokerName": "broker-a",
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "storeTime": row["storeTime"],
        "storeTimestamp": message.store_timestamp_ms,
        "bornTimestamp": message.born_timestamp_ms,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "reconsumeTimes": 0,
        "tags": "even",
        "keys": ["k0"],
        "properties": message.properties,
        "body": "m0",
        "bodyEncoding": "utf-8",
        "fault": None,
    }


def test_csv_can_be_read_back(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(tail(broker, topic, *STORED, "-o", "csv", cwd=tmp_path).out)))
    assert {(row["body"], row["keys"]) for row in rows} == {(f"m{n}", f'["k{n}"]') for n in range(10)}


@pytest.mark.parametrize("option", [("--tags", "even"), ("--sql", "number IN ('0', '2', '4', '6', '8')")])
def test_filters_select_messages(broker: BrokerForTests, topic: str, tmp_path: Path, option: tuple[str, str]) -> None:
    outcome = tail(broker, topic, *STORED, *option, "-o", "jsonl", cwd=tmp_path)
    assert sorted(bodies(outcome)) == ["m0", "m2", "m4", "m6", "m8"]


def test_a_limit_says_how_much_is_left(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    outcome = tail(broker, topic, *STORED, "--limit", "3", "-o", "jsonl", cwd=tmp_path)
    assert (outcome.status, len(outcome.rows)) == (0, 3)
    assert outcome.err == "stopped at --limit 3: 7 more messages are stored\n"


def test_a_limit_with_a_filter_says_that_the_rest_may_not_match(
    broker: BrokerForTests, topic: str, tmp_path: Path
) -> None:
    outcome = tail(broker, topic, *STORED, "--limit", "1", "--tags", "even", "-o", "jsonl", cwd=tmp_path)
    assert "may not all match" in outcome.err


def test_a_limit_equal_to_the_number_of_messages_prints_no_note(
    broker: BrokerForTests, topic: str, tmp_path: Path
) -> None:
    assert tail(broker, topic, *STORED, "--limit", "10", "-o", "jsonl", cwd=tmp_path).err == ""


def test_tail_starts_at_a_time(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    since = broker.messages(topic)[4].store_timestamp_ms
    expected = {message.body.decode() for message in broker.messages(topic) if message.store_timestamp_ms >= since}
    outcome = tail(broker, topic, "--from", str(since), "--exit-at-end", "-o", "jsonl", cwd=tmp_path)
    assert set(bodies(outcome)) == expected
    assert bodies(tail(broker, topic, "--from", "-1h", "--exit-at-end", "-o", "jsonl", cwd=tmp_path)) != []
    assert bodies(tail(broker, topic, "--exit-at-end", "-o", "jsonl", cwd=tmp_path)) == []


def test_a_format_defines_the_lines(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    template = r"{{{keys}}}\t{property.number} {property.none}{body}"
    outcome = tail(broker, topic, *STORED, "--format", template, cwd=tmp_path)
    assert sorted(outcome.out.splitlines()) == [f"{{k{n}}}\t{n} m{n}" for n in range(10)]


@pytest.mark.parametrize("template", ["{nothing}", "{body!r}", "{body:>9}", "{body.__class__}", "{", "{0}", "{}"])
def test_an_invalid_format_is_reported(broker: BrokerForTests, tmp_path: Path, template: str) -> None:
    outcome = tail(broker, "orders", "--format", template, cwd=tmp_path)
    assert (outcome.status, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "--format" in outcome.err


def test_a_binary_body_is_shown_as_base64(broker: BrokerForTests, tmp_path: Path) -> None:
    broker.send("binary", b"\x00\xff")
    (row,) = tail(broker, "binary", *STORED, "-o", "jsonl", cwd=tmp_path).rows
    assert (row["body"], row["bodyEncoding"]) == ("AP8=", "base64")
    assert "base64:AP8=" in tail(broker, "binary", *STORED, cwd=tmp_path).out


def test_a_table_is_truncated_only_on_a_terminal(broker: BrokerForTests, tmp_path: Path) -> None:
    broker.send("wide", ("杭州" * 100).encode())
    assert "…" not in tail(broker, "wide", *STORED, cwd=tmp_path).out
    assert "杭州" * 100 in tail(broker, "wide", *STORED, cwd=tmp_path).out
    with terminal("tail", "wide", *STORED, "-n", broker.namesrv, cwd=tmp_path, columns=100) as person:
        assert person.status() == 0
    header, row = person.seen.splitlines()
    assert header.split() == ["storeTime", "queue", "queueOffset", "tags", "keys", "text"]
    assert row.endswith("…")


@pytest.mark.parametrize("form", [(), ("--format", "{body}")])
def test_control_characters_are_escaped(broker: BrokerForTests, tmp_path: Path, form: tuple[str, ...]) -> None:
    broker.send("rude", b"\x1b]0;title\x07red")
    arguments = ("tail", "rude", *STORED, "--limit", "1", *form, "-n", broker.namesrv)
    with terminal(*arguments, cwd=tmp_path, columns=200) as person:
        person.status()
    assert "\x1b" not in person.seen
    assert r"\x1b]0;title\x07red" in person.seen


def test_new_messages_are_shown_as_they_arrive(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    arguments = [*COMMAND, "tail", topic, "--from", "earliest", "-o", "jsonl", "-n", broker.namesrv]
    with subprocess.Popen(arguments, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for _ in range(10):
                process.stdout.readline()
            broker.send(topic, b"new")
            assert '"body": "new"' in process.stdout.readline()
        finally:
            process.kill()


def test_ctrl_c_ends_tail_on_a_terminal(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    with terminal("tail", topic, "--from", "earliest", "-n", broker.namesrv, cwd=tmp_path) as person:
        person.read_until("m9")
        person.type("\x03")
        assert person.status() == 130
    assert "Traceback" not in person.seen


def test_a_closed_pipe_ends_tail(broker: BrokerForTests, tmp_path: Path) -> None:
    broker.send("many", b"x" * 100_000)
    arguments = [*COMMAND, "tail", "many", *STORED, "-o", "jsonl", "-n", broker.namesrv]
    with subprocess.Popen(
        arguments, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read().decode()
        assert process.wait(HANG_S) == 1
    assert err.count("\n") <= 1, err


def test_no_group_is_created_and_no_offset_moves(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    tail(broker, topic, *STORED, cwd=tmp_path)
    assert broker.lag("TOOLS_CONSUMER") is None


def test_a_missing_topic_ends_with_3_and_a_hint(broker: BrokerForTests, tmp_path: Path) -> None:
    outcome = tail(broker, "nothing-here", *STORED, cwd=tmp_path)
    assert (outcome.status, outcome.out, outcome.err.count("\n")) == (3, "", 1)
    assert "ariane topic create nothing-here" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (("--sql", "a >"), 4, "expected"),
        (("--tags", "a", "--sql", "a = 1"), 2, "exclude each other"),
        (("--format", "{body}", "-o", "json"), 2, "exclude each other"),
        (("--from", "someday"), 2, "'someday' is not a time"),
        (("--limit", "0"), 2, "--limit"),
    ],
)
def test_wrong_usage_is_reported(
    broker: BrokerForTests, topic: str, tmp_path: Path, arguments: tuple[str, ...], status: int, expected: str
) -> None:
    outcome = tail(broker, topic, *STORED, *arguments, cwd=tmp_path)
    assert (outcome.status, outcome.out, outcome.err.count("\n")) == (status, "", 1)
    assert expected in outcome.err
