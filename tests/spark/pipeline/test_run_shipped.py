"""Runs the pipelines that come with Ariane."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ariane.cli.up.demo_orders import OrderStream
from ariane.client.core.trace_format import ContextCode, after_consumption, before_consumption
from ariane.spark.pipeline.load import shipped
from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.pipeline.pipeline_runs import Recorder, run_file
from tests.spark.pipeline.trace_samples import a_send_of_m1


@pytest.mark.long
def test_stats_show_rate_size_latency_keys_and_skew(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic = cluster.topic(queues=2, brokers=["broker-a"], name="stats")
    for queue, count in ((0, 6), (1, 2)):
        cluster.send(topic, [b"x" * 100] * count, queue_id=queue, properties={"KEYS": f"k{queue} all"}, born_ms=1)
    screen, given = Recorder(), {"topics": topic, "to": str(tmp_path / "minutes")}
    run_file(spark, cluster, shipped()["stats"], given, screen)
    minutes = screen.tables["minutes"]
    assert sum(int(str(row["messages"])) for row in minutes) == 8
    assert all(int(str(row["mean_bytes"])) > 100 and int(str(row["p99_ms"])) > 10**12 for row in minutes)
    assert [(row["key"], row["messages"]) for row in screen.tables["top_keys"]] == [("all", 8), ("k0", 6), ("k1", 2)]
    (skew,) = screen.tables["skew"]
    assert (skew["queues"], skew["least"], skew["most"], skew["skew"]) == (2, 2, 6, 1.5)
    assert skew["fullest"] == "broker-a:0"
    assert spark.read.parquet(given["to"]).count() == len(minutes)


@pytest.mark.long
def test_dead_letters_are_grouped_by_shape_and_can_be_sent_again(spark: SparkSession, cluster: ClusterFixture) -> None:
    cluster.create("%DLQ%billing", 1, ["broker-a"])
    again = cluster.topic(queues=1, brokers=["broker-a"])
    properties = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "0A", "TAGS": "paid", "KEYS": "o-1"}
    bodies = [b'{"id": 1, "amount": 2}', b'{"amount": 5, "id": 3}', b'{"id"', b"order 17 of 18"]
    cluster.send("%DLQ%billing", bodies, properties=properties)
    screen = Recorder()
    sinks = run_file(spark, cluster, shipped()["dlq"], {"group": "billing", "redrive_to": again}, screen)
    shapes = {row["shape"]: row["letters"] for row in screen.tables["shapes"]}
    assert shapes == {"{amount, id}": 2, "(malformed JSON)": 1, "order # of #": 1}
    assert {row["origin"] for row in screen.tables["shapes"]} == {"orders"}
    (ages,) = screen.tables["ages"]
    assert (ages["hour"], ages["older"], ages["command"]) == (4, 0, "ariane dlq redrive billing")
    assert len(screen.tables["redrive"]) == 4
    assert sinks["again"].rows_written == 4
    sent = cluster.read(spark, again).load().collect()
    assert sorted(bytes(row.body) for row in sent) == sorted(bodies)


def test_a_cluster_without_dead_letters_has_an_empty_report(spark: SparkSession, cluster: ClusterFixture) -> None:
    screen = Recorder()
    run_file(spark, cluster, shipped()["dlq"], {"group": "nobody-ever"}, screen)
    assert screen.tables["shapes"] == []


def test_traces_become_a_waterfall_with_percentiles(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"], name="trace")
    sent = a_send_of_m1()
    begun = before_consumption(
        timestamp_ms=1_000_050, region="r", group="takers", request_id="R1", message_id="M1", retries=0, keys=()
    )
    ended = after_consumption(
        timestamp_ms=1_000_080,
        group="takers",
        request_id="R1",
        message_id="M1",
        cost_ms=30,
        success=True,
        keys=(),
        context_code=ContextCode.SUCCESS,
    )
    cluster.send(topic, [sent.text.encode(), (begun.text + ended.text).encode()])
    screen = Recorder()
    run_file(spark, cluster, shipped()["trace"], {"topic": topic}, screen)
    (way,) = screen.tables["waterfall"]
    assert (way["message"], way["consumer"], way["topic"]) == ("M1", "takers", "orders")
    assert (way["send_ms"], way["wait_ms"], way["consume_ms"], way["total_ms"]) == (20, 40, 30, 80)
    assert way["way"] == "=" * 10 + "." * 15 + "#" * 15
    (percentiles,) = screen.tables["percentiles"]
    assert percentiles["total_p50_95_99"] == "80 80 80"
    assert (percentiles["messages"], percentiles["failed"]) == (1, 0)


@pytest.mark.long
def test_orders_of_the_demo_become_turnover_in_a_topic_and_in_parquet(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic, to = cluster.topic(queues=1, brokers=["broker-a"]), cluster.topic(queues=1, brokers=["broker-a"])
    stream = OrderStream(seed=2)
    cluster.send(topic, [stream.next(1_800_000_000_000 + 100 * number).body for number in range(600)])
    screen, given = Recorder(), {"topic": topic, "to": to, "work": str(tmp_path)}
    sinks = run_file(spark, cluster, shipped()["orders"], given, screen)
    shown = screen.tables["screen"]
    assert {str(row["region"]) for row in shown} <= {"eu", "us", "cn", "jp"}
    lake = spark.read.parquet(str(tmp_path / "turnover"))
    assert lake.count() == sinks["lake"].rows_written == sinks["topic"].rows_written
    assert cluster.read(spark, to).load().count() == lake.count() > 0
    dead = spark.read.parquet(str(tmp_path / "dead-letters"))
    assert dead.count() == sinks["orders_dead_letters"].rows_written
    assert dead.count() > 0
