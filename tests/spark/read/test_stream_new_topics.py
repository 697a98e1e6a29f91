"""Topics that appear while a stream runs."""

from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.read.test_stream import Rows, running, until


def test_a_pattern_finds_topics_that_are_made_while_the_stream_runs(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    name = f"grown{uuid4().hex[:8]}"
    first = cluster.topic(queues=1, brokers=["broker-a"], name=name)
    cluster.send(first, [b"first"])
    reader = spark.readStream.format("rocketmq").option("nameServer", cluster.nameserver)
    frame = reader.options(topicPattern=f"{name}-.*", startingOffsets="earliest", routeRefreshSeconds=0.1).load()
    rows = Rows()
    with running(frame, tmp_path, rows) as query:
        until(lambda: rows.bodies == [b"first"], query)
        second = cluster.topic(queues=1, brokers=["broker-b"], name=name)
        cluster.send(second, [b"second"], broker="broker-b")
        until(lambda: sorted(rows.bodies) == [b"first", b"second"], query)
