"""Every shipped pipeline with `ariane pipeline run`: what it prints and writes, and that no process is left."""

import json
from pathlib import Path
from time import sleep

import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from ariane.cli.up.demo_orders import OrderStream
from tests.spark.cluster_fixture import ClusterFixture, cluster_in_thread
from tests.spark.jobs.test_rebuild import content
from tests.spark.pipeline.trace_samples import a_send_of_m1
from tests.spark.pipeline_commands import left_behind, run_to_its_end, under_way
from tests.spark.write.test_sender import everything
from tests.store.golden_stores import unpack

pytestmark = pytest.mark.long


def test_orders_once_and_once_more(cluster: ClusterFixture, tmp_path: Path) -> None:
    topic, to = cluster.topic(queues=1, brokers=["broker-a"]), cluster.topic(queues=1, brokers=["broker-a"])
    stream = OrderStream(seed=2)
    cluster.send(topic, [stream.next(1_800_000_000_000 + 100 * number).body for number in range(600)])
    arguments = ("orders", "--once", "--set", f"topic={topic}", "--set", f"to={to}", "--set", "work=work")
    first = run_to_its_end(cluster.nameserver, tmp_path, *arguments)
    assert {row["region"] for row in first.rows("screen")} <= {"eu", "us", "cn", "jp"}
    lake = dataset.dataset(tmp_path / "work" / "turnover", format="parquet").count_rows()
    assert lake == len(everything(cluster, to)) > 0
    assert dataset.dataset(tmp_path / "work" / "dead-letters", format="parquet").count_rows() > 0
    assert json.loads((tmp_path / "work" / "metrics.json").read_text())["state"] == "done"
    again = run_to_its_end(cluster.nameserver, tmp_path, *arguments)
    assert again.rows("screen") == []
    assert dataset.dataset(tmp_path / "work" / "turnover", format="parquet").count_rows() == lake


def test_stats_of_topics_and_of_an_apache_store(cluster: ClusterFixture, tmp_path: Path) -> None:
    topic = cluster.topic(queues=2, brokers=["broker-a"], name="counted")
    for queue, count in ((0, 6), (1, 2)):
        cluster.send(topic, [b"x" * 100] * count, queue_id=queue, properties={"KEYS": f"k{queue}"})
    run = run_to_its_end(cluster.nameserver, tmp_path, "stats", "--set", f"topics={topic}", "--set", "to=minutes")
    assert sum(row["messages"] for row in run.rows("minutes")) == 8
    assert [(row["most"], row["fullest"]) for row in run.rows("skew")] == [(6, "broker-a:0")]
    assert sum(pq.read_table(tmp_path / "minutes").column("messages").to_pylist()) == 8
    root = unpack("clean", tmp_path).root
    # Nobody answers there: a store is read without a cluster.
    of_store = run_to_its_end("127.0.0.1:1", tmp_path, "stats", "--set", f"store={root}", "--set", "rows=1000")
    assert sum(row["messages"] for row in of_store.rows("minutes")) > 100


def test_dead_letters_and_traces(cluster: ClusterFixture, tmp_path: Path) -> None:
    cluster.create("%DLQ%shipping", 1, ["broker-a"])
    cluster.send("%DLQ%shipping", [b'{"id": 1}', b'{"id": 2}'], properties={"RETRY_TOPIC": "orders"})
    letters = run_to_its_end(cluster.nameserver, tmp_path, "dlq", "--set", "group=shipping", "--set", "to=letters")
    assert [(row["shape"], row["letters"]) for row in letters.rows("shapes")] == [("{id}", 2)]
    assert pq.read_table(tmp_path / "letters").num_rows == 2

    topic = cluster.topic(queues=1, brokers=["broker-a"], name="trace")
    sent = a_send_of_m1()
    cluster.send(topic, [sent.text.encode()])
    traces = run_to_its_end(cluster.nameserver, tmp_path, "trace", "--set", f"topic={topic}")
    assert [(row["message"], row["send_ms"]) for row in traces.rows("waterfall")] == [("M1", 20)]


def test_an_archive_is_made_added_to_and_replayed(cluster: ClusterFixture, tmp_path: Path) -> None:
    topic, to = cluster.topic(queues=2, brokers=["broker-a"]), cluster.topic(queues=2, brokers=["broker-a"])
    archive = ("archive", "--set", f"topic={topic}", "--set", "archive=kept")
    cluster.send(topic, [b"%d" % number for number in range(100)])
    first = run_to_its_end(cluster.nameserver, tmp_path, *archive)
    assert "archive: done, 100 rows written" in first.stderr
    cluster.send(topic, [b"late"], queue_id=1)
    assert "archive: done, 1 rows written" in run_to_its_end(cluster.nameserver, tmp_path, *archive).stderr
    replay = ("replay", "--set", f"topic={topic}", "--set", f"to={to}", "--set", "archive=kept")
    assert "replay: done, 101 rows written" in run_to_its_end(cluster.nameserver, tmp_path, *replay).stderr
    assert sorted(message.body for message in everything(cluster, to)) == sorted(
        message.body for message in everything(cluster, topic)
    )


