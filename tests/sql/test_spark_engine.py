"""Queries with Spark. All tests share one session, also with others of the process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ariane.client.settings import ClientSettings
from ariane.errors import ClientError, ExpressionError, SettingsError
from ariane.sql.spark_engine import SparkTables, run_spark_query
from ariane.sql.tables import ScanFilter
from ariane.testing import BrokerForTests, running_broker

COUNT = 20
pytestmark = [  # pyspark's own: unclosed sockets, and names that pandas is about to drop
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def own_session_ends() -> Iterator[None]:
    before = SparkSession.getActiveSession()
    yield
    mine = SparkSession.getActiveSession()
    if before is None and mine is not None:
        mine.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerForTests]:
    with running_broker() as broker:
        broker.create_topic("orders", queues=2)
        for number in range(COUNT):
            broker.send("orders", b'{"n": %d}' % number, tags="even" if number % 2 == 0 else "odd")
        yield broker


def run_query(
    sql: str, broker: BrokerForTests, *stores: Path, **options: Any
) -> tuple[list[dict[str, object]], list[str]]:
    tables = SparkTables(ClientSettings(nameservers=broker.namesrv), stores, ScanFilter(**options))
    with run_spark_query(sql, tables, "local[1]") as response:
        return list(response.rows), response.sentences()


def test_spark_runs_a_query_and_reports_what_it_reads(broker: BrokerForTests) -> None:
    last = "max(get_json_object(body_text, '$.n'))"
    sql = f"select tags, count(*) as n, {last} as last from orders group by tags order by 1"
    rows, sentences = run_query(sql, broker)
    assert rows == [{"tags": "even", "n": 10, "last": "8"}, {"tags": "odd", "n": 10, "last": "9"}]
    assert sentences == [f"scanned up to {COUNT} messages of orders (2 queues) by Spark, complete"]


def test_errors_have_their_position_and_the_nearest_topic(broker: BrokerForTests) -> None:
    with pytest.raises(ClientError, match="did you mean orders"):
        run_query("select * from ordres", broker)
    with pytest.raises(ExpressionError, match="pric") as caught:
        run_query("select pric from orders", broker, tags=frozenset({"even"}))
    assert caught.value.position == 8
    with pytest.raises(ExpressionError) as caught:
        run_query("select 1\nfrom orders where (", broker)
    assert caught.value.position > 10


def test_a_scan_with_a_limit_is_not_for_spark(broker: BrokerForTests) -> None:
    with pytest.raises(SettingsError, match="--limit-scan"):
        run_query("select 1", broker, limit=5)
