"""Bodies that are JSON: the schema from a sample, and what becomes of bodies that do not fit it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from ariane.arrow.schema import message_schema
from ariane.errors import SettingsError
from ariane.spark.options.read import BadBodies, BodyFormat, ReadOptions
from ariane.spark.read.columns import Columns
from ariane.spark.read.json import reader_for
from ariane.spark.read.json_inference import infer_schema
from ariane.spark.read.output import BadRows, Output
from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.read.test_store import wait_until_indexed
from tests.spark.read.test_stream import Rows, available, running
from tests.store.golden_stores import overwrite, unpack

GOOD = [b'{"id": 1, "name": "a"}', b'{"id": 2, "name": "b", "price": 1.5}']
BAD = [b"no json", b'{"id": "text", "name": "c"}']
SCHEMA = "id BIGINT, name STRING"


@pytest.fixture(scope="module")
def mixed(cluster: ClusterFixture) -> str:
    """A topic with good and bad bodies in two queues."""
    topic = cluster.topic(queues=2, brokers=["broker-a"], name="mixed")
    cluster.send(topic, [GOOD[0], BAD[0]], queue_id=0)
    cluster.send(topic, [BAD[1], GOOD[1]], queue_id=1)
    return topic


def inferred(*bodies: object) -> str | None:
    schema = infer_schema(json.dumps(body).encode() for body in bodies)
    return None if schema is None else schema.simpleString()


# --- the schema of a sample ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bodies", "schema"),
    [
        ([{"b": 1, "a": "x"}, {"c": True}], "struct<a:string,b:bigint,c:boolean>"),
        ([{"n": 1}, {"n": 2.5}, {"n": None}], "struct<n:double>"),
        ([{"n": 1 << 70}, {"n": 1}], "struct<n:decimal(38,0)>"),
        ([{"n": 1}, {"n": "one"}], "struct<n:string>"),
        ([{"n": None, "e": {}, "l": []}], "struct<e:string,l:array<string>,n:string>"),
        ([{"l": [1, 2.5]}, {"l": [None]}], "struct<l:array<double>>"),
        ([{"o": {"x": 1}}, {"o": {"y": [{"z": 1}]}}], "struct<o:struct<x:bigint,y:array<struct<z:bigint>>>>"),
        ([[1], "text", 7], None),
        ([{}], None),
    ],
)
def test_a_sample_tells_the_fields_and_their_types(bodies: list[object], schema: str | None) -> None:
    assert inferred(*bodies) == schema


def test_names_that_spark_does_not_tell_apart_are_refused() -> None:
    with pytest.raises(SettingsError, match="both 'Id' and 'id'"):
        inferred({"id": 1}, {"Id": 2})


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["k1", "k2", "k3"]), VALUES, min_size=1), min_size=1, max_size=4))
def test_every_body_of_a_sample_fits_the_schema_that_it_gave(bodies: list[dict[str, Any]]) -> None:
    schema = infer_schema(json.dumps(body).encode() for body in bodies)
    assert schema is not None
    read = reader_for(schema, "body")
    for body in bodies:
        assert read(json.loads(json.dumps(body))).keys() == set(schema.names)


def test_a_topic_is_read_without_a_schema(spark: SparkSession, cluster: ClusterFixture, mixed: str) -> None:
    options = {"format": "json", "inferSchema": "true", "columns": "queueId,queueOffset"}
    frame = cluster.read(spark, mixed, **options).load()
    kinds = "struct<id:string,name:string,price:double,queueId:int,queueOffset:bigint,_corrupt_record:string>"
    assert frame.schema.simpleString() == kinds
    rows = {(row.queueId, row.queueOffset): row for row in frame.collect()}
    assert rows[1, 1].asDict() | {"price": 1.5} == rows[1, 1].asDict()
    assert [place for place, row in rows.items() if row._corrupt_record is not None] == [(0, 1)]


def test_the_newest_messages_are_the_sample(spark: SparkSession, cluster: ClusterFixture) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    cluster.send(topic, [b'{"old": 1}'] * 5 + [b'{"new": 1}'] * 2)
    options = {"format": "json", "inferSchema": "true", "mode": "FAILFAST"}
    assert cluster.read(spark, topic, samplingSize=2, **options).load().columns == ["new"]
    assert cluster.read(spark, topic, samplingSize=3, **options).load().columns == ["new", "old"]
    assert cluster.stream(spark, topic, samplingSize=3, **options).load().columns == ["new", "old"]
    wait_until_indexed(cluster.stores["broker-a"], topic, 7)
    store = {**options, "storePath": str(cluster.stores["broker-a"])}
    assert cluster.read(spark, topic, samplingSize=2, **store).load().columns == ["new"]


def test_an_empty_sample_is_reported(spark: SparkSession, cluster: ClusterFixture) -> None:
    with pytest.raises(PySparkException, match="found no JSON object among the newest messages"):
        cluster.read(spark, cluster.topic(), format="json", inferSchema="true").load()


# --- bodies that do not fit ---------------------------------------------------------------------------------------


def test_the_mode_says_how_bad_bodies_are_handled(spark: SparkSession, cluster: ClusterFixture, mixed: str) -> None:
    def read(schema: str, **options: str) -> list[Any]:
        return sorted(cluster.read(spark, mixed, format="json", **options).schema(schema).load().collect(), key=str)

    with_text = f"{SCHEMA}, _corrupt_record STRING"
    kept = read(with_text, mode="permissive")
    assert sorted(row._corrupt_record for row in kept if row.id is None) == sorted(body.decode() for body in BAD)
    assert [row.id for row in read(SCHEMA, mode="DROPMALFORMED")] == [1, 2]
    for schema, options in ((with_text, {"mode": "FAILFAST"}), (SCHEMA, {})):
        with pytest.raises(PySparkException, match="does not fit the schema"):
            read(schema, **options)
    with pytest.raises(PySparkException, match="add _corrupt_record STRING to the schema"):
        read(SCHEMA, mode="PERMISSIVE")


def test_dropped_bodies_are_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    options = ReadOptions(topic="t", format=BodyFormat.JSON, bad_bodies=BadBodies.DROP)
    columns = Columns((), StructType([StructField("id", LongType())]))
    rows = {"body": [GOOD[0], *BAD], "queueOffset": [0, 1, 2]}
    batch = pa.RecordBatch.from_pydict(rows, schema=message_schema(["body", "queueOffset"]))
    with Output(options, columns, "queue 0 of topic t on b, 0 to 3") as output:
        (rows,) = output.shaped(batch)
    assert rows.to_pylist() == [{"id": 1}]
    (record,) = caplog.records
    assert (
        record.getMessage() == "queue 0 of topic t on b, 0 to 3: 2 records are not rows: left out (mode=DROPMALFORMED)"
    )


def test_bad_bodies_are_written_to_the_bad_records_path_once_each(
    spark: SparkSession, cluster: ClusterFixture, mixed: str, tmp_path: Path
) -> None:
    apart = tmp_path / "bad"
    reader = cluster.read(spark, mixed, format="json", badRecordsPath=str(apart)).schema(SCHEMA)
    frame = reader.load()
    assert [sorted(row.id for row in frame.collect()) for _ in range(2)] == [[1, 2]] * 2
    kept = sorted(spark.read.parquet(str(apart)).collect(), key=lambda row: row.queueId)
    assert [(row.topic, row.brokerName, row.queueId, row.queueOffset, bytes(row.body)) for row in kept] == [
        (mixed, "broker-a", 0, 1, BAD[0]),
        (mixed, "broker-a", 1, 0, BAD[1]),
    ]
    assert all(row.reason and row.msgId and row.storeTimestamp for row in kept)
    assert [path.name for path in apart.iterdir() if path.name.startswith(".")] == []


@pytest.mark.long
def test_a_micro_batch_that_is_repeated_keeps_its_bad_bodies_once(
    spark: SparkSession, cluster: ClusterFixture, mixed: str, tmp_path: Path
) -> None:
    apart = tmp_path / "bad"
    options = {"format": "json", "startingOffsets": "earliest", "badRecordsPath": str(apart), "columns": "body"}
    frame = cluster.stream(spark, mixed, **options).schema(f"{SCHEMA}, body BINARY").load()

    class Broken(Rows):
        def take(self, frame: Any, number: int) -> None:
            super().take(frame, number)
            raise RuntimeError("the sink broke")

    with (
        pytest.raises(PySparkException, match="the sink broke"),
        running(frame, tmp_path / "checkpoint", Broken()) as query,
    ):
        query.awaitTermination(120)
    rows = Rows()
    available(frame, tmp_path / "checkpoint", rows)
    assert sorted(rows.bodies) == sorted(GOOD)
    assert sorted(bytes(row.body) for row in spark.read.parquet(str(apart)).collect()) == sorted(BAD)


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    row = {"queueOffset": 1, "body": b"x", "reason": "y"}

    def failing() -> None:
        with BadRows(str(tmp_path), "a place") as rows:
            rows.add([row])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        with BadRows(f"file://{tmp_path}", "a place") as rows:
            rows.add([row])
            rows.add([row])
    (file,) = tmp_path.iterdir()
    assert pq.read_table(file).column("body") == pa.chunked_array([[b"x", b"x"]], pa.binary())


def test_a_path_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written to"):
        BadRows("gopher://there", "a place")


def test_damaged_records_of_a_log_are_written_to_the_bad_records_path(spark: SparkSession, tmp_path: Path) -> None:
    layout = unpack("clean", tmp_path)
    apart = tmp_path / "bad"
    reader = spark.read.format("rocketmq").option("columns", "physicalOffset").option("badRecordsPath", str(apart))
    whole = sorted(row.physicalOffset for row in reader.load(str(layout.root)).collect())
    assert not apart.exists()
    victim, following = whole[5:7]
    file = max(path for path in layout.commit_log.iterdir() if int(path.name) <= victim)
    overwrite(file, victim - int(file.name) + 4, b"\0\0\0\0")
    assert sorted(row.physicalOffset for row in reader.load(str(layout.root)).collect()) == whole[:5] + whole[6:]
    (kept,) = spark.read.parquet(str(apart)).collect()
    assert kept.physicalOffset == victim
    assert len(kept.body) <= following - victim
    assert bytes(kept.body)[4:8] == b"\0\0\0\0"
    assert "are not a readable message" in kept.reason
