"""`ariane store` as people use it, on stores that Apache RocketMQ 4.9.8 wrote."""

import csv
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from ariane.cli.main import main
from ariane.cli.store.command import store
from ariane.store.layout import Layout
from tests.store.golden_stores import flip, held_by_another_process, unpack
from tests.wire.golden import golden_store

PAGE = Path(__file__).parents[3] / "docs" / "data_files.md"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return unpack("clean", tmp_path)


@pytest.fixture
def run(layout: Layout, capsys: pytest.CaptureFixture[str]) -> "Run":
    return Run(layout, capsys)


class Run:
    """Runs a command in which DIR stands for the store; keeps what it printed."""

    def __init__(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        self._layout = layout
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, command: str) -> int:
        words = [str(self._layout.root) if word == "DIR" else word for word in shlex.split(command)]
        status = main(["store", *words])
        self.out, self.err = self._capsys.readouterr()
        return status

    def rows(self, command: str) -> list[dict[str, Any]]:
        assert self(f"{command} -o json") == 0, self.err
        rows = json.loads(self.out)
        assert isinstance(rows, list)
        return rows


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), list(commands(store, "ariane store")))
def test_every_command_has_an_example_and_help_for_each_option(path: str, command: click.Command) -> None:
    assert f"  {path}" in (command.help or "")
    assert all(parameter.help for parameter in command.params if isinstance(parameter, click.Option))


# --- inspect


def test_records_are_shown_as_java_decoded_them(run: Run) -> None:
    rows = {row["physicalOffset"]: row for row in run.rows("inspect commitlog DIR --limit 0")}
    for message in golden_store("clean").messages:
        row = rows[message["physicalOffset"]]
        stored = {name: value for name, value in message.items() if name not in ("bodyLength", "bodySha256")}
        assert {name: row[name] for name in stored} == stored


def test_records_are_selected_by_offset_topic_and_limit(run: Run) -> None:
    rows = run.rows("inspect commitlog DIR --from 1010 --limit 2 --topic GoldenNormal")
    assert [row["physicalOffset"] for row in rows] == [1010, 1257]
    assert run.err == ""


def test_without_a_limit_the_first_twenty_and_a_hint_are_shown(run: Run) -> None:
    assert run("inspect commitlog DIR") == 0
    assert len(run.out.splitlines()) == 21
    following = re.search(r"--from (\d+)", run.err)
    assert following is not None
    rows = run.rows(f"inspect commitlog DIR --from {following[1]} --limit 1")
    assert [row["physicalOffset"] for row in rows] == [int(following[1])]


def test_an_annotated_record_is_every_byte_of_it(run: Run) -> None:
    rows = run.rows("inspect commitlog DIR --from 1010 --annotate")
    raw = b"".join(bytes.fromhex(row["bytes"]) for row in rows)
    assert raw == golden_store("clean").commit_log[1010:1257]
    assert [(row["position"], row["name"], row["value"]) for row in rows][6] == (1038, "physicalOffset", "1010")


def test_a_blank_record_is_annotated_too(run: Run) -> None:
    rows = run.rows("inspect commitlog DIR --from 261980 --annotate")
    assert [(row["position"], row["name"]) for row in rows] == [
        (261980, "size"), (261984, "magic"), (261988, "(unused)"),
    ]  # fmt: skip
    rows = run.rows("inspect commitlog DIR --from 261980 --annotate --topic GoldenNormal")
    assert rows[0]["file"] == "00000000000000262144"


def test_an_annotated_table_has_sixteen_bytes_a_line(run: Run) -> None:
    assert run("inspect commitlog DIR --from 1010 --annotate") == 0
    lines = run.out.splitlines()
    assert "file 00000000000000000000" in lines[1]
    shown = [re.match(r" *(\d+)  ((?:[0-9a-f]{2} ?)+)", line) for line in lines[2:]]
    raw = b"".join(bytes.fromhex(line[2]) for line in shown if line is not None)
    assert raw == golden_store("clean").commit_log[1010:1257]
    assert max(len(bytes.fromhex(line[2])) for line in shown if line is not None) == 16


