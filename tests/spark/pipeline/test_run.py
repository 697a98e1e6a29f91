"""Pipelines with a real session and real brokers: batches, streams, dead letters and errors."""

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from ariane.errors import ArianeError, NoRoute, SettingsError
from ariane.spark.pipeline.progress import SinkProgress
from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.pipeline.pipeline_runs import Recorder, run_file

SCHEMA = "id INT, price DOUBLE"
GOOD = [b'{"id": %d, "price": %d.5}' % (number, number) for number in range(10)]
BAD = [b'{"id": 1, "pri', b"null", b'{"id": "many", "price": 1}', b"\xff\xfe"]

BATCH = """\
pipeline: batch
params: {topic: null, bad: null, out: null, again: null, table: null, iceberg: null}
sources:
  orders:
    topic: ${topic}
    schema: id INT, price DOUBLE
    dead_letters: {topic: "${bad}"}
steps:
  dear:
    sql: |
      SELECT id, price, concat('o-', id) AS keys, queueOffset
      FROM doubled
      WHERE price >= 10
      ORDER BY id
  doubled: {python: pipeline_batch_steps:times, inputs: [orders], args: {factor: "2"}}
sinks:
  table: {from: dear, console: 3}
  lake: {from: dear, parquet: "${out}"}
  table_of_delta: {from: dear, delta: "${table}"}
  table_of_iceberg:
    from: dear
    iceberg: ${iceberg}
    options: {catalog.uri: "sqlite:///${table}.db", catalog.warehouse: "${table}.iceberg"}
  topic: {from: dear, topic: "${again}", json: true}
"""

STREAM = """\
pipeline: stream
mode: stream
checkpoint: ${work}/checkpoint
params: {topic: null, work: null}
sources:
  orders:
    topic: ${topic}
    schema: id INT, price DOUBLE
    dead_letters: {parquet: "${work}/bad"}
sinks:
  lake: {from: orders, parquet: "${work}/lake"}
  table:
    from: orders
    iceberg: lake.orders
    options: {catalog.uri: "sqlite:///${work}/catalog.db", catalog.warehouse: "${work}/iceberg"}
"""


def written(directory: Path, text: str, name: str = "some.yaml") -> Path:
    file = directory / name
    file.write_text(text)
    return file


