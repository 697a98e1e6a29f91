"""Reads from store directories return the same rows as reads from the broker, for Ariane's stores and for Apache's."""

import json
from pathlib import Path
from time import sleep

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from ariane.arrow.log.plan import plan_log
from ariane.arrow.log.read import read_split
from ariane.store.settings import StoreSettings
from tests.spark.cluster_fixture import ClusterFixture, cluster_in_thread
from tests.store.golden_stores import overwrite, unpack

_ALL = (
    "topic,brokerName,queueId,queueOffset,msgId,tags,keys,body,bornTimestamp,storeTimestamp,properties,physicalOffset,"
    "sysFlag,flag,reconsumeTimes,bornHost,storeHost,preparedTransactionOffset,bodyCRC"
)


def rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.queueId, row.queueOffset))


def both(
    spark: SparkSession, cluster: ClusterFixture, store: Path, topic: str, **options: object
) -> tuple[list[Row], list[Row]]:
    """What the broker gives, and what the files hold."""
    options = {"columns": _ALL, **options}
    through = cluster.read(spark, topic, readMode="broker", **options).load()
    past = cluster.read(spark, topic, storePath=str(store), brokerName="broker-a", **options).load()
    return rows(through), rows(past)


def wait_until_indexed(store: Path, topic: str, messages: int) -> None:
    """A running broker notes once a second how far its files can be read."""

    def readable() -> int:
        splits = plan_log(store, topics=[topic], live=True).splits
        return sum(batch.num_rows for split in splits for batch in read_split(split, ["queueOffset"]))

    while readable() < messages:
        sleep(0.05)


@pytest.mark.long
def test_a_live_store_gives_the_same_rows_as_its_broker(spark: SparkSession, cluster: ClusterFixture) -> None:
    store = cluster.stores["broker-a"]
    topic, other = cluster.topic(queues=3, brokers=["broker-a"]), cluster.topic(queues=1, brokers=["broker-a"])
    for number in range(120):
        properties = {"TAGS": "AB"[number % 2], "KEYS": f"k{number}", "UNIQ_KEY": f"{number:032X}", "n": str(number)}
        cluster.send(topic, [b"%d" % number * 40], queue_id=number % 3, properties=properties)
        cluster.send(other, [b"noise"])
    wait_until_indexed(store, topic, 120)
    for options in (
        {},
        {"tags": "A"},
        {"keys": "k7,k8"},
        {"startingOffsets": json.dumps({topic: {"broker-a": {"0": 5, "1": 0, "2": 39}}})},
        {"endingOffsets": json.dumps({topic: {"broker-a": {"1": 3}}})},
    ):
        through, past = both(spark, cluster, store, topic, **options)
        assert through == past
        assert through
    middle = both(spark, cluster, store, topic)[0][60].storeTimestamp.isoformat()
    for option in ("startingTimestamp", "endingTimestamp", "asOfTimestamp"):
        through, past = both(spark, cluster, store, topic, **{option: middle})
        assert through == past


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_a_store_that_apache_wrote_gives_the_same_rows(spark: SparkSession, tmp_path: Path, name: str) -> None:
    layout = unpack(name, tmp_path)
    segment_bytes = next(path.stat().st_size for path in layout.commit_log.iterdir())
    store = StoreSettings(
        root=layout.root,
        segment_bytes=segment_bytes,
        queue_segment_bytes=2000,
        index_slots=1000,
        index_entries=4000,
        retention_hours=24 * 365 * 10,
    )
    alone = rows(
        spark.read.format("rocketmq").option("columns", _ALL).option("topicPattern", "Golden.*").load(str(layout.root))
    )
    assert len(alone) > 100
    with cluster_in_thread(tmp_path / "broker", store=store) as cluster:
        topics = ",".join(sorted({row.topic for row in alone}))
        # The broker has begun to deliver what Apache's had delayed: that is behind what was read before.
        last = max(row.physicalOffset for row in alone)
        through = rows(cluster.read(spark, topics, columns=_ALL).load().where(f"physicalOffset <= {last}"))
    assert [row.asDict() | {"brokerName": None} for row in through] == [row.asDict() for row in alone]


def test_a_store_is_split_by_bytes_into_as_many_partitions_as_requested(
    spark: SparkSession, cluster: ClusterFixture
) -> None:
    topic = cluster.topic(queues=2, brokers=["broker-a"])
    cluster.send(topic, [b"x" * 1000] * 400)
    wait_until_indexed(cluster.stores["broker-a"], topic, 400)
    frame = cluster.read(spark, topic, storePath=str(cluster.stores["broker-a"]), minPartitions=5).load()
    assert frame.rdd.getNumPartitions() >= 5
    assert frame.select("queueOffset").distinct().count() == frame.count() == 400


def test_several_stores_are_read_by_a_pattern(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = cluster.topic()
    cluster.spread(topic, 40)
    for store in cluster.stores.values():
        wait_until_indexed(store, topic, 20)
    pattern = str(cluster.stores["broker-a"].parents[1] / "*" / "store")
    frame = cluster.read(spark, topic, storePath=pattern).load()
    assert sorted(int(row.body) for row in frame.collect()) == list(range(40))


def test_a_missing_store_or_topic_is_reported(spark: SparkSession, cluster: ClusterFixture, tmp_path: Path) -> None:
    store = str(cluster.stores["broker-a"])
    for options, fault in (
        ({"storePath": str(tmp_path)}, "is not a directory: give the root directory of the store"),
        ({"storePath": f"{tmp_path}/*/store"}, "no directory matches storePath"),
        ({"storePath": store, "sqlFilter": "a > 1"}, "sqlFilter is evaluated by brokers"),
        ({"storePath": store}, "topic nowhere is not in"),
    ):
        with pytest.raises(PySparkException, match=fault):
            cluster.read(spark, "nowhere", **options).load().collect()


def test_a_damaged_record_stops_the_query_or_is_reported_and_left_out(spark: SparkSession, tmp_path: Path) -> None:
    layout = unpack("clean", tmp_path)
    reader = spark.read.format("rocketmq").option("columns", "physicalOffset,topic,queueId,queueOffset")
    whole = rows(reader.load(str(layout.root)))
    victim = whole[len(whole) // 2].physicalOffset
    file = max(path for path in layout.commit_log.iterdir() if int(path.name) <= victim)
    overwrite(file, victim - int(file.name) + 4, b"\0\0\0\0")
    with pytest.raises(PySparkException, match="are not a readable message"):
        reader.load(str(layout.root)).collect()
    left = rows(reader.option("failOnDataLoss", "false").load(str(layout.root)))
    assert [row for row in whole if row.physicalOffset != victim] == left