def test_entries_of_a_queue_are_shown_with_their_records(run: Run) -> None:
    rows = run.rows("inspect queue DIR GoldenNormal 0 --limit 0")
    messages = [m for m in golden_store("clean").messages if (m["topic"], m["queueId"]) == ("GoldenNormal", 0)]
    assert [(row["queueOffset"], row["physicalOffset"], row["size"], row["msgId"]) for row in rows] == [
        (message["queueOffset"], message["physicalOffset"], message["storeSize"], message["msgId"])
        for message in sorted(messages, key=lambda message: message["queueOffset"])
    ]


def test_an_annotated_entry_is_its_twenty_bytes(run: Run, layout: Layout) -> None:
    rows = run.rows("inspect queue DIR GoldenNormal 0 --from 150 --annotate")
    file = layout.queue("GoldenNormal", 0) / rows[0]["file"]
    assert b"".join(bytes.fromhex(row["bytes"]) for row in rows) == file.read_bytes()[1000:1020]


def test_an_entry_without_a_record_says_so(run: Run, layout: Layout) -> None:
    flip(layout.queue("GoldenNormal", 0) / "00000000000000000000", 7)
    assert run.rows("inspect queue DIR GoldenNormal 0 --limit 1")[0]["remark"] == "no complete record there"


def test_index_files_are_shown(run: Run) -> None:
    (row,) = run.rows("inspect index DIR")
    assert (row["entries"], row["capacity"], row["slots"], row["slotsInUse"]) == (3940, 4000, 1000, 933)
    assert len(run.rows("inspect index DIR --annotate --index-slots 1000")) == 6


def test_a_key_finds_its_messages_newest_first(run: Run) -> None:
    rows = run.rows("inspect index DIR --key GoldenNormal#key-4")
    messages = golden_store("clean").messages
    wanted = [m["physicalOffset"] for m in messages if "key-4" in m["properties"].get("KEYS", "").split()]
    assert [row["physicalOffset"] for row in rows if row["hasKey"]] == sorted(wanted, reverse=True)
    assert len(run.rows("inspect index DIR --key GoldenNormal#key-4 --annotate")) == 4 * len(rows)


def test_an_unknown_key_finds_nothing(run: Run) -> None:
    assert run.rows("inspect index DIR --key GoldenNormal#nobody") == []


def test_the_checkpoint_is_shown_with_times(run: Run) -> None:
    rows = run.rows("inspect checkpoint DIR")
    assert [(row["name"], row["value"]) for row in rows] == [
        ("physic_timestamp_ms", 1794778102879), ("logics_timestamp_ms", 1794778102879), ("index_timestamp_ms", 0),
    ]  # fmt: skip
    assert rows[0]["time"] == "2026-11-15T21:28:22.879Z"
    assert run("inspect checkpoint DIR --annotate") == 0
    assert "00 ... 4072 times" in run.out


def test_rows_come_as_csv_and_as_json_lines(run: Run) -> None:
    assert run("inspect commitlog DIR --limit 2 -o csv") == 0
    assert [row["physicalOffset"] for row in csv.DictReader(io.StringIO(run.out))] == ["0", "267"]
    assert run("inspect commitlog DIR --limit 2 -o jsonl") == 0
    assert [json.loads(line)["physicalOffset"] for line in run.out.splitlines()] == [0, 267]


@pytest.mark.parametrize(
    ("command", "status", "expected"),
    [
        ("inspect commitlog /no/such/directory", 2, "does not exist"),
        ("inspect commitlog DIR --commit-log /no/such", 2, "does not exist"),
        ("inspect commitlog DIR --from -1", 2, "--from"),
        ("inspect queue DIR nobody 0", 1, "the queue does not exist"),
        ("inspect queue DIR ../commitlog 0", 1, "may hold only"),
        ("inspect index DIR --key GoldenNormal", 1, "TOPIC#KEY"),
        ("inspect index DIR --index-slots 7", 1, "--index-slots"),
        ("verify DIR -o csv", 2, "csv"),
    ],
)
def test_wrong_usage_is_one_line_and_an_exit_code(run: Run, command: str, status: int, expected: str) -> None:
    assert run(command) == status
    assert expected in run.err
    assert (run.out, run.err.count("\n")) == ("", 1)


def test_a_directory_that_is_not_a_store_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("verify", "inspect commitlog", "inspect checkpoint", "rebuild"):
        assert main(["store", *command.split(), str(tmp_path)]) == 1
        assert re.search("(commitlog|checkpoint) does not exist", capsys.readouterr().err)


