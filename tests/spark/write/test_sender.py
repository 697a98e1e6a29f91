"""Rows to topics, on a real session and real brokers."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from time import sleep

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ariane.model.message import StoredMessage
from ariane.model.route import MessageQueue
from ariane.spark.offsets import QueueRange
from ariane.spark.read.range_pull import PullSettings, RangePull
from ariane.spark.write.rows import TaskIdentity, TaskKeys
from ariane.wire.message_id import unique_key_time_ms
from ariane.wire.record.read import decode_all
from tests.spark.cluster_fixture import ClusterFixture


def stored(cluster: ClusterFixture, topic: str) -> dict[MessageQueue, list[StoredMessage]]:
    """Everything that is in the topic, by queue."""
    messages = {}
    for broker in {queue.broker_name for queue in cluster.known_queues(topic)}:
        for queue, ends in cluster.client.ends(topic, broker).items():
            pull = RangePull(cluster.client, QueueRange(queue, ends.first, ends.next), PullSettings(group="looking"))
            messages[queue] = [message for body in pull for message in decode_all(body)]
    return messages


def everything(cluster: ClusterFixture, topic: str) -> list[StoredMessage]:
    return [message for messages in stored(cluster, topic).values() for message in messages]


def save(cluster: ClusterFixture, frame: DataFrame, options: Mapping[str, object]) -> None:
    writer = frame.write.format("rocketmq").option("nameServer", cluster.nameserver).mode("append")
    for name, value in options.items():
        writer = writer.option(name, value)  # type: ignore[arg-type]
    writer.save()


def test_every_row_becomes_one_message(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = cluster.topic()
    save(cluster, spark.range(3000).selectExpr("cast(id as string) as body"), {"topic": topic})
    messages = everything(cluster, topic)
    assert sorted(int(message.body) for message in messages) == list(range(3000))
    assert len({message.unique_key for message in messages}) == 3000


def test_columns_become_the_fields_of_a_message(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = cluster.topic()
    frame = spark.sql(
        f"SELECT '{topic}' AS topic, cast('hello' AS binary) AS body, 'A' AS tags, array('k1', 'k2') AS keys, "
        "map('colour', 'red') AS properties"
    )
    save(cluster, frame, {})
    (message,) = everything(cluster, topic)
    assert (message.body, message.tags, message.keys) == (b"hello", "A", ("k1", "k2"))
    assert message.properties["colour"] == "red"


def test_a_sharding_key_keeps_its_rows_in_one_queue_and_in_order(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = cluster.topic(queues=4)
    frame = (
        spark.range(2000).coalesce(1).selectExpr("cast(id AS string) AS body", "cast(id % 7 AS string) AS shardingKey")
    )
    save(cluster, frame, {"topic": topic, "sendBatchSize": 50})
    places: dict[int, set[MessageQueue]] = {}
    for queue, messages in stored(cluster, topic).items():
        numbers = [int(message.body) for message in messages]
        assert numbers == sorted(numbers)
        for number in numbers:
            places.setdefault(number % 7, set()).add(queue)
    assert sum(map(len, stored(cluster, topic).values())) == 2000
    assert {len(queues) for queues in places.values()} == {1}


def test_a_queue_can_be_named_with_its_broker(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = cluster.topic()
    frame = spark.sql("SELECT 'x' AS body, 1 AS queueId, 'broker-b' AS brokerName")
    save(cluster, frame, {"topic": topic})
    queue = MessageQueue(topic=topic, broker_name="broker-b", queue_id=1)
    assert [message.body for message in stored(cluster, topic)[queue]] == [b"x"]


def test_a_queue_that_several_brokers_have_needs_the_name_of_one(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = cluster.topic()
    with pytest.raises(PySparkException, match="is on several brokers"):
        save(cluster, spark.sql("SELECT 'x' AS body, 1 AS queueId"), {"topic": topic})


def test_a_delivery_time_reaches_the_broker(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    frame = spark.createDataFrame([(b"later", soon)], "body binary, deliverTimestamp timestamp")
    save(cluster, frame, {"topic": topic})
    while not (messages := everything(cluster, topic)):
        sleep(0.02)  # polls: the broker delivers it when it is due, without a notification
    assert messages[0].store_timestamp_ms >= int(soon.timestamp() * 1000) - 1


@pytest.mark.parametrize(
    ("query", "options", "fault"),
    [
        ("SELECT 1 AS id", {"topic": "t"}, "a message has no column id"),
        ("SELECT 'x' AS tags", {"topic": "t"}, "no column body"),
        ("SELECT 'x' AS body", {}, "no topic is given"),
        ("SELECT 5 AS body", {"topic": "t"}, "column body is int, but must be binary or string"),
        ("SELECT 'x' AS body, 'k' AS shardingKey, 1 AS queueId", {"topic": "t"}, "exclude each other"),
        ("SELECT 'x' AS body", {"topic": "t", "topics": "u"}, "option topics is unknown: did you mean topic"),
        ("SELECT 'x' AS body", {"topic": "no-such-topic-here"}, "no route for topic no-such-topic-here"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_reason(
    spark: SparkSession, cluster: ClusterFixture, query: str, options: dict[str, str], fault: str
) -> None:
    with pytest.raises(PySparkException, match=fault):
        save(cluster, spark.sql(query), {"brokerWaitSeconds": 0, **options})


def test_an_empty_body_names_the_reason(spark: SparkSession, cluster: ClusterFixture) -> None:
    with pytest.raises(PySparkException, match="body is empty"):
        save(cluster, spark.sql("SELECT '' AS body"), {"topic": cluster.topic()})


def test_overwriting_is_refused(spark: SparkSession, cluster: ClusterFixture) -> None:
    writer = spark.sql("SELECT 'x' AS body").write.format("rocketmq").option("topic", "t").mode("overwrite")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.save()


def test_a_repeated_task_makes_the_same_keys_and_tools_can_read_them() -> None:
    def keys(identity: TaskIdentity) -> list[str]:
        task = TaskKeys(identity)
        return [task.next() for _ in range(70_000)]

    first = keys(TaskIdentity("query", "4", 1))
    assert first == keys(TaskIdentity("query", "4", 1))
    assert len({*first, *keys(TaskIdentity("query", "5", 1)), *keys(TaskIdentity("query", "4", 2))}) == 210_000
    now_ms = 1_800_000_000_000
    assert {len(key) for key in first} == {32}
    assert unique_key_time_ms(first[0], now_ms) <= now_ms
