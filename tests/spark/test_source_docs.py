"""The code blocks of docs/spark.md: each is run against brokers and a store, or listed here with the reason why not."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession

from ariane.model.route import MessageQueue
from tests.examples.snippets import ADDRESS, ROOT
from tests.spark.cluster_fixture import ClusterFixture, cluster_in_thread
from tests.spark.read.test_store import wait_until_indexed
from tests.spark.read.test_stream import until
from tests.spark.write.test_sender import everything

PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^## ([^\n]+)\n|^### ([^\n]+)\n|^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
ORDERS = 30
NOT_RUN = {
    "Clusters, python": ("head:7077", "head:15002"),
    "Clusters, sh": ("head:7077", "venv-pack"),
}
"""They name machines that do not exist here. With existing ones they are run in test_standalone_cluster.py,
test_spark_connect.py and test_shipped_environment.py."""


def headed_blocks() -> dict[str, list[str]]:
    """The blocks of each heading and language, in order."""
    blocks: dict[str, list[str]] = {}
    heading = ""
    for part, small, language, text in BLOCKS:
        heading = part or small or heading
        if language:
            blocks.setdefault(f"{heading}, {language}", []).append(text)
    return blocks


@dataclass
class DocsPage:
    """The environment of the blocks: a cluster with their topics, a directory for all paths, and shared variables."""

    spark: SparkSession
    cluster: ClusterFixture
    root: Path
    names: dict[str, Any] = field(default_factory=dict)

    def run(self, text: str) -> None:
        exec(self.adapted(text), self.names)

    def adapted(self, text: str) -> str:
        """With the addresses and directories of this test in place of those of the page."""
        here = f'"nameServer", "{self.cluster.nameserver}"'
        text = text.replace(f'.option("nameServer", "{ADDRESS}")', "")
        text = text.replace('.format("rocketmq")', f'.format("rocketmq").option({here})')
        text = text.replace('{"topic": ', f'{{{here.replace(", ", ": ")}, "topic": ')
        return re.sub(r'"/?(data|lake|checkpoints)/', rf'"{self.root}/\1/', text)

    @property
    def orders(self) -> int:
        return len(everything(self.cluster, "orders"))

    def stream(self) -> DataFrame:
        return self.cluster.stream(self.spark, "orders", startingOffsets="earliest").load().select("body")


@pytest.fixture(scope="module")
def docs_page(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocsPage]:
    root = tmp_path_factory.mktemp("page")
    with cluster_in_thread(root / "cluster", property_filter=True) as cluster:
        for topic, queues in (("orders", 2), ("orders-out", 1), ("orders-test", 2)):
            cluster.create(topic, queues)
        properties = {"TAGS": "paid", "KEYS": "order-17", "price": "120", "colour": "red"}
        bodies = [json.dumps({"id": number, "price": 9.5, "at": "2026-01-31T08:00:00Z"}) for number in range(ORDERS)]
        cluster.send("orders", [body.encode() for body in bodies], properties=properties)
        wait_until_indexed(cluster.stores["broker-a"], "orders", ORDERS)
        shutil.copytree(cluster.stores["broker-a"], root / "data" / "rocketmq" / "store")
        yield DocsPage(spark, cluster, root, {"spark": spark})


def only(heading: str) -> str:
    (text,) = headed_blocks()[f"{heading}, python"]
    return text


def test_every_block_has_a_test_here() -> None:
    tested = {f"{heading}, python" for heading in TESTED}
    assert set(headed_blocks()) == tested | set(NOT_RUN)
    assert len(headed_blocks()["Read a topic, python"]) == 2


def test_a_block_that_is_not_run_still_names_a_missing_machine() -> None:
    for name, words in NOT_RUN.items():
        (text,) = headed_blocks()[name]
        assert all(word in text for word in words), name


def read_a_part_of_it(docs_page: DocsPage) -> None:
    """Each line gets a new reader, because options stay with a reader."""
    first, *lines = headed_blocks()["Read a topic, python"][1].splitlines()
    counts = []
    for line in lines:
        docs_page.run(first)
        docs_page.run(f"frame = {line.partition('  #')[0]}.load()")
        counts.append(docs_page.names["frame"].count())
    assert counts == [0, 0, ORDERS - 23, ORDERS, ORDERS, ORDERS]


def bodies_that_are_json(docs_page: DocsPage) -> None:
    docs_page.run(only("Bodies that are JSON"))
    row = docs_page.names["orders"].orderBy("queueOffset").first()
    assert (row.id, str(row.price), row.queueOffset, row._corrupt_record) == (0, "9.50", 0, None)


def read_a_stream(docs_page: DocsPage) -> None:
    docs_page.run(only("Read a stream"))
    query, queue = docs_page.names["query"], MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
    until(lambda: docs_page.cluster.client.group_offset("spark-orders", queue) == ORDERS, query)  # it knows the latest
    docs_page.cluster.send("orders", [b"late"] * 3)
    until(lambda: sum(progress.numInputRows for progress in query.recentProgress) == 3, query)
    query.processAllAvailable()
    query.stop()
    assert docs_page.spark.read.parquet(f"{docs_page.root}/lake/orders").count() == 3


def read_a_store_directory(docs_page: DocsPage) -> None:
    for line in only("Read a store directory").splitlines():
        docs_page.run(f"frame = {line.partition('  #')[0]}")
        assert docs_page.names["frame"].count() >= ORDERS


def archive_and_replay(docs_page: DocsPage) -> None:
    (docs_page.root / "lake").mkdir(exist_ok=True)
    docs_page.run(only("Archive and replay").replace("/lake/orders", "/lake/archive"))
    assert len(everything(docs_page.cluster, "orders-test")) == docs_page.orders


def write_to_a_topic(docs_page: DocsPage) -> None:
    rows = [("paid", f"customer-{number}") for number in range(3)]
    docs_page.names["frame"] = docs_page.spark.createDataFrame(rows, "status STRING, customer STRING")
    before = len(everything(docs_page.cluster, "orders-out"))
    docs_page.run(only("Write to a topic"))
    written = everything(docs_page.cluster, "orders-out")[before:]
    assert b'{"status":"paid","customer":"customer-0"}' in [message.body for message in written]


def each_row_once(docs_page: DocsPage) -> None:
    before = len(everything(docs_page.cluster, "orders-out"))
    docs_page.names["frame"] = docs_page.stream()
    docs_page.run(only("Exactly once"))
    docs_page.names["query"].processAllAvailable()
    docs_page.names["query"].stop()
    assert len(everything(docs_page.cluster, "orders-out")) == before + docs_page.orders


def write_to_a_delta_table(docs_page: DocsPage) -> None:
    docs_page.names["frame"] = docs_page.stream()
    docs_page.run(f"query = {only('Write to a Delta table')}")
    docs_page.names["query"].processAllAvailable()
    docs_page.names["query"].stop()
    assert DeltaTable(f"{docs_page.root}/data/lake/orders").to_pyarrow_table().num_rows == docs_page.orders


def write_to_an_iceberg_table(docs_page: DocsPage) -> None:
    docs_page.names["frame"] = docs_page.stream()
    (docs_page.root / "data" / "lake").mkdir(parents=True, exist_ok=True)
    place = f"sqlite:///{docs_page.root}/data/lake/catalog.db"
    docs_page.run(f"query = {only('Write to an Iceberg table')}".replace("sqlite:////data/lake/catalog.db", place))
    docs_page.names["query"].processAllAvailable()
    docs_page.names["query"].stop()
    with load_catalog(uri=place) as catalog:
        assert catalog.load_table("lake.orders").scan().to_arrow().num_rows == docs_page.orders


QUICK = ("Read a store directory",)
TESTED: dict[str, Callable[[DocsPage], None]] = {
    "Read a topic": read_a_part_of_it,  # its first block is run in test_spark_snippets.py, where what it shows is read
    "Bodies that are JSON": bodies_that_are_json,
    "Read a stream": read_a_stream,
    "Read a store directory": read_a_store_directory,
    "Archive and replay": archive_and_replay,
    "Write to a topic": write_to_a_topic,
    "Exactly once": each_row_once,
    "Write to a Delta table": write_to_a_delta_table,
    "Write to an Iceberg table": write_to_an_iceberg_table,
}


@pytest.mark.parametrize(
    "heading", [pytest.param(heading, marks=() if heading in QUICK else pytest.mark.long) for heading in TESTED]
)
def test_the_blocks_do_what_they_say(heading: str, docs_page: DocsPage) -> None:
    TESTED[heading](docs_page)