def test_a_rebuilt_store_has_the_bytes_of_its_broker(tmp_path: Path) -> None:
    with cluster_in_thread(tmp_path / "cluster") as cluster:
        topic = cluster.topic(queues=2)
        for number in range(50):
            cluster.send(topic, [b"x"], queue_id=number % 2, properties={"KEYS": f"k{number}"})
        store = cluster.stores["broker-a"]
    target = tmp_path / "rebuilt"
    run = run_to_its_end("127.0.0.1:1", tmp_path, "rebuild", "--set", f"store={store}", "--set", f"target={target}")
    assert "rebuild: done" in run.stderr
    assert content(target / "consumequeue") == content(store / "consumequeue")
    assert [*content(target / "index").values()] == [*content(store / "index").values()]


SOURCES = """\
pipeline: sources
params: {topic: null, store: null, archive: null, files: null}
sources:
  of_store: {store: "${store}", topic: "${topic}"}
  of_archive: {archive: "${archive}", topic: "${topic}"}
  of_files: {files: "${files}", format: csv, schema: n INT}
steps:
  counts:
    sql: |
      SELECT (SELECT count(*) FROM of_store) AS store, (SELECT count(*) FROM of_archive) AS archive,
        (SELECT sum(n) FROM of_files) AS files
sinks:
  counts: {from: counts, console: 5}
"""


def test_stores_archives_and_files_are_sources(tmp_path: Path) -> None:
    (tmp_path / "sources.yaml").write_text(SOURCES)
    (tmp_path / "numbers.csv").write_text("1\n2\n3\n")
    with cluster_in_thread(tmp_path / "cluster") as cluster:
        topic = cluster.topic(queues=1)
        cluster.send(topic, [b"x"] * 30)
        archive = ("archive", "--set", f"topic={topic}", "--set", "archive=kept")
        run_to_its_end(cluster.nameserver, tmp_path, *archive)
        store = cluster.stores["broker-a"]
    params = {"topic": topic, "store": str(store), "archive": "kept", "files": "numbers.csv"}
    arguments = [word for name, value in params.items() for word in ("--set", f"{name}={value}")]
    run = run_to_its_end("127.0.0.1:1", tmp_path, "sources.yaml", *arguments)
    assert run.rows("counts") == [{"sink": "counts", "store": 30, "archive": 30, "files": 6}]


STREAM = """\
pipeline: lines
mode: stream
interval: 1h
checkpoint: work/checkpoint
metrics: work/metrics.json
params: {topic: null}
sources:
  lines: {topic: "${topic}"}
steps:
  texts: {sql: SELECT cast(body AS STRING) AS text FROM lines}
sinks:
  table: {from: texts, console: 5}
"""


def test_an_interval_on_the_command_line_overrides_and_ctrl_c_ends_a_stream(
    cluster: ClusterFixture, tmp_path: Path
) -> None:
    (tmp_path / "lines.yaml").write_text(STREAM)
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    cluster.send(topic, [b"first"])
    arguments = ("lines.yaml", "--set", f"topic={topic}", "--interval", "500ms")
    with under_way(cluster.nameserver, tmp_path, *arguments) as run:
        run.until(lambda: [row["text"] for row in run.rows("table")] == ["first"])
        cluster.send(topic, [b"second"])  # an hour later, by the file
        run.until(lambda: [row["text"] for row in run.rows("table")] == ["first", "second"])
        run.interrupt()
        assert run.status() == 0, run.stderr
    assert "table: stopped" in run.stderr
    assert "Traceback" not in run.stderr
    assert json.loads((tmp_path / "work" / "metrics.json").read_text())["state"] == "stopped"
    run.until(lambda: not left_behind(run.process.pid))
    once = run_to_its_end(cluster.nameserver, tmp_path, "lines.yaml", "--set", f"topic={topic}", "--once")
    assert once.rows("table") == []


def test_ctrl_c_ends_a_job_with_130_and_leaves_no_process(cluster: ClusterFixture, tmp_path: Path) -> None:
    """A replay that makes hours of milliseconds would go on for hours."""
    topic, to = cluster.topic(queues=1, brokers=["broker-a"]), cluster.topic(queues=1, brokers=["broker-a"])
    cluster.send(topic, [b"x"])
    sleep(0.01)  # stored in another millisecond, which becomes hours
    cluster.send(topic, [b"y"])
    arguments = ("replay", "--set", f"topic={topic}", "--set", f"to={to}", "--set", "speed=0.000001")
    with under_way(cluster.nameserver, tmp_path, *arguments) as run:
        run.until(lambda: len(everything(cluster, to)) == 1)
        run.interrupt()
        assert run.status() == 130, run.stderr
    assert "Traceback" not in run.stderr
    run.until(lambda: not left_behind(run.process.pid))
    assert [message.body for message in everything(cluster, to)] == [b"x"]
