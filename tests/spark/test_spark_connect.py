"""Spark Connect: a thin client without a JVM, and a server that runs its queries."""

import json
from pathlib import Path

import pytest

from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.read.test_store import wait_until_indexed
from tests.spark.spark_servers import connect_server, run_job


@pytest.mark.long
def test_the_same_program_runs_through_a_connect_server(cluster: ClusterFixture, tmp_path: Path) -> None:
    topic, out = cluster.topic(queues=2, brokers=["broker-a"]), cluster.topic(queues=2)
    cluster.spread_over(topic, {0: 60, 1: 60})
    wait_until_indexed(cluster.stores["broker-a"], topic, 120)
    sent = sorted(str(number) for number in range(60) for _ in range(2))
    with connect_server(tmp_path) as address:
        result = json.loads(run_job(address, tmp_path, cluster.nameserver, topic, out, cluster.stores["broker-a"]))
    assert result["batch"] == result["stream"] == result["store"] == sent
    assert result["written"] == sorted(f"copy of {body}" for body in sent)
