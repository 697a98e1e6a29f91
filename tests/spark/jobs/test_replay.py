"""The Spark job `replay`: messages of an archive or of a topic are sent again."""

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep, time
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from ariane.errors import SettingsError
from ariane.spark.jobs import archive, replay
from ariane.spark.jobs.replay import Tempo
from ariane.spark.options.jobs import ReplayOptions
from tests.spark.cluster_fixture import ClusterFixture

_SILENT: Any = lambda progress: None  # noqa: E731


def filled(cluster: ClusterFixture, messages: int = 80) -> str:
    """A topic with two queues on each broker; every other message has a sharding key of its queue."""
    topic = cluster.topic(queues=2)
    for number in range(messages):
        place = number % 4
        properties = {
            "TAGS": "AB"[number % 2],
            "KEYS": f"k{number}",
            "user": f"u{number}",
            "DELAY": "0",
            "CLUSTER": "c",
        }
        if number % 3:
            properties["UNIQ_KEY"] = f"{number:032X}"
        if number % 8 < 4:
            properties["__SHARDINGKEY"] = f"customer-{place}"
        broker = sorted(cluster.brokers)[place % 2]
        cluster.send(topic, [b"%d" % number], broker=broker, queue_id=place // 2, properties=properties)
    return topic


def rows(spark: SparkSession, cluster: ClusterFixture, topic: str) -> list[Row]:
    columns = "brokerName,queueId,queueOffset,body,tags,keys,uniqueKey,properties,storeTimestamp"
    messages = cluster.read(spark, topic, columns=columns).load().collect()
    return sorted(messages, key=lambda row: (row.brokerName, row.queueId, row.queueOffset))


def user_part(row: Row) -> tuple[Any, ...]:
    kept = {name: value for name, value in row.properties.items() if name in ("user", "KEYS", "TAGS", "__SHARDINGKEY")}
    return bytes(row.body), row.tags, tuple(row.keys), tuple(sorted(kept.items()))


def by_key(messages: list[Row]) -> dict[str, list[int]]:
    """The numbers of the messages of each sharding key, in the order of their queue."""
    order = defaultdict(list)
    for row in messages:
        key = row.properties.get("__SHARDINGKEY")
        if key is not None:
            order[key].append(int(row.body))
    return dict(order)


def options(cluster: ClusterFixture, topic: str, to_topic: str, **more: object) -> dict[str, str]:
    texts = {name: str(value) for name, value in more.items()}
    return {"nameServer": cluster.nameserver, "topic": topic, "toTopic": to_topic, **texts}


@pytest.mark.parametrize("source", ["broker", "archive"])
def test_a_replay_keeps_keys_tags_properties_and_order(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path, source: str
) -> None:
    topic, target = filled(cluster), cluster.topic(queues=3)
    more = {}
    if source == "archive":
        more["archivePath"] = str(tmp_path / "archive")
        archive.run(spark, {"nameServer": cluster.nameserver, "topic": topic, **more}, _SILENT)
    reports: list[dict[str, object]] = []
    done = replay.run(spark, options(cluster, topic, target, **more), reports.append)
    assert done == {"rows": 80, "lanes": 4, "skipped": 0}
    assert reports[-1] == {"rows": 80}
    before, after = rows(spark, cluster, topic), rows(spark, cluster, target)
    assert sorted(map(user_part, after)) == sorted(map(user_part, before))
    assert by_key(after) == by_key(before)
    plain = [[int(row.body) for row in after if "__SHARDINGKEY" not in row.properties and int(row.body) % 4 == queue]
             for queue in range(4)]  # fmt: skip
    assert all(numbers == sorted(numbers) for numbers in plain)
    assert all(len({(row.brokerName, row.queueId) for row in after if int(row.body) in mine}) == 1 for mine in plain)
    kept = {row.uniqueKey for row in before if row.uniqueKey}
    assert kept < {row.uniqueKey for row in after if row.uniqueKey}
    assert not any({"DELAY", "CLUSTER"} & row.properties.keys() for row in after)


def test_a_replay_that_failed_continues_where_it_was(
    spark: SparkSession, cluster: ClusterFixture, tmp_path: Path
) -> None:
    topic, target = filled(cluster, 40), cluster.topic(queues=2)
    progress = tmp_path / "progress"
    settings = options(cluster, topic, target, progressPath=progress)
    assert replay.run(spark, settings, _SILENT)["rows"] == 40
    cluster.spread(topic, 8)  # not part of the replay, which has the messages that existed when it began
    assert replay.run(spark, settings, _SILENT) == {"rows": 0, "lanes": 4, "skipped": 40}
    saved = progress / "lane-1.json"
    reached = json.loads(saved.read_bytes())
    saved.write_text(
        json.dumps({"next": reached["next"] - 3, "sent": reached["sent"] - 3})
    )  # killed before it was saved
    assert replay.run(spark, settings, _SILENT) == {"rows": 3, "lanes": 4, "skipped": 37}
    sent = rows(spark, cluster, target)
    assert len(sent) == 43
    assert len({row.uniqueKey for row in sent}) == 40
    with pytest.raises(SettingsError, match="another replay, with other tags"):
        replay.run(spark, {**settings, "tags": "A"}, _SILENT)


def test_times_tags_and_keys_select_what_is_replayed(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = filled(cluster, 20)
    middle = rows(spark, cluster, topic)[10].storeTimestamp
    for chosen, expected in (
        ({"tags": "A"}, lambda row: row.tags == "A"),
        ({"keys": "k3,k4"}, lambda row: row.keys[0] in ("k3", "k4")),
        ({"startingTimestamp": middle.isoformat()}, lambda row: row.storeTimestamp >= middle),
    ):
        target = cluster.topic(queues=1)
        replay.run(spark, options(cluster, topic, target, speed="1000", **chosen), _SILENT)
        selected = sorted(user_part(row) for row in rows(spark, cluster, topic) if expected(row))
        assert sorted(map(user_part, rows(spark, cluster, target))) == selected


def test_the_tempo_lengthens_or_shortens_the_pauses() -> None:
    tempo = Tempo(origin_us=5_000_000, pace=10.0)
    assert [tempo.due_s(at, 100.0) for at in (5_000_000, 6_000_000, 25_000_000)] == [100.0, 100.1, 102.0]


def test_no_message_is_sent_before_it_is_due(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic, target = cluster.topic(queues=1), cluster.topic(queues=1)
    for number in range(4):
        cluster.send(topic, [b"%d" % number], broker=sorted(cluster.brokers)[number % 2])
        sleep(0.02)  # what is replayed are the pauses
    began = datetime.fromtimestamp(time(), UTC)
    replay.run(spark, options(cluster, topic, target, speed="0.5"), _SILENT)
    before, after = (
        {int(row.body): row.storeTimestamp for row in rows(spark, cluster, name)} for name in (topic, target)
    )
    assert before.keys() == after.keys()
    for number, stored in after.items():
        pause = (before[number] - min(before.values())) * 2
        assert stored.astimezone(UTC) >= began + pause - timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"toTopic": "a"}, "into itself"),
        ({"toTopic": "b", "speed": "fast"}, "above 0"),
        ({"toTopic": "b", "speed": "0"}, "above 0"),
        ({}, "topic and toTopic"),
        ({"toTopic": "b", "startingTimestamp": "yesterday"}, "milliseconds since 1970"),
    ],
)
def test_invalid_options_are_refused_with_a_reason(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        replay.run(None, {"topic": "a", **changes}, _SILENT)  # type: ignore[arg-type]


def test_the_same_topic_is_allowed_if_requested_or_in_another_cluster() -> None:
    assert ReplayOptions(topic="a", to_topic="a", allow_same_topic=True).pace is None
    assert (
        ReplayOptions(topic="a", to_topic="a", source_nameservers="elsewhere:9876").reading().nameservers
        == "elsewhere:9876"
    )


def test_a_missing_target_topic_is_reported_before_anything_is_sent(
    spark: SparkSession, cluster: ClusterFixture
) -> None:
    with pytest.raises((PySparkException, Exception), match="no route for topic"):
        replay.run(spark, options(cluster, filled(cluster, 4), "nowhere"), _SILENT)
