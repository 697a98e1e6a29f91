"""`ariane send` as its users run it."""

import csv
import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ariane.testing import BrokerForTests, running_broker
from tests.testing.commands import HANG_S, Outcome, run, terminal


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerForTests]:
    with running_broker(store={"message_delay_levels": "1s 2s"}, transaction_check_interval_s=60) as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: BrokerForTests) -> str:
    """One for each test."""
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)[:100]
    broker.create_topic(name, queues=2)
    return name


def send(
    broker: BrokerForTests, topic: str, *arguments: str, cwd: Path, stdin: str | bytes = b"", **variables: str
) -> Outcome:
    return run("send", topic, *arguments, "-n", broker.namesrv, cwd=cwd, stdin=stdin, **variables)


def test_a_message_has_all_given_fields(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    options = ("-t", "paid", "-k", "o-1", "-k", "c-7", "-p", "region=eu", "-p", "note=a=b", "--sharding-key", "o-1")
    outcome = send(broker, topic, "héllo 你好", *options, "-o", "json", cwd=tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    (message,) = broker.wait_for_messages(topic, 1)
    assert message.body.decode() == "héllo 你好"
    assert (message.tags, message.keys) == ("paid", ("o-1", "c-7"))
    assert (message.properties["region"], message.properties["note"]) == ("eu", "a=b")
    assert message.properties["__SHARDINGKEY"] == "o-1"
    assert outcome.json == [
        {
            "msgId": message.message_id,
            "offsetMsgId": message.offset_message_id,
            "sendStatus": "SEND_OK",
            "brokerName": "broker-a",
            "queueId": message.queue.queue_id,
            "queueOffset": message.queue_offset,
        }
    ]


def test_each_line_of_stdin_is_a_message_except_empty_ones(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    outcome = send(broker, topic, "-", "-o", "jsonl", cwd=tmp_path, stdin=b"one\r\n\ntwo \xff\nno end")
    assert outcome.status == 0
    assert len(outcome.rows) == 3
    assert [message.body for message in broker.messages(topic)] == [b"one", b"two \xff", b"no end"]


def test_many_lines_are_stored_and_shown_by_queue(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(5_000)]
    outcome = send(broker, topic, "-", cwd=tmp_path, stdin="\n".join(lines))
    header, *rows = outcome.out.splitlines()
    assert header.split() == ["brokerName", "queueId", "messages", "firstOffset", "lastOffset"]
    assert sum(int(row.split()[2]) for row in rows) == 5_000
    assert "5,000 messages stored" in outcome.err
    assert sorted(message.body.decode() for message in broker.messages(topic)) == sorted(lines)


def test_csv_has_a_row_for_each_message(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    outcome = send(broker, topic, "m{n}", "--count", "30", "-o", "csv", cwd=tmp_path)
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    ids = {message.message_id for message in broker.messages(topic)}
    assert {row["msgId"] for row in rows} == ids
    assert len(ids) == 30


def test_a_typed_line_is_sent_before_the_next_one(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    with terminal("send", topic, "-", "-n", broker.namesrv, cwd=tmp_path) as person:
        person.type("first\n")
        assert broker.wait_for_messages(topic, 1, HANG_S)[0].body == b"first"
        person.type("second\n\x04")
        assert person.status() == 0
        assert "2 messages stored" in person.seen
    assert len(broker.messages(topic)) == 2


def test_ctrl_c_does_not_wait_for_stdin(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    with terminal("send", topic, "-", "-n", broker.namesrv, cwd=tmp_path) as person:
        person.type("first\n")
        broker.wait_for_messages(topic, 1, HANG_S)
        person.type("\x03")
        assert person.status() == 130


def test_files_are_sent_whole_or_by_lines(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo\n")
    (tmp_path / "b").write_bytes(b"\x00binary")
    assert send(broker, topic, "-f", "a", "-f", "b", cwd=tmp_path).status == 0
    assert {message.body for message in broker.messages(topic)} == {b"one\ntwo\n", b"\x00binary"}
    assert send(broker, topic, "-f", "a", "--lines", cwd=tmp_path).status == 0
    assert {message.body for message in broker.messages(topic)} >= {b"one", b"two"}


def test_json_lines_have_more_than_a_body(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    rows = [
        {"body": "text", "tags": "a", "keys": "k1 k2", "properties": {"p": "1"}, "shardingKey": "s"},
        {"body": {"order": 17}, "msgId": "printed by tail, ignored here"},
        {"body": "AP8=", "bodyEncoding": "base64", "keys": ["k3"]},
    ]
    outcome = send(broker, topic, "-", "--jsonl", "-t", "b", cwd=tmp_path, stdin="\n".join(map(json.dumps, rows)))
    assert outcome.status == 0, outcome.err
    found = {message.body: message for message in broker.wait_for_messages(topic, 3)}
    assert found.keys() == {b"text", b'{"order":17}', b"\x00\xff"}
    assert (found[b"text"].tags, found[b"text"].keys) == ("a", ("k1", "k2"))
    assert found[b"\x00\xff"].tags == "b"


def test_one_topic_can_be_piped_into_another(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    send(broker, topic, "m{n}", "--count", "10", "-k", "k{n}", "-t", "x", "-p", "a=b", cwd=tmp_path)
    options = ("--from", "earliest", "--exit-at-end", "-o", "jsonl", "-n", broker.namesrv)
    shown = run("tail", topic, *options, cwd=tmp_path)
    assert send(broker, f"{topic}-copy", "-", "--jsonl", cwd=tmp_path, stdin=shown.out).status == 0
    copies = [
        (message.body, message.keys, message.tags, message.properties["a"])
        for message in broker.messages(f"{topic}-copy")
    ]
    assert sorted(copies) == [(b"m%d" % number, (f"k{number}",), "x", "b") for number in range(10)]


def test_a_queue_can_be_selected(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    for queue in ("1", "broker-a:1"):
        assert send(broker, topic, "x", "--queue", queue, cwd=tmp_path).status == 0
    assert {message.queue.queue_id for message in broker.messages(topic)} == {1}
    outcome = send(broker, topic, "x", "--queue", "7", cwd=tmp_path)
    assert (outcome.status, "broker-a:0, broker-a:1" in outcome.err) == (2, True)


def test_a_delay_level_is_kept_by_the_broker(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    assert send(broker, topic, "later", "--delay", "1", cwd=tmp_path).status == 0
    (message,) = broker.wait_for_messages(topic, 1, HANG_S)
    assert message.store_timestamp_ms - message.born_timestamp_ms >= 900


def test_a_message_is_not_delivered_before_its_time(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    assert send(broker, topic, "later", "--deliver-at", "+3s", cwd=tmp_path).status == 0
    (message,) = broker.wait_for_messages(topic, 1, HANG_S)
    assert message.store_timestamp_ms >= int(message.properties["TIMER_DELIVER_MS"])


def test_a_transaction_ends_with_the_given_outcome(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    rolled = send(broker, topic, "never", "--transaction", "rollback", "-o", "json", cwd=tmp_path)
    assert rolled.json[0]["transaction"] == "rollback"
    assert rolled.json[0]["queueOffset"] is None
    committed = send(broker, topic, "seen", "--transaction", "commit", cwd=tmp_path)
    assert committed.status == 0
    assert [message.body for message in broker.wait_for_messages(topic, 1)] == [b"seen"]


def test_one_way_reports_that_the_result_is_unknown(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    outcome = send(broker, topic, "m{n}", "--count", "5", "--oneway", cwd=tmp_path)
    assert (outcome.status, outcome.out) == (0, "")
    assert "5 messages sent one-way: whether they were stored is unknown" in outcome.err
    broker.wait_for_messages(topic, 5)


def test_a_table_on_a_terminal_and_json_in_a_pipe(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    with terminal("send", topic, "x", "-n", broker.namesrv, cwd=tmp_path, columns=50) as person:
        assert person.status() == 0
    header, row = person.seen.splitlines()
    assert (header[-1], row[-1], len(header)) == ("…", "…", 50)
    assert "…" not in send(broker, topic, "x", cwd=tmp_path).out
    assert send(broker, topic, "x", "-o", "jsonl", cwd=tmp_path).rows[0]["sendStatus"] == "SEND_OK"


def test_long_work_shows_a_progress_bar_on_a_terminal(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    arguments = ("send", topic, "m", "--count", "7", "--rate", "2", "-n", broker.namesrv)
    with terminal(*arguments, cwd=tmp_path) as person:
        assert person.status() == 0
    assert "sending" in person.seen
    assert "/7" in person.seen


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "nothing to send"),
        (("x", "--lines"), "--lines needs --file"),
        (("x", "--jsonl"), "--jsonl needs lines"),
        (("-", "--count", "2"), "--count repeats"),
        (("x", "--oneway", "--transaction", "commit"), "exclude each other"),
        (("x", "-p", "novalue"), "not of the form NAME=VALUE"),
        (("x", "--deliver-at", "soon"), "'soon' is not a time"),
        (("x", "--file", "missing"), "does not exist"),
        (("",), "the body is empty"),
        (("x", "-k", "two words"), "may not"),
        (("x", "-p", "UNIQ_KEY=1"), "reserved"),
        (("x", "--group", "no good"), "group"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_hint(
    broker: BrokerForTests, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    outcome = send(broker, "orders", *arguments, cwd=tmp_path)
    assert (outcome.status, outcome.out) == (2, "")
    assert expected in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "it is not JSON: Expecting property name enclosed in double quotes at character 2"),
        ('{"body": "x", "fault": "its CRC is wrong"}', "its CRC is wrong"),
        ("[]", "not a JSON object"),
        ('{"tags": "x"}', 'no field "body"'),
        ('{"body": "x", "tag": "y"}', "unknown field 'tag'"),
        ('{"body": "?", "bodyEncoding": "base64"}', "not base64"),
        ('{"body": "x", "bodyEncoding": "hex"}', "use utf-8 or base64"),
        ('{"body": "x", "keys": [1]}', "keys must be"),
        ('{"body": "x", "properties": {"a": 1}}', "properties must be"),
        ('{"body": "x", "delayLevel": "1"}', "an integer"),
        ('{"body": "x", "tags": 1}', "tags must be a string"),
    ],
)
def test_a_bad_json_line_is_reported_with_its_number(
    broker: BrokerForTests, topic: str, tmp_path: Path, line: str, expected: str
) -> None:
    outcome = send(broker, topic, "-", "--jsonl", cwd=tmp_path, stdin='{"body": "good"}\n' + line)
    assert outcome.status == 2
    assert f"line 2: {expected}" in outcome.err or ("line 2: " in outcome.err and expected in outcome.err)


def test_empty_input_is_reported(broker: BrokerForTests, topic: str, tmp_path: Path) -> None:
    outcome = send(broker, topic, "-", cwd=tmp_path, stdin="\n\n")
    assert (outcome.status, outcome.out) == (0, "")
    assert "nothing was sent" in outcome.err


def test_an_unreachable_cluster_ends_with_3(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, and not listening
        outcome = run("send", "orders", "x", "-n", f"127.0.0.1:{unused.getsockname()[1]}", cwd=tmp_path)
    assert (outcome.status, outcome.err.count("\n")) == (3, 1)
    assert "no nameserver answers" in outcome.err


def test_a_refusal_ends_with_4(tmp_path: Path) -> None:
    with running_broker(reject_transactions=True) as strict:
        outcome = send(strict, "orders", "x", "--transaction", "commit", cwd=tmp_path)
    assert (outcome.status, outcome.err.count("\n")) == (4, 1)


def test_messages_stored_before_a_failure_are_printed(tmp_path: Path) -> None:
    too_large = "".join(map(chr, range(256, 8_000)))
    with running_broker(store={"max_message_bytes": 4096}) as strict:
        options = ("-", "--rate", "1000", "-o", "json")  # with a rate they leave one by one
        outcome = send(strict, "orders", *options, cwd=tmp_path, stdin=f"fits\n{too_large}\n")
        (message,) = strict.messages("orders")
    assert outcome.status == 2
    assert [row["msgId"] for row in outcome.json] == [message.message_id]
    assert "maxMessageSize" in outcome.err or "bytes" in outcome.err


def test_a_missing_topic_ends_with_3(tmp_path: Path) -> None:
    with running_broker(auto_create_topics=False) as strict:
        outcome = send(strict, "orders", "x", cwd=tmp_path)
    assert outcome.status == 3
    assert "ariane topic create orders" in outcome.err
