"""A broker that dies and comes back while a stream runs: no row is lost and none comes twice."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ariane.client.settings import ClientSettings
from ariane.spark.cluster import Cluster
from tests.cluster.processes import ServerProcess, properties
from tests.spark.stage import Stage
from tests.spark.test_spark_stream import Rows, running, until


@contextmanager
def processes(root: Path) -> Iterator[tuple[Stage, ServerProcess, asyncio.Runner]]:
    """A nameserver and a broker as their users run them, with every message on the disk before it is acknowledged."""
    settings = {"brokerName": "broker-a", "storePathRootDir": root / "store", "flushDiskType": "SYNC_FLUSH"}
    with asyncio.Runner() as loop:
        nameserver = ServerProcess(root / "namesrv.log", "namesrv", "--listen", "127.0.0.1:0")
        loop.run(nameserver.start())
        conf = properties(root / "broker.conf", {**settings, "namesrvAddr": nameserver.address})
        broker = ServerProcess(root / "broker.log", "broker", "-c", str(conf), "--listen", "127.0.0.1:0")
        loop.run(broker.start())
        broker.keep_address()
        cluster = Cluster(ClientSettings(nameservers=nameserver.address))
        try:
            yield Stage(nameserver.address, {"broker-a": broker.address}, {}, cluster), broker, loop
        finally:
            cluster.calls.close()
            loop.run(broker.kill())
            loop.run(nameserver.kill())


def test_a_killed_broker_that_comes_back_costs_the_stream_no_row(spark: SparkSession, tmp_path: Path) -> None:
    rows = Rows()
    with processes(tmp_path) as (stage, broker, loop):
        topic = stage.topic(queues=2)
        frame: DataFrame = stage.stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=40).load()
        with running(frame, tmp_path / "checkpoint", rows) as query:
            stage.spread(topic, 200)
            until(lambda: len(rows.bodies) > 20, query)
            loop.run(broker.kill())
            loop.run(broker.start())
            stage.cluster.calls.close()
            stage.send(topic, [b"after"])
            until(lambda: b"after" in rows.bodies and len(rows.bodies) >= 201, query)
    numbers = sorted(int(body) for body in rows.bodies if body != b"after")
    assert numbers == list(range(200))
