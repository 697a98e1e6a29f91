"""The Spark job `archive`: every message is archived once, even if runs fail or are killed."""

import os
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ariane.arrow.log.plan import plan_log
from ariane.arrow.log.read import read_split
from ariane.errors import SettingsError, StoreCorrupt, StoreInUse
from ariane.spark.archive.commits import ArchiveLayout, partition_directory, read_commits
from ariane.spark.archive.read import archived_files
from ariane.spark.jobs import archive
from tests.spark.cluster_fixture import ClusterFixture
from tests.store.golden_stores import flip, held_by_another_process, unpack


def run(spark: SparkSession, path: Path, **options: object) -> dict[str, object]:
    texts = {name: str(value) for name, value in options.items()}
    return archive.run(spark, {"archivePath": str(path), **texts}, lambda progress: None)


def visible(path: Path) -> list[tuple[str, int, int]]:
    """Topic, queue and offset of every message that a program sees which does not read the commits."""
    positions = []
    for file in path.glob("topic=*/day=*/*.parquet"):
        table = pq.read_table(file, columns=["queueId", "queueOffset"])
        topic = file.parent.parent.name.removeprefix("topic=").replace("%25", "%")
        positions += [
            (topic, *position) for position in zip(*(column.to_pylist() for column in table.columns), strict=True)
        ]
    return sorted(positions)


def in_store(root: Path) -> list[tuple[str, int, int]]:
    names = ["topic", "queueId", "queueOffset"]
    batches = [batch for split in plan_log(root).splits for batch in read_split(split, names)]
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def test_runs_through_the_broker_add_what_is_new(spark: SparkSession, cluster: ClusterFixture, tmp_path: Path) -> None:
    topic = cluster.topic(queues=2)
    cluster.spread(topic, 40)
    options = {"nameServer": cluster.nameserver, "topic": topic, "compression": "none"}
    assert run(spark, tmp_path, **options)["rows"] == 40
    assert run(spark, tmp_path, **options) == {"rows": 0, "files": 0, "bytes": 0, "commit": 1}
    cluster.spread(topic, 10)
    done = run(spark, tmp_path, **options)
    assert (done["rows"], done["commit"]) == (10, 2)
    messages = Counter(visible(tmp_path))
    assert len(messages) == 26  # both brokers have queues 0 and 1, with the same offsets
    assert sum(messages.values()) == 50
    with pytest.raises(SettingsError, match="made from a broker"):
        run(spark, tmp_path, storePath=cluster.stores["broker-a"])


def test_a_whole_store_is_archived_in_runs_of_which_any_may_be_killed(spark: SparkSession, tmp_path: Path) -> None:
    store, path = unpack("clean", tmp_path).root, tmp_path / "archive"
    layout = ArchiveLayout(path)
    options = {"storePath": store, "brokerName": "broker-a", "maxBytesPerFile": 1 << 20}
    assert run(spark, path, **options)["rows"] == len(in_store(store))
    assert visible(path) == in_store(store)
    # One run killed after the commit and before its files were moved, and an earlier one while its tasks wrote.
    for file in archived_files(layout):
        layout.inside(file.staged).parent.mkdir(parents=True, exist_ok=True)
        os.replace(layout.inside(file.path), layout.inside(file.staged))
    (layout.staged / "dead").mkdir()
    (layout.staged / "dead" / "half.parquet").write_bytes(b"PAR1 and then nothing")
    assert visible(path) == []
    reader = (
        spark.read.format("rocketmq").option("archivePath", str(path)).option("columns", "topic,queueId,queueOffset")
    )
    assert sorted(map(tuple, reader.load().collect())) == in_store(store)
    assert run(spark, path, **options)["rows"] == 0
    assert visible(path) == in_store(store)
    assert not layout.staged.exists()


def test_a_store_that_grew_is_archived_from_where_its_archive_ends(spark: SparkSession, tmp_path: Path) -> None:
    layout, path = unpack("clean", tmp_path), tmp_path / "archive"
    expected = in_store(layout.root)
    last = sorted(layout.commit_log.iterdir())[-1]
    whole = last.read_bytes()
    splits = plan_log(layout.root).splits
    ends = [batch.to_pylist() for split in splits for batch in read_split(split, ["physicalOffset", "storeSize"])]
    middle = next(
        row["physicalOffset"] for rows in ends for row in rows if row["physicalOffset"] > int(last.name) + 9000
    )
    last.write_bytes(whole[: middle - int(last.name)].ljust(len(whole), b"\0"))
    layout.abort.touch()  # without a clean stop the log ends with its last whole record
    options = {"storePath": layout.root}
    first = run(spark, path, **options)
    assert 0 < int(str(first["rows"])) < len(expected)
    last.write_bytes(whole)
    layout.abort.unlink()
    run(spark, path, **options)
    assert visible(path) == expected
    with pytest.raises(SettingsError, match="other topics are selected"):
        run(spark, path, topic="GoldenNormal", **options)


def test_a_damaged_message_stops_the_job_and_nothing_of_its_round_is_visible(
    spark: SparkSession, tmp_path: Path
) -> None:
    layout, path = unpack("clean", tmp_path), tmp_path / "archive"
    flip(layout.commit_log / "00000000000000000000", 0, bit=3)  # a size
    with pytest.raises(Exception, match="failOnDataLoss"):
        run(spark, path, storePath=layout.root)
    assert (visible(path), read_commits(ArchiveLayout(path))) == ([], [])
    assert int(str(run(spark, path, storePath=layout.root, failOnDataLoss="false")["rows"])) > 1000


def test_two_jobs_do_not_write_one_archive(spark: SparkSession, tmp_path: Path) -> None:
    layout = ArchiveLayout(tmp_path)
    layout.commits.mkdir(parents=True)
    with held_by_another_process(layout.lock), pytest.raises(StoreInUse, match="another job writes the archive"):
        run(spark, tmp_path, storePath="anything")


def test_what_a_commit_says_is_not_trusted(tmp_path: Path) -> None:
    layout = ArchiveLayout(tmp_path)
    for outside in ("/etc/passwd", "topic=a/../../b"):
        with pytest.raises(StoreCorrupt, match="not inside"):
            layout.inside(outside)
    layout.commits.mkdir(parents=True)
    for content, reason in (
        (b"half", "not a commit"),
        (b'{"number": 1, "source": "store", "version": 9}', "version 9"),
    ):
        layout.commit(1).write_bytes(content)
        with pytest.raises(StoreCorrupt, match=reason):
            read_commits(layout)
    layout.commit(1).rename(layout.commit(2))
    layout.commit(2).write_bytes(b'{"number": 2, "source": "store"}')
    with pytest.raises(StoreCorrupt, match="commit 1 of the archive"):
        read_commits(layout)


def test_directories_are_named_as_hive_does() -> None:
    assert partition_directory("%RETRY%g", 20_000) == "topic=%25RETRY%25g/day=2024-10-04"
    assert partition_directory("a", None) == "topic=a/day=__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "give topic, topicPattern or storePath"),
        ({"topic": "a", "topicPattern": "b"}, "give topic, topicPattern or storePath"),
        ({"topic": "a", "compresion": "zstd"}, "did you mean compression"),
    ],
)
def test_invalid_options_are_refused_with_a_reason(options: dict[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=reason):
        archive.run(None, {"archivePath": str(tmp_path), **options}, lambda progress: None)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="needs the option archivePath"):
        archive.run(None, {"topic": "a"}, lambda progress: None)  # type: ignore[arg-type]