@pytest.mark.long
def test_a_batch_goes_from_a_topic_through_sql_and_python_to_every_kind_of_sink(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic, bad, again = (cluster.topic(queues=1, brokers=["broker-a"]) for _ in range(3))
    cluster.send(topic, GOOD + BAD, properties={"TAGS": "t"})
    code = "def times(rows, factor):\n    return rows.withColumn('price', rows.price * int(factor))\n"
    written(tmp_path, code, "pipeline_batch_steps.py")
    params = {"topic": topic, "bad": bad, "again": again}
    params |= {"out": str(tmp_path / "out"), "table": str(tmp_path / "table"), "iceberg": "lake.dear"}
    screen, metrics = Recorder(), tmp_path / "metrics.json"
    sinks = run_file(spark, cluster, written(tmp_path, BATCH), params, screen, metrics=metrics)

    assert [row["id"] for row in screen.tables["table"]] == [5, 6, 7]
    assert "table" in screen.left_out
    assert sorted(row.price for row in spark.read.parquet(params["out"]).collect()) == [11.0, 13.0, 15.0, 17.0, 19.0]
    assert DeltaTable(params["table"]).to_pyarrow_table().num_rows == 5
    with load_catalog(uri=f"sqlite:///{params['table']}.db") as catalog:
        assert catalog.load_table("lake.dear").scan().to_arrow().num_rows == 5
    sent = cluster.read(spark, again).load().collect()
    assert sorted(json.loads(bytes(row.body))["id"] for row in sent) == [5, 6, 7, 8, 9]
    assert sorted(key for row in sent for key in row["keys"]) == ["o-5", "o-6", "o-7", "o-8", "o-9"]

    dead = cluster.read(spark, bad, includeProperties="true").load().orderBy("queueOffset").collect()
    assert [bytes(row.body) for row in dead] == BAD
    assert {row.tags for row in dead} == {"t"}
    assert [row.properties["originQueueOffset"] for row in dead] == ["10", "11", "12", "13"]
    assert [row.properties["deadReason"] for row in dead] == [
        "the body is not a JSON object",
        "the body is not a JSON object",
        "a field of the body does not match the schema",
        "the body is not a JSON object",
    ]
    assert sinks["orders_dead_letters"].rows_written == 4
    assert sinks["lake"].rows_written == 5
    kept = json.loads(metrics.read_text())
    assert kept["state"] == "done"
    assert kept["deadLetters"] == 4
    assert not spark.catalog.tableExists("orders")


@pytest.mark.long
def test_a_stream_continues_where_it_stopped_and_keeps_dead_letters(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    file = written(tmp_path, STREAM)
    params = {"topic": topic, "work": str(tmp_path)}
    counts = []
    for bodies in (GOOD + BAD, GOOD[:5] + BAD[:1]):
        cluster.send(topic, bodies)
        sinks = run_file(spark, cluster, file, params, Recorder(), metrics=tmp_path / "metrics.prom")
        counts.append([sinks[name].rows_written for name in ("lake", "orders_dead_letters")])
        assert sinks["lake"].lag == 0
        assert sinks["lake"].state == "done"
    assert counts == [[10, 4], [5, 1]]
    assert spark.read.parquet(str(tmp_path / "lake")).count() == 15
    with load_catalog(uri=f"sqlite:///{tmp_path}/catalog.db") as catalog:
        assert catalog.load_table("lake.orders").scan().to_arrow().num_rows == 15
    bad = spark.read.parquet(str(tmp_path / "bad")).orderBy("queueOffset").collect()
    assert [bytes(row.body) for row in bad] == [*BAD, BAD[0]]
    text = (tmp_path / "metrics.prom").read_text()
    assert 'ariane_pipeline_rows_written_total{pipeline="stream",sink="lake"} 5' in text
    assert 'ariane_pipeline_dead_letters_total{pipeline="stream",sink="orders_dead_letters"} 1.0' in text
    assert 'ariane_pipeline_up{pipeline="stream"} 0' in text


@pytest.mark.long
def test_a_stream_shows_windows_and_can_be_stopped(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    cluster.send(topic, GOOD)
    text = STREAM[: STREAM.index("    schema:")] + (
        "steps:\n"
        "  counts:\n"
        "    sql: SELECT window(storeTimestamp, '1 day').start AS day, count(*) AS n FROM orders GROUP BY ALL\n"
        "sinks:\n"
        "  table: {from: counts, console: 5, mode: complete}\n"
    )
    stop = Event()

    def stop_after_the_first_batch(sinks: Sequence[SinkProgress]) -> None:
        if any(sink.batches for sink in sinks):
            stop.set()

    screen = Recorder(stop_after_the_first_batch)
    params = {"topic": topic, "work": str(tmp_path)}
    sinks = run_file(spark, cluster, written(tmp_path, text), params, screen, once=False, stop=stop)
    assert sum(int(str(row["n"])) for row in screen.tables["table"]) == 10
    assert sinks["table"].state == "stopped"
    assert sinks["table"].rows_read == 10
    assert not spark.streams.active


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("price >= 10", "prise >= 10", r"some.yaml:13: step dear: \[UNRESOLVED_COLUMN.*`prise`"),
        ("FROM doubled", "FROM doubled doubled doubled", r"some.yaml:12: step dear: \[PARSE_SYNTAX_ERROR"),
        ("price DOUBLE", "price DOBLE", r"some.yaml:6: schema of source orders cannot be parsed: .*DOBLE"),
        ("json: true", "json: false", r"sink topic: a message has no column id.*`json: true`"),
    ],
)
def test_errors_of_spark_have_the_line_and_come_before_anything_is_written(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path, old: str, new: str, expected: str
) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    written(tmp_path, "def times(rows, factor):\n    return rows\n", "pipeline_batch_steps.py")
    params = {"topic": topic, "bad": topic, "out": str(tmp_path / "out"), "again": topic}
    with pytest.raises(SettingsError, match=expected):
        run_file(spark, cluster, written(tmp_path, BATCH.replace(old, new)), params, Recorder())
    assert not (tmp_path / "out").exists()
    assert not spark.catalog.tableExists("orders")


def test_without_a_dead_letter_target_a_bad_body_stops_the_pipeline(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    cluster.send(topic, GOOD + BAD[:1])
    text = BATCH[: BATCH.index("    dead_letters")] + "sinks:\n  lake: {from: orders, parquet: '${out}'}\n"
    params = {"topic": topic, "out": str(tmp_path / "out")}
    screen = Recorder()
    with pytest.raises(ArianeError, match=r"sink lake failed: source orders: .*at queue offset 10.*dead_letters"):
        run_file(spark, cluster, written(tmp_path, text), params, screen)
    assert screen.seen[-1].state == "failed"


def test_a_missing_topic_is_reported_before_spark_is_needed(cluster: ClusterFixture, tmp_path: Path) -> None:
    from ariane.spark.pipeline.dataframes import resolve_topics
    from ariane.spark.pipeline.load import load_pipeline

    pipeline = load_pipeline(written(tmp_path, STREAM), {"topic": "nowhere", "work": "w"}, cluster.nameserver)
    with pytest.raises(NoRoute, match="no route for topic nowhere"):
        resolve_topics(pipeline, {"nameServer": cluster.nameserver})
