"""Exactly once on a shared session: batch writes, replays, and what is refused."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ariane.wire.requests.topics import UpdateTopic
from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.write.test_sender import everything, save

ONCE: dict[str, str | int] = {"delivery": "exactly-once", "brokerWaitSeconds": 30}
PATIENCE_S = 300


def test_a_write_that_is_repeated_under_its_name_sends_nothing(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = cluster.topic()
    frame = spark.range(300).selectExpr("cast(id AS string) AS body", "'A' AS tags")
    for _ in range(2):
        save(cluster, frame, {**ONCE, "topic": topic, "transactionId": f"load-{topic}"})
    messages = everything(cluster, topic)
    assert sorted(int(message.body) for message in messages) == list(range(300))
    assert {message.tags for message in messages} == {"A"}


def test_a_write_that_fails_in_one_task_shows_nothing_of_the_others(
    spark: SparkSession, cluster: ClusterFixture
) -> None:
    topic = cluster.topic()
    frame = spark.range(100).repartition(2).selectExpr("if(id = 99, '', cast(id AS string)) AS body")
    with pytest.raises(PySparkException, match="body is empty"):
        save(cluster, frame, {**ONCE, "topic": topic})
    assert everything(cluster, topic) == []


def test_a_micro_batch_that_is_replayed_is_found_in_the_ledger(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    source, checkpoint, topic = tmp_path / "source", tmp_path / "checkpoint", cluster.topic()
    source.mkdir()
    (source / "rows.txt").write_text("\n".join(str(number) for number in range(50)))

    def run() -> None:
        rows = spark.readStream.schema("body STRING").text(str(source)).selectExpr("body", "body AS shardingKey")
        writer = rows.writeStream.format("rocketmq").option("nameServer", cluster.nameserver).option("topic", topic)
        writer = writer.options(**ONCE).option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)

    run()
    for note in (checkpoint / "commits").glob("*0*"):
        note.unlink()  # as if the driver had died before Spark's own note of the commit
    run()
    assert sorted(int(message.body) for message in everything(cluster, topic)) == list(range(50))


@pytest.mark.parametrize(
    ("query", "options", "fault"),
    [
        ("SELECT 'x' AS body, 1 AS delayLevel", {"topic": "t"}, "a transaction cannot be delayed"),
        ("SELECT 'x' AS body, now() AS deliverTimestamp", {"topic": "t"}, "a transaction cannot be delayed"),
        ("SELECT 'x' AS body", {"topic": "no-such-topic-here"}, "no route for topic no-such-topic-here"),
        ("SELECT 'x' AS body", {"topic": "t", "transactionId": "a b"}, "option transactionId is 'a b'"),
    ],
)
def test_what_cannot_be_sent_once_is_refused_before_anything_is_sent(
    spark: SparkSession, cluster: ClusterFixture, query: str, options: dict[str, str], fault: str
) -> None:
    with pytest.raises(PySparkException, match=fault):
        save(cluster, spark.sql(query), {**ONCE, "brokerWaitSeconds": 0, **options})


def test_a_topic_that_is_read_only_is_refused(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    request = UpdateTopic(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=4,
        topic_filter_type="SINGLE_TAG",
    )
    cluster.client.calls.call(cluster.brokers["broker-a"], request)
    with pytest.raises(PySparkException, match="has no queue that takes messages: give it permission 6"):
        save(cluster, spark.sql("SELECT 'x' AS body"), {**ONCE, "topic": topic})
