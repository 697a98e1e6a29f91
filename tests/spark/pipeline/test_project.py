"""The project of `ariane pipeline init`, run by Spark's own `spark-pipelines`.

Two runs take minutes, most of it Spark's start, so only `ARIANE_LONG=1 pytest` runs them; `pyspark[pipelines]` must be
installed.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ariane.spark.pipeline.project import write_project
from tests.spark.cluster_fixture import ClusterFixture

HANG_S = 1200

needs_pipelines = pytest.mark.long


@needs_pipelines
def test_spark_pipelines_runs_the_project_and_continues_where_it_ended(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    pytest.importorskip("grpc_status")
    topic, paid = cluster.topic(queues=1, brokers=["broker-a"]), cluster.topic(queues=1, brokers=["broker-a"])
    project = tmp_path / "shop"
    write_project(project, cluster.nameserver, topic, paid)
    for number in (1, 2):
        events = [f'{{"order_id": "o-{number}", "status": "{status}", "amount": 5}}' for status in ("created", "paid")]
        cluster.send(topic, [event.encode() for event in events])
        _run(project)
        bodies = [bytes(row.body) for row in cluster.read(spark, paid).load().orderBy("queueOffset").collect()]
        assert len(bodies) == number
        assert b'"paid"' in bodies[-1]
    assert spark.read.parquet(str(project / "spark-warehouse" / "orders")).count() == 4


def _run(project: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(project / "run.sh")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
