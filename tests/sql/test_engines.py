"""duckdb and Spark give the same rows for one query, and report whether they are complete."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ariane.arrow.log.files import topics_with_queues
from ariane.arrow.log.plan import plan_log
from ariane.arrow.log.read import read_split
from ariane.cli.main import main
from ariane.store.layout import Layout
from ariane.testing import BrokerForTests, running_broker
from tests.cli.command_line import ENVIRONMENT, PROGRAM
from tests.sql.test_spark_engine import own_session_ends, pytestmark
from tests.store.golden_stores import overwrite, unpack

__all__ = ["own_session_ends", "pytestmark"]  # one session for all, and pyspark's own warnings

COUNT = 30
ALL = "select * from orders order by queueId, queueOffset"
QUERIES = [
    ALL,
    "select tags, count(*) as n, min(storeTimestamp) as first, sum(storeSize) as bytes from orders group by tags "
    "order by tags",
    "select properties, flag, bornHost, body_text from orders order by queueId, queueOffset",
    "select count(body_text) as texts, count(body_json) as jsons, count(*) as n from orders",
]


def fill(broker: BrokerForTests) -> None:
    broker.create_topic("orders", queues=2)
    for number in range(COUNT):
        body = b"\xff\xfe" if number == 7 else b'{"n"' if number == 8 else b'{"n": %d}' % number
        broker.send("orders", body, tags="even" if number % 2 == 0 else "odd", keys=[f"k{number}", "all"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("engines") / "store"
    with running_broker(root) as broker:
        fill(broker)
    return root


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with running_broker() as broker:
        fill(broker)
        yield broker.namesrv


class SqlCommand:
    """`ariane sql ... -o json`."""

    def __init__(self, capsys: pytest.CaptureFixture[str], engine: str, *arguments: str) -> None:
        capsys.readouterr()
        self.status = main(["sql", "--engine", engine, "-o", "json", *arguments])
        self.out, self.err = capsys.readouterr()

    @property
    def rows(self) -> list[dict[str, Any]]:
        assert self.status == 0, self.err
        rows: list[dict[str, Any]] = json.loads(self.out)
        return rows


@pytest.mark.parametrize("sql", QUERIES)
def test_both_engines_give_the_same_rows_of_a_topic(namesrv: str, capsys: pytest.CaptureFixture[str], sql: str) -> None:
    output = SqlCommand(capsys, "duckdb", sql, "-n", namesrv)
    by_spark = SqlCommand(capsys, "spark", sql, "-n", namesrv)
    assert by_spark.rows == output.rows != []
    assert by_spark.err == f"scanned up to {COUNT} messages of orders (2 queues) by Spark, complete\n"
    assert output.err == f"scanned {COUNT} messages of orders (2 queues), complete\n"


def test_both_engines_give_the_same_rows_of_a_store_and_join_several(
    store: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output = SqlCommand(capsys, "duckdb", ALL, "--store", str(store))
    by_spark = SqlCommand(capsys, "spark", ALL, "--store", str(store))
    assert by_spark.rows == output.rows != []
    assert by_spark.err == f"scanned up to {COUNT} messages of orders (2 queues) by Spark, complete\n"
    other = tmp_path / "other"
    with running_broker(other) as broker:
        fill(broker)
    both = ("select count(*) as n from orders", "--store", str(store), "--store", str(other), "--tags", "even")
    by_spark = SqlCommand(capsys, "spark", *both)
    assert by_spark.rows == SqlCommand(capsys, "duckdb", *both).rows == [{"n": COUNT}]
    assert by_spark.err == f"scanned up to {2 * COUNT} messages of orders (4 queues) by Spark, complete\n"


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_both_engines_give_the_same_rows_of_an_apache_store(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = unpack(name, tmp_path)
    topic = max(
        topics_with_queues(layout), key=lambda one: int(SqlCommand(capsys, "duckdb", *_count(layout, one)).rows[0]["n"])
    )
    columns = "queueId, queueOffset, msgId, tags, keys, body, bornTimestamp, storeTimestamp, properties"
    responses = []
    for engine, quote in (("duckdb", '"'), ("spark", "`")):
        sql = f"select {columns} from {quote}{topic}{quote} order by queueId, queueOffset"
        responses.append(SqlCommand(capsys, engine, sql, "--store", str(layout.root)))
    assert responses[1].rows == responses[0].rows != []
    assert responses[1].err.endswith("by Spark, complete\n")


def _count(layout: Layout, topic: str) -> tuple[str, ...]:
    return f'select count(*) as n from "{topic}"', "--store", str(layout.root)


def test_spark_fails_on_a_damaged_store_and_names_the_engine_that_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "store"
    with running_broker(root) as broker:
        fill(broker)
    split = plan_log(root, topics=["orders"]).splits[0]
    offsets = [offset for batch in read_split(split, ["physicalOffset"]) for offset in batch.column(0).to_pylist()]
    overwrite(next((root / "commitlog").iterdir()), offsets[3] + 4, b"\0\0\0\0")  # the magic number of one record
    asked = SqlCommand(capsys, "spark", "select count(*) from orders", "--store", str(root))
    assert (asked.status, asked.out) == (1, "")
    assert f"at {offsets[3]} are not a readable message" in asked.err
    assert asked.err.endswith("--engine duckdb gives it without them, and says so\n")
    assert asked.err.count("\n") == 1


@pytest.mark.long
def test_a_separate_process_prints_nothing_but_the_result(store: Path) -> None:
    """Java and Spark have much to say when they start."""
    command = [*PROGRAM, "sql", "--engine", "spark", "--master", "local[2]", "-o", "json", "--store", str(store)]
    sql = "select count(*) as n from orders"
    done = subprocess.run([*command, sql], capture_output=True, text=True, env=ENVIRONMENT, timeout=600)
    assert (done.returncode, json.loads(done.stdout)) == (0, [{"n": COUNT}])
    assert done.stderr == f"scanned up to {COUNT} messages of orders (2 queues) by Spark, complete\n"
