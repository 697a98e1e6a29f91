"""A Spark standalone cluster, as `pip install pyspark` brings it: one master, two workers, executors of their own."""

import json
from pathlib import Path

import pytest

from tests.spark.spark_servers import run_job, standalone_cluster
from tests.spark.stage import Stage
from tests.spark.test_spark_store import until_noted


@pytest.fixture
def filled(stage: Stage) -> tuple[str, list[str]]:
    """A topic of broker-a, and its bodies as the job prints them."""
    topic = stage.topic(queues=4, brokers=["broker-a"], name="job")
    stage.spread_over(topic, dict.fromkeys(range(4), 50))
    until_noted(stage.stores["broker-a"], topic, 200)
    return topic, sorted(str(number) for number in range(50) for _ in range(4))


@pytest.mark.long
def test_reads_streams_stores_and_sinks_run_on_a_standalone_cluster(
    stage: Stage, filled: tuple[str, list[str]], tmp_path: Path
) -> None:
    topic, sent = filled
    out = stage.topic(queues=2)
    with standalone_cluster(tmp_path) as master:
        told = json.loads(run_job(master, tmp_path, stage.nameserver, topic, out, stage.stores["broker-a"]))
    assert told["batch"] == told["stream"] == told["store"] == sent
    assert told["written"] == sorted(f"copy of {body}" for body in sent)
    assert {Path(directory).parents[1] for directory in told["workers"]} == {
        tmp_path / "worker-0",
        tmp_path / "worker-1",
    }
