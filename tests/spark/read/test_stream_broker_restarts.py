"""Brokers that die, come back and join while a stream runs: no row is lost and none comes twice."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.broker_processes import broker_processes
from tests.spark.read.test_stream import Rows, running, until


def test_a_killed_broker_that_comes_back_costs_the_stream_no_row(spark: SparkSession, tmp_path: Path) -> None:
    rows = Rows()
    with broker_processes(tmp_path, "broker-a") as brokers:
        cluster = brokers.cluster
        topic = cluster.topic(queues=2)
        frame: DataFrame = cluster.stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=40).load()
        with running(frame, tmp_path / "checkpoint", rows) as query:
            cluster.spread(topic, 200)
            until(lambda: len(rows.bodies) > 20, query)
            brokers.kill("broker-a")
            brokers.start("broker-a")
            cluster.send(topic, [b"after"])
            until(lambda: b"after" in rows.bodies and len(rows.bodies) >= 201, query)
    numbers = sorted(int(body) for body in rows.bodies if body != b"after")
    assert numbers == list(range(200))


@pytest.mark.long
def test_brokers_join_leave_and_come_back_while_the_stream_runs(spark: SparkSession, tmp_path: Path) -> None:
    rows = Rows()
    with broker_processes(tmp_path, "broker-a") as brokers:
        cluster = brokers.cluster
        topic = cluster.topic(queues=1)
        options = {"startingOffsets": "earliest", "routeRefreshSeconds": 0.1}
        with running(cluster.stream(spark, topic, **options).load(), tmp_path / "checkpoint", rows) as query:

            def wait_for(*bodies: bytes) -> None:
                until(lambda: set(bodies) <= set(rows.bodies), query)

            cluster.send(topic, [b"old"])
            wait_for(b"old")
            cluster.create(topic, 3, ["broker-a"])  # more queues
            cluster.send(topic, [b"new queue"], queue_id=2)
            wait_for(b"new queue")
            brokers.start("broker-b")  # and a broker that is new to the nameserver
            cluster.create(topic, 2, ["broker-b"])
            cluster.send(topic, [b"new broker"], broker="broker-b", queue_id=1)
            wait_for(b"new broker")
            brokers.kill("broker-b")  # for good, as far as the stream can know
            for number in range(3):
                cluster.send(topic, [b"alone %d" % number], queue_id=number)
                wait_for(b"alone %d" % number)
            brokers.start("broker-b")
            cluster.send(topic, [b"back"], broker="broker-b", queue_id=1)
            cluster.send(topic, [b"still here"])
            wait_for(b"back", b"still here")
    alone = [b"alone 0", b"alone 1", b"alone 2"]
    assert sorted(rows.bodies) == sorted([b"old", b"new queue", b"new broker", *alone, b"back", b"still here"])
