"""One Spark session and one cluster for all tests here: starting them takes longer than most tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ariane.spark import session
from tests.spark.cluster_fixture import ClusterFixture, cluster_in_thread


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            # pyspark's own: unclosed sockets at exit, and names that pandas is about to drop.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.task.maxFailures": "1",
        "spark.sql.streaming.stopTimeout": "30s",
    }
    running = session("tests", master="local[2]", **settings)
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFixture]:
    """Two brokers and their nameserver."""
    with cluster_in_thread(tmp_path_factory.mktemp("brokers"), brokers=2) as cluster:
        yield cluster
