"""Rows to Delta tables on a real session: once, whatever is repeated."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ariane.spark.lake.base import write_file
from ariane.spark.lake.delta import DeltaLakeTable
from ariane.spark.options.base import option_table
from ariane.spark.options.lake import Batch, DeltaOptions
from tests.spark.lake.numbered_lines import NumberedLines


def numbers(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().column("id").to_pylist())


def test_a_stream_writes_each_row_once_though_a_batch_is_replayed(spark: SparkSession, tmp_path: Path) -> None:
    lines, table = NumberedLines(spark, tmp_path), tmp_path / "table"
    lines.add(0)
    lines.add(1)
    lines.write("ariane_delta", str(table), {})
    assert numbers(table) == list(range(20))
    files = set(table.glob("*.parquet"))
    lines.forget_batch(1)
    lines.add(2)
    lines.write("ariane_delta", str(table), {})
    assert numbers(table) == list(range(30))
    assert len(set(table.glob("*.parquet")) - files) == 1


def test_a_named_write_that_is_repeated_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    writer = spark.range(10).write.format("ariane_delta").option("txnAppId", "load").mode("append")
    for version in (1, 1, 2):
        writer.option("txnVersion", version).save(str(tmp_path / "table"))
    assert numbers(tmp_path / "table") == sorted([*range(10)] * 2)


def test_a_table_can_be_overwritten_and_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    spark.range(5).write.format("ariane_delta").mode("append").save(str(table))
    spark.range(7).write.format("ariane_delta").mode("overwrite").save(str(table))
    assert spark.read.parquet(*DeltaTable(str(table)).file_uris()).count() == 7


def test_a_table_takes_nulls_though_its_first_rows_can_have_none(spark: SparkSession, tmp_path: Path) -> None:
    for rows in (spark.range(1), spark.sql("SELECT CAST(NULL AS BIGINT) AS id")):
        rows.write.format("ariane_delta").mode("append").save(str(tmp_path))
    assert {row["id"] for row in DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()} == {0, None}


@pytest.mark.parametrize(
    ("query", "options", "fault"),
    [
        ("SELECT 1 AS id", {}, "columns id of the data frame do not fit table"),
        ("SELECT 1L AS id", {"txnVersion": "1"}, "belong together"),
        ("SELECT 1L AS id", {"compression": "rar"}, "option compression is 'rar'"),
        ("SELECT 1L AS id", {"path": "s3://bucket/table"}, "is an address"),
        ("SELECT 1L AS id", {"pathh": "x"}, "option pathh is unknown: did you mean path"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(
    spark: SparkSession, tmp_path: Path, query: str, options: dict[str, str], fault: str
) -> None:
    schema = pa.schema([pa.field("id", pa.int64())])
    DeltaLakeTable(DeltaOptions(path=str(tmp_path)), schema).commit([], None)
    writer = spark.sql(query).write.format("ariane_delta").mode("append").options(**{"path": str(tmp_path), **options})
    with pytest.raises(PySparkException, match=fault):
        writer.save()


def test_a_batch_that_the_table_has_is_left_out(tmp_path: Path) -> None:
    rows = pa.record_batch({"id": pa.array([1, 2, 3])})
    table = DeltaLakeTable(DeltaOptions(path=str(tmp_path)), rows.schema)
    first, second = table.write([rows]), table.write([rows])
    assert first is not None
    assert second is not None
    for file in (first, second, first):
        table.commit([file], Batch("query", 4))
    assert numbers(tmp_path) == [1, 2, 3]
    assert table.has_batch(Batch("query", 4))
    assert not table.has_batch(Batch("query", 5))


def test_a_task_without_rows_leaves_no_file(tmp_path: Path) -> None:
    assert write_file("some.parquet", tmp_path / "some.parquet", [], "none") is None
    assert list(tmp_path.iterdir()) == []


def test_the_page_lists_every_option_as_it_is_declared() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    assert option_table(DeltaOptions) in page
