"""Reads from an archive return the same rows as reads from the broker, with the same options."""

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from ariane.arrow.schema import COLUMNS
from ariane.spark.jobs import archive
from tests.spark.cluster_fixture import ClusterFixture

_ALL = ",".join(COLUMNS)


def rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.brokerName, row.queueId, row.queueOffset))


@pytest.fixture(scope="module")
def archived(spark: SparkSession, cluster: ClusterFixture, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A topic, and the archive that holds it and another."""
    topic, other = cluster.topic(queues=2), cluster.topic(queues=1)
    for number in range(60):
        properties = {"TAGS": "AB"[number % 2], "KEYS": f"k{number} shared", "n": "ü"}
        if number % 3:
            properties["UNIQ_KEY"] = f"{number:032X}"
        broker = sorted(cluster.brokers)[number % 2]
        cluster.send(topic, [b"%d" % number * 40], broker=broker, queue_id=number % 4 // 2, properties=properties)
    cluster.send(topic, [b"bare"])
    cluster.send(other, [b"noise"])
    path = str(tmp_path_factory.mktemp("archive"))
    options = {"nameServer": cluster.nameserver, "topics": f"{topic},{other}", "archivePath": path}
    assert archive.run(spark, options, lambda progress: None)["rows"] == 62
    return topic, path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tags": "A", "columns": "body"},
        {"keys": f"k7,k8,{10:032X}", "columns": "offsetMsgId,uniqueKey"},
        {"minPartitions": "7", "includeProperties": "true"},
    ],
    ids=str,
)
def test_an_archive_gives_the_rows_of_the_broker(
    spark: SparkSession, cluster: ClusterFixture, archived: tuple[str, str], options: dict[str, str]
) -> None:
    topic, path = archived
    plain = options if {"columns", "includeProperties"} & options.keys() else {"columns": _ALL, **options}
    through = cluster.read(spark, topic, readMode="broker", **plain).load()
    past = cluster.read(spark, topic, readMode="archive", archivePath=path, **plain).load()
    assert through.schema == past.schema
    archived_rows = sorted(map(str, past.collect()))
    assert archived_rows == sorted(map(str, through.collect()))
    assert archived_rows


def test_times_and_offsets_select_the_same_rows_as_at_the_broker(
    spark: SparkSession, cluster: ClusterFixture, archived: tuple[str, str]
) -> None:
    topic, path = archived
    everything = rows(cluster.read(spark, topic).load())
    middle = everything[30].storeTimestamp.isoformat()
    queue = {topic: {"broker-a": {"0": 3}}}
    for options in (
        {"startingTimestamp": middle, "endingOffsets": json.dumps(queue)},
        {"asOfTimestamp": middle, "startingOffsets": json.dumps(queue)},
        {"endingTimestamp": "0"},
    ):
        through = cluster.read(spark, topic, readMode="broker", **options).load()
        past = cluster.read(spark, topic, archivePath=path, **options).load()
        assert rows(through) == rows(past), options
    only = (
        spark.read.format("rocketmq")
        .option("archivePath", path)
        .option("queues", f'{{"{topic}": {{"broker-a": [1]}}}}')
    )
    assert rows(only.load()) == [row for row in everything if (row.brokerName, row.queueId) == ("broker-a", 1)]


def test_without_a_topic_everything_is_read_and_patterns_select(spark: SparkSession, archived: tuple[str, str]) -> None:
    topic, path = archived
    reader = spark.read.format("rocketmq").option("archivePath", path)
    assert reader.load().count() == 62
    assert reader.option("topicPattern", f".*{topic[-1]}").load().select("topic").distinct().collect() == [Row(topic)]


def test_other_programs_read_the_files_by_topic_and_day(spark: SparkSession, archived: tuple[str, str]) -> None:
    topic, path = archived
    plain = spark.read.parquet(path).where(f"topic = '{topic}'")
    assert plain.count() == 61
    assert {"topic", "day", "body", "properties", "storeTimestamp"} <= set(plain.columns)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"readMode": "archive"}, "needs the option archivePath"),
        ({"topic": "nothing"}, "is not in the archive"),
        ({"sqlFilter": "a = 1"}, "evaluated by brokers"),
        ({"readMode": "broker", "topic": "t"}, "archivePath is for readMode=archive"),
        ({"archivePath": "missing"}, "is not an archive"),
    ],
)
def test_an_archive_that_cannot_be_read_is_reported(
    spark: SparkSession, archived: tuple[str, str], options: dict[str, str], reason: str, tmp_path: Path
) -> None:
    reader = spark.read.format("rocketmq")
    if "needs" not in reason:
        reader = reader.option("archivePath", archived[1])
    for name, value in options.items():
        reader = reader.option(name, str(tmp_path / value) if name == "archivePath" else value)
    with pytest.raises(PySparkException, match=reason):
        reader.load().collect()


def test_a_stream_does_not_read_an_archive(spark: SparkSession, archived: tuple[str, str], tmp_path: Path) -> None:
    frame = spark.readStream.format("rocketmq").option("archivePath", archived[1]).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException, match="streams are read from brokers"):
        query.awaitTermination()
