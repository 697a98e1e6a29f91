"""A Spark standalone cluster, as `pip install pyspark` brings it: one master, two workers, executors of their own."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.jobs.test_archive import visible
from tests.spark.pipeline_commands import run_to_its_end
from tests.spark.read.test_store import wait_until_indexed
from tests.spark.spark_servers import run_job, standalone_cluster
from tests.spark.write.test_sender import everything


@pytest.fixture
def filled(cluster: ClusterFixture) -> tuple[str, list[str]]:
    """A topic of broker-a, and its bodies as the job prints them."""
    topic = cluster.topic(queues=4, brokers=["broker-a"], name="job")
    cluster.spread_over(topic, dict.fromkeys(range(4), 50))
    wait_until_indexed(cluster.stores["broker-a"], topic, 200)
    return topic, sorted(str(number) for number in range(50) for _ in range(4))


@pytest.mark.long
def test_reads_streams_stores_and_sinks_run_on_a_standalone_cluster(
    cluster: ClusterFixture, filled: tuple[str, list[str]], tmp_path: Path
) -> None:
    topic, sent = filled
    out = cluster.topic(queues=2)
    with standalone_cluster(tmp_path) as master:
        result = json.loads(run_job(master, tmp_path, cluster.nameserver, topic, out, cluster.stores["broker-a"]))
    assert result["batch"] == result["stream"] == result["store"] == sent
    assert result["written"] == sorted(f"copy of {body}" for body in sent)
    assert {Path(directory).parents[1] for directory in result["workers"]} == {
        tmp_path / "worker-0",
        tmp_path / "worker-1",
    }


STREAM = """\
pipeline: copies
mode: stream
checkpoint: work/checkpoint
spark: {spark.executor.memory: 512m, spark.sql.shuffle.partitions: 2}
params: {topic: null, to: null}
sources:
  originals: {topic: "${topic}"}
steps:
  texts: {sql: "SELECT concat('copy of ', cast(body AS STRING)) AS body FROM originals"}
sinks:
  topic: {from: texts, topic: "${to}"}
  lake: {from: texts, parquet: work/lake}
"""


@pytest.mark.long
def test_pipelines_and_jobs_run_on_a_standalone_cluster(
    cluster: ClusterFixture, filled: tuple[str, list[str]], tmp_path: Path
) -> None:
    topic, sent = filled
    out = cluster.topic(queues=2)
    (tmp_path / "copies.yaml").write_text(STREAM)
    given = ("--set", f"topic={topic}")
    with standalone_cluster(tmp_path) as master:
        run_to_its_end(cluster.nameserver, tmp_path, "archive", *given, "--set", "archive=kept", "--master", master)
        copies = ("copies.yaml", *given, "--set", f"to={out}", "--once", "--master", master)
        run_to_its_end(cluster.nameserver, tmp_path, *copies)
    assert len(visible(tmp_path / "kept")) == len(sent)
    copied = [message.body.decode() for message in everything(cluster, out)]
    assert sorted(copied) == sorted(f"copy of {body}" for body in sent)
    assert sorted(pq.read_table(tmp_path / "work" / "lake").column("body").to_pylist()) == sorted(copied)
