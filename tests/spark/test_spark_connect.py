"""Spark Connect: a thin client that has no JVM, and a server that runs what it asks for."""

import json
from pathlib import Path

import pytest

from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.read.test_store import until_noted
from tests.spark.spark_servers import connect_server, run_job


@pytest.mark.long
def test_the_same_program_runs_through_a_connect_server(stage: ClusterFixture, tmp_path: Path) -> None:
    topic, out = stage.topic(queues=2, brokers=["broker-a"]), stage.topic(queues=2)
    stage.spread_over(topic, {0: 60, 1: 60})
    until_noted(stage.stores["broker-a"], topic, 120)
    sent = sorted(str(number) for number in range(60) for _ in range(2))
    with connect_server(tmp_path) as address:
        told = json.loads(run_job(address, tmp_path, stage.nameserver, topic, out, stage.stores["broker-a"]))
    assert told["batch"] == told["stream"] == told["store"] == sent
    assert told["written"] == sorted(f"copy of {body}" for body in sent)
