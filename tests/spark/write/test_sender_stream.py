"""A stream into a topic: what a restart, a failed batch and a broker that is away do to it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.broker_processes import broker_processes
from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.read.test_stream import PATIENCE_S
from tests.spark.write.test_sender import everything


def copy(frame: DataFrame, cluster: ClusterFixture, target: str, checkpoint: Path) -> StreamingQuery:
    writer = frame.writeStream.format("rocketmq").option("nameServer", cluster.nameserver).option("topic", target)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


@pytest.mark.long
def test_a_stream_from_topic_to_topic_brings_every_message(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    source, target = cluster.topic(), cluster.topic()
    bodies = cluster.spread(source, 200, TAGS="A")
    frame = cluster.stream(spark, source, startingOffsets="earliest", maxOffsetsPerTrigger=80).load()
    assert copy(frame.select("body", "tags", "keys"), cluster, target, tmp_path).awaitTermination(PATIENCE_S)
    copied = everything(cluster, target)
    assert sorted(message.body for message in copied) == sorted(bodies)
    assert {message.tags for message in copied} == {"A"}
    cluster.send(source, [b"more"])
    assert copy(frame.select("body", "tags", "keys"), cluster, target, tmp_path).awaitTermination(PATIENCE_S)
    assert len(everything(cluster, target)) == 201


def test_a_micro_batch_that_is_written_twice_has_the_same_unique_keys(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    source, target = cluster.topic(queues=1, brokers=["broker-a"]), cluster.topic(queues=1, brokers=["broker-a"])
    cluster.send(source, [b"%d" % number for number in range(50)])
    frame = cluster.stream(spark, source, startingOffsets="earliest").load().select("body")
    assert copy(frame, cluster, target, tmp_path).awaitTermination(PATIENCE_S)
    for commit in (tmp_path / "commits").glob("*0*"):
        commit.unlink()  # as if the driver had died between the last message and the commit
    assert copy(frame, cluster, target, tmp_path).awaitTermination(PATIENCE_S)
    messages = everything(cluster, target)
    assert len(messages) == 100
    assert len({message.unique_key for message in messages}) == 50


def test_a_sink_waits_for_a_broker_that_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    with broker_processes(tmp_path, "broker-a") as brokers:
        cluster = brokers.cluster
        topic = cluster.topic(queues=2)
        brokers.kill("broker-a")
        frame = spark.range(300).selectExpr("cast(id AS string) AS body")
        source = frame.write.format("rocketmq").option("nameServer", cluster.nameserver).option("topic", topic)
        with ThreadPoolExecutor(1) as thread:
            starting = thread.submit(brokers.start, "broker-a")
            source.mode("append").save()
            starting.result()
        assert sorted(int(message.body) for message in everything(cluster, topic)) == list(range(300))
