"""Streams from topics: checkpoints, limits, new queues, on a real session and real brokers."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ariane.model.route import MessageQueue
from tests.spark.cluster_fixture import ClusterFixture

PATIENCE_S = 120


class Rows:
    """What the micro-batches brought, by their number: a batch that is replayed replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}

    def take(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = [bytes(row.body) for row in frame.select("body").collect()]

    @property
    def bodies(self) -> list[bytes]:
        return [body for number in sorted(self.batches) for body in self.batches[number]]


@contextmanager
def running(frame: DataFrame, checkpoint: Path, rows: Rows, **trigger: Any) -> Iterator[StreamingQuery]:
    writer = frame.writeStream.foreachBatch(rows.take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()
    try:
        yield query
    finally:
        query.stop()


def available(frame: DataFrame, checkpoint: Path, rows: Rows) -> StreamingQuery:
    """Runs until everything that is there now has come."""
    with running(frame, checkpoint, rows, availableNow=True) as query:
        assert query.awaitTermination(PATIENCE_S)
        return query


def until(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = monotonic() + PATIENCE_S
    while not condition():
        assert monotonic() < deadline, query.lastProgress
        error = query.exception()
        assert error is None, error
        sleep(0.02)


def test_available_now_reads_what_is_there_once_and_continues_from_the_checkpoint(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic = cluster.topic()
    first = cluster.spread(topic, 300)
    rows = Rows()
    frame = cluster.stream(spark, topic, startingOffsets="earliest").load()
    available(frame, tmp_path, rows)
    assert sorted(rows.bodies) == sorted(first)
    more = Rows()
    cluster.send(topic, [b"late"], broker="broker-b", queue_id=1)
    available(frame, tmp_path, more)
    assert more.bodies == [b"late"]
    again = Rows()
    available(frame, tmp_path, again)
    assert again.bodies == []


@pytest.mark.long
def test_a_limit_splits_the_messages_into_micro_batches(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic = cluster.topic()
    bodies = cluster.spread(topic, 400)
    rows = Rows()
    frame = cluster.stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=150).load()
    available(frame, tmp_path, rows)
    assert sorted(rows.bodies) == sorted(bodies)
    assert [len(batch) for batch in rows.batches.values()] == [148, 148, 104]


def test_bytes_limit_a_micro_batch_too(spark: SparkSession, cluster: ClusterFixture, tmp_path: Path) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    cluster.send(topic, [b"x" * 1000] * 30)
    rows = Rows()
    frame = cluster.stream(spark, topic, startingOffsets="earliest", maxBytesPerTrigger=12_000).load()
    available(frame, tmp_path, rows)
    assert sum(map(len, rows.batches.values())) == 30
    assert {len(batch) <= 12 for batch in rows.batches.values()} == {True}
    assert len(rows.batches) >= 3


def test_a_stream_from_latest_begins_where_the_group_was_first_seen(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    cluster.send(topic, [b"before"] * 5)
    queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
    frame = cluster.stream(spark, topic, startingOffsets="latest", consumerGroup="pinned").load()
    rows = Rows()
    with running(frame, tmp_path / "lost", rows) as query:
        until(lambda: cluster.client.group_offset("pinned", queue) == 5, query)
    cluster.send(topic, [b"after"] * 3)
    # Without its checkpoint, as after a crash before the first micro-batch was done.
    available(frame, tmp_path / "new", rows)
    assert rows.bodies == [b"after"] * 3


def test_progress_is_shown_as_the_offsets_of_the_group_and_in_the_query(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
    rows = Rows()
    options = {"startingOffsets": "earliest", "consumerGroup": "mirror"}
    with running(cluster.stream(spark, topic, **options).load(), tmp_path, rows) as query:
        cluster.send(topic, [b"1"] * 4)
        until(lambda: len(rows.bodies) == 4, query)
        cluster.send(topic, [b"2"])
        until(lambda: cluster.client.group_offset("mirror", queue) == 4, query)  # one micro-batch behind
        until(lambda: len(rows.bodies) == 5, query)
        expected = {"v": 1, "o": {topic: {"broker-a": {"0": 5}}}}
        until(lambda: expected in [_end_offset(progress) for progress in query.recentProgress], query)


def _end_offset(progress: Any) -> object:
    return json.loads(progress["sources"][0]["endOffset"])


def test_new_queues_and_new_brokers_are_read_from_their_beginning(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    rows = Rows()
    options = {"startingOffsets": "earliest", "routeRefreshSeconds": 0.1}
    with running(cluster.stream(spark, topic, **options).load(), tmp_path, rows) as query:
        cluster.send(topic, [b"old"])
        until(lambda: rows.bodies == [b"old"], query)
        cluster.create(topic, 2, ["broker-a", "broker-b"])
        cluster.send(topic, [b"queue"], queue_id=1)
        cluster.send(topic, [b"broker"], broker="broker-b", queue_id=1)
        until(lambda: sorted(rows.bodies) == [b"broker", b"old", b"queue"], query)


@pytest.mark.long
def test_too_few_messages_wait_for_more_but_not_for_ever(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    rows = Rows()
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 10, "maxTriggerDelay": "1s"}
    with running(cluster.stream(spark, topic, **options).load(), tmp_path, rows) as query:
        cluster.send(topic, [b"x"] * 10)
        until(lambda: len(rows.bodies) == 10, query)
        cluster.send(topic, [b"y"])
        until(lambda: len(rows.bodies) == 11, query)


def test_a_micro_batch_that_fails_is_read_again_whole(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic = cluster.topic()
    bodies = cluster.spread(topic, 100)
    frame = cluster.stream(spark, topic, startingOffsets="earliest").load()

    def fail(_: DataFrame, __: int) -> None:
        raise RuntimeError("the sink is down")

    query = frame.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException, match="the sink is down"):
        query.awaitTermination(PATIENCE_S)
    cluster.spread(topic, 8)
    rows = Rows()
    available(frame, tmp_path, rows)
    assert sorted(rows.batches[0]) == sorted(bodies)
    assert len(rows.bodies) == 108


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"startingOffsets": "latest"}, "needs the option consumerGroup"),
        ({"startingOffsets": "earliest", "endingTimestamp": "5"}, "a stream has no end"),
    ],
)
def test_options_that_make_no_stream_are_refused(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path, options: dict[str, str], fault: str
) -> None:
    frame = cluster.stream(spark, cluster.topic(), **options).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException, match=fault):
        query.awaitTermination(PATIENCE_S)
