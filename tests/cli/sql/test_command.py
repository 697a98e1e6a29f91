"""`ariane sql` as people run it: a process of its own, with its output in a pipe or on a terminal."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ariane.cli.main import main
from ariane.testing.broker import BrokerForTests, running_broker
from tests.cli.command_line import ENVIRONMENT, CommandLine, Outcome

COUNT = 12


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerForTests]:
    with running_broker(tmp_path_factory.mktemp("store")) as broker:
        broker.create_topic("orders", queues=2)
        for number in range(COUNT):
            broker.send("orders", b'{"n": %d}' % number, tags="even" if number % 2 == 0 else "odd", keys=[f"k{number}"])
        yield broker


def test_rows_go_to_stdout_and_what_was_scanned_to_stderr(command: CommandLine) -> None:
    done = command.ok("sql", "select tags, count(*) as n from orders group by tags order by tags", "-o", "jsonl")
    assert [json.loads(line) for line in done.lines] == [{"tags": "even", "n": 6}, {"tags": "odd", "n": 6}]
    assert done.err == "scanned 12 messages of orders (2 queues), complete\n"


def test_a_table_on_a_terminal_and_csv_in_a_pipe(command: CommandLine) -> None:
    sql = "select queueId, body from orders where tags = 'even' order by queueId, queueOffset"
    screen = command.on_terminal("sql", sql)
    assert screen.status == 0
    assert "queueId  body" in screen.out  # behind a bar, when the machine was slow
    rows = list(csv.DictReader(io.StringIO(command.ok("sql", sql, "-o", "csv").out)))
    assert sorted(json.loads(row["body"])["n"] for row in rows) == [0, 2, 4, 6, 8, 10]


RunSql = Callable[..., Outcome]


@pytest.fixture
def run_sql(shared_broker: BrokerForTests, capsys: pytest.CaptureFixture[str]) -> RunSql:
    """Runs the command in this process, which is faster than starting one."""

    def run(*arguments: str) -> Outcome:
        status = main(["sql", *arguments, "-n", shared_broker.namesrv])
        printed = capsys.readouterr()
        return Outcome(status, printed.out, printed.err)

    return run


def test_a_query_comes_from_stdin_or_from_a_file(command: CommandLine, run_sql: RunSql, tmp_path: Path) -> None:
    done = command.run("sql", "-", "-o", "json", stdin="select count(*) as n from orders")
    assert (done.status, done.rows) == (0, [{"n": COUNT}])
    file = tmp_path / "query.sql"
    file.write_text("select count(*) as n\nfrom orders\n")
    assert run_sql("--file", str(file), "-o", "json").rows == [{"n": COUNT}]


def test_a_result_without_rows_still_has_its_columns(run_sql: RunSql) -> None:
    sql = "select tags, body from orders where tags = 'none'"
    assert run_sql(sql).out.split() == ["tags", "body"]
    assert run_sql(sql, "-o", "csv").out == "tags,body\n"
    assert run_sql(sql, "-o", "json").rows == []


def test_a_limited_scan_is_done_and_not_complete(run_sql: RunSql) -> None:
    done = run_sql("select count(*) as n from orders", "--limit-scan", "4", "-o", "json")
    assert (done.status, done.rows) == (0, [{"n": 4}])
    assert done.err == "scanned 4 of 12 messages of orders (2 queues), stopped at --limit-scan: not complete\n"


@pytest.mark.parametrize(
    ("options", "count"),
    [(("--tags", "odd || none"), 6), (("--keys", "k1,k2"), 2), (("--since", "-1d", "--until", "-1h"), 0)],
)
def test_options_choose_messages(run_sql: RunSql, options: tuple[str, ...], count: int) -> None:
    assert run_sql("select count(*) as n from orders", *options, "-o", "json").rows == [{"n": count}]


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (("select * from ordres",), 1, "did you mean orders?"),
        (("select pric from orders",), 2, "at position 8"),
        (("select body_text::int from orders",), 1, "the query failed: Could not convert"),
        ((), 2, "give either a query, - for stdin, or --file"),
        ((" ",), 2, "the query is empty"),
        (("select 1", "--since", "yesterday"), 2, "is not a time"),
        (("select 1", "--master", "local[1]"), 2, "--master needs --engine spark"),
        (("select 1", "--engine", "spark", "--limit-scan", "3"), 2, "--limit-scan works only with --engine duckdb"),
    ],
)
def test_an_error_is_one_line(run_sql: RunSql, arguments: tuple[str, ...], status: int, expected: str) -> None:
    done = run_sql(*arguments)
    assert (done.status, done.out) == (status, "")
    assert expected in done.err
    assert len(done.err.splitlines()) == 1


def test_an_unreachable_nameserver_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "select * from orders", "-n", "127.0.0.1:1"]) == 3
    assert "no nameserver answers" in capsys.readouterr().err


def test_a_missing_engine_is_one_sentence_with_the_line_to_run(tmp_path: Path) -> None:
    (tmp_path / "duckdb.py").write_text("raise ImportError('no duckdb here', name='duckdb')\n")
    paths = os.pathsep.join((str(tmp_path), ENVIRONMENT["PYTHONPATH"]))
    done = CommandLine("127.0.0.1:1", variables={"PYTHONPATH": paths}).run("sql", "select 1")
    assert done.status == 2
    assert done.err.endswith("run pip install 'ariane[sql]'\n")


def test_the_help_imports_no_engine() -> None:
    engines = "{'duckdb', 'pyarrow'}"
    code = f"import sys, ariane.cli.main as cli; cli.main(['sql', '-h']); sys.exit(len({engines} & {{*sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT).returncode == 0


def test_a_store_is_read_past_its_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_broker(tmp_path) as broker:
        broker.create_topic("orders", queues=1)
        for number in range(3):
            broker.send("orders", b"m%d" % number)
    sql = "select body from orders order by queueOffset"
    assert main(["sql", "--store", str(tmp_path), sql, "-o", "csv"]) == 0
    printed = capsys.readouterr()
    assert printed.out.split() == ["body", "m0", "m1", "m2"]
    assert printed.err == "scanned 3 messages of orders (1 queue), complete\n"