def test_an_unreadable_file_is_reported(run: Run, layout: Layout) -> None:
    layout.checkpoint.unlink()
    layout.checkpoint.mkdir()
    assert run("inspect checkpoint DIR") == 1
    assert run.err.startswith("error: ")
    assert "directory" in run.err


def test_a_running_broker_causes_a_warning(run: Run, layout: Layout) -> None:
    with held_by_another_process(layout.lock) as process:
        assert run("inspect commitlog DIR --limit 1") == 0
    assert run.err == f"warning: process {process} is using this store: its files are changing\n"
    assert len(run.out.splitlines()) == 2


# --- verify


def test_an_intact_store_has_a_summary(run: Run) -> None:
    assert run("verify DIR") == 0
    assert re.search(r"^records +1914$", run.out, re.MULTILINE)
    assert re.search(r"^newest +2026-11-15T21:28:22.879Z$", run.out, re.MULTILINE)
    assert run.err == ""


def test_a_problem_is_reported_with_file_byte_and_hint_and_exit_1(run: Run, layout: Layout) -> None:
    flip(layout.commit_log / "00000000000000262144", 5000)
    assert run("verify DIR") == 1
    heading, fault = run.out.splitlines()[:2]
    assert heading.split() == ["file", "position", "what", "cure"]
    assert fault.startswith("commitlog/00000000000000262144")
    assert "restore the file" in fault
    assert run.err == f"error: 1 problems found in {layout.root}\n"


def test_the_json_report_has_the_same_contents(run: Run, layout: Layout) -> None:
    assert run("verify DIR -o json") == 0
    report = json.loads(run.out)
    assert (report["sound"], report["faults"], report["summary"]["records"]) == (True, [], 1914)
    flip(layout.commit_log / "00000000000000262144", 5000)
    assert run("verify DIR -o json") == 1
    report = json.loads(run.out)
    assert (report["sound"], report["fault_count"]) == (False, 1)
    assert report["faults"][0]["file"] == "commitlog/00000000000000262144"


def test_a_killed_store_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "verify", str(unpack("killed", tmp_path).root)]) == 0
    assert "note: the file `abort` is there" in capsys.readouterr().out


def test_a_terminal_shows_a_progress_bar(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run("verify DIR") == 0
    assert "checking" in run.err
    assert "100%" in run.err


# --- rebuild


def test_a_rebuild_keeps_the_old_files_and_says_so(run: Run, layout: Layout) -> None:
    assert run("rebuild DIR --queues") == 0
    assert "kept as .old" in run.err
    assert [line.split() for line in run.out.splitlines()] == [
        ["records", "queues", "queue_entries"],
        ["1914", "54", "1914"],
    ]
    assert (layout.root / "consumequeue.old").is_dir()
    assert not (layout.root / "index.old").exists()
    assert run("verify DIR") == 0


def test_a_rebuild_with_yes_leaves_nothing_behind(run: Run, layout: Layout) -> None:
    assert run("rebuild DIR --yes") == 0
    assert run.err == ""
    assert sorted(path.name for path in layout.root.iterdir()) == [
        "checkpoint", "commitlog", "config", "consumequeue", "index", "lock",
    ]  # fmt: skip


def test_a_rebuild_of_a_store_in_use_is_refused(run: Run, layout: Layout) -> None:
    with held_by_another_process(layout.lock):
        assert run("rebuild DIR") == 1
    assert "in use by another broker" in run.err


def test_other_delay_levels_give_other_delivery_times(run: Run) -> None:
    assert run("rebuild DIR --queues --delay-levels '1s 2s'") == 0
    (row,) = run.rows("inspect queue DIR SCHEDULE_TOPIC_XXXX 17")
    assert row["tagsCode"] == 1794777982876 + 2000
    assert run("rebuild DIR --delay-levels soon --yes") == 2


# --- the page


def test_every_command_in_the_docs_prints_what_the_docs_show(run: Run) -> None:
    blocks = re.findall(r"^```console\n\$ ariane store (.+)\n((?:.*\n)*?)```$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(blocks) >= 8
    for command, shown in blocks:
        assert run(re.sub(r"\bstore\b", "DIR", command)) == 0, (command, run.err)
        printed = [line.rstrip() for line in run.out.splitlines()]
        assert [line for line in shown.splitlines() if line != "..." and line not in printed] == []
