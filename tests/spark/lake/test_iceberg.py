"""Rows to Iceberg tables on a real session and a real catalog, in SQLite: once, whatever is repeated."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ariane.errors import ArianeError, SettingsError
from ariane.spark.lake import iceberg
from ariane.spark.lake.base import WrittenFile
from ariane.spark.lake.iceberg import IcebergLakeTable
from ariane.spark.lake.iceberg_catalog import CatalogConfig
from ariane.spark.options.base import option_table
from ariane.spark.options.lake import Batch, IcebergOptions, read_iceberg_options
from tests.spark.lake.numbered_lines import PATIENCE_S, NumberedLines

ROWS = pa.record_batch({"id": pa.array([1, 2, 3])})
IDS = T.StructType([T.StructField("id", T.LongType(), False)])
EVERYTHING = """\
SELECT id, CAST(id AS SMALLINT) AS small, TIMESTAMP '2026-01-31 08:00:00.123456' AS at,
    TIMESTAMP_NTZ '2026-01-31 08:00:00.5' AS clock, DATE '2026-01-31' AS day, unhex('FF00') AS body,
    map('a', CAST(id AS STRING), 'b', NULL) AS more, array('x', NULL) AS tags,
    named_struct('a', 1, 'b', array(named_struct('x', 1.5D))) AS deep, CAST(12.34 AS DECIMAL(10, 2)) AS price,
    id > 1 AS large, IF(id > 1, 'ü', NULL) AS `of two words`
FROM range(3)"""


@dataclass(frozen=True)
class Lake:
    root: Path

    @property
    def options(self) -> dict[str, str]:
        return {"catalog.uri": f"sqlite:///{self.root}/catalog.db", "catalog.warehouse": str(self.root / "warehouse")}

    @property
    def place(self) -> CatalogConfig:
        return CatalogConfig.of("default", {name.removeprefix("catalog."): text for name, text in self.options.items()})

    def opened(self, *, overwrite: bool = False) -> IcebergLakeTable:
        return IcebergLakeTable.opened(IcebergOptions(table="lake.orders"), self.place, IDS, overwrite=overwrite)

    def change(self, act: Callable[[Catalog], object]) -> None:
        with self.place.opened() as catalog:
            act(catalog)

    @property
    def table(self) -> Table:
        with self.place.opened() as catalog:
            return catalog.load_table("lake.orders")

    @property
    def ids(self) -> list[int]:
        return sorted(self.table.scan().to_arrow().column("id").to_pylist())

    @property
    def files(self) -> list[Path]:
        return list(self.root.rglob("*.parquet"))

    def write(self, frame: DataFrame, mode: str = "append", **options: object) -> None:
        given = {name: str(text) for name, text in options.items()}
        frame.write.format("ariane_iceberg").options(**self.options, **given).mode(mode).save("lake.orders")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def written(table: IcebergLakeTable) -> list[WrittenFile]:
    file = table.write([ROWS])
    assert file is not None
    return [file]


def snapshots_expired(lake: Lake) -> int:
    """All but the newest; how many there were."""
    table = lake.table
    old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot != table.current_snapshot()]
    lake.change(lambda catalog: catalog.load_table("lake.orders").maintenance.expire_snapshots().by_ids(old).commit())
    return len(old)


def test_a_stream_writes_each_row_once_though_a_batch_is_replayed_and_snapshots_expired(
    spark: SparkSession, lake: Lake
) -> None:
    lines = NumberedLines(spark, lake.root)
    lines.add(0)
    lines.add(1)
    lines.write("ariane_iceberg", "lake.orders", lake.options)
    assert lake.ids == list(range(20))
    files = set(lake.files)
    lines.forget_batch(1)
    lines.add(2)
    assert snapshots_expired(lake) == 1
    lines.write("ariane_iceberg", "lake.orders", lake.options)
    assert lake.ids == list(range(30))
    assert len(set(lake.files) - files) == 1


def test_the_number_of_a_batch_outlives_its_snapshot(lake: Lake) -> None:
    table = lake.opened()
    table.commit(written(table), Batch("query", 4))
    lake.opened(overwrite=True).commit([], None)
    assert snapshots_expired(lake) == 1
    assert table.has_batch(Batch("query", 4))
    assert not table.has_batch(Batch("query", 5))
    assert not table.has_batch(Batch("another", 0))
    table.commit(written(table), Batch("query", 4))
    assert lake.ids == []


def test_a_commit_that_is_repeated_changes_nothing(lake: Lake) -> None:
    table = lake.opened()
    files = written(table)
    for _ in range(2):
        table.commit(files, Batch("query", 0))
    assert lake.ids == [1, 2, 3]


def test_a_named_write_that_is_repeated_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    for version in (1, 1, 2):
        lake.write(spark.range(10), txnAppId="load", txnVersion=version)
    assert lake.ids == sorted([*range(10)] * 2)


def test_every_type_comes_back_by_pyiceberg_and_from_the_plain_files(spark: SparkSession, lake: Lake) -> None:
    frame = spark.sql(EVERYTHING)
    lake.write(frame.repartition(2))
    lake.write(frame.select(*reversed(frame.columns)))  # columns are known by their names
    sent = pa.Table.from_batches(frame.toArrow().to_batches() * 2).sort_by("id")
    table = lake.table
    read = table.scan().to_arrow().sort_by("id")
    files = [Path(task.file.file_path) for task in table.scan().plan_files()]
    plain = duckdb.read_parquet([str(file) for file in files]).select("id", "at", "body", "more", "tags", "deep")
    assert read.to_pylist() == sent.to_pylist()
    assert read.schema.field("at").type == pa.timestamp("us", "UTC")
    assert read.column("at")[0].as_py() == datetime(2026, 1, 31, 8, 0, 0, 123456, UTC)
    assert plain.to_arrow_table().sort_by("id").to_pylist() == sent.select(plain.columns).to_pylist()
    by_spark = spark.read.parquet(*map(str, files)).toArrow().sort_by("id").select(sent.column_names)
    assert by_spark.to_pylist() == sent.to_pylist()


def test_statistics_leave_files_out_and_a_renamed_column_keeps_its_values(lake: Lake) -> None:
    table = lake.opened()
    table.commit(written(table), None)
    assert len(list(lake.table.scan("id = 3").plan_files())) == 1
    assert len(list(lake.table.scan("id = 4").plan_files())) == 0

    def rename(catalog: Catalog) -> None:
        with catalog.load_table("lake.orders").update_schema() as update:
            update.rename_column("id", "number")
        with catalog.load_table("lake.orders").update_schema() as update:
            update.add_column("id", LongType())

    lake.change(rename)
    assert lake.table.scan().to_arrow().to_pydict() == {"number": [1, 2, 3], "id": [None] * 3}


def test_a_table_is_overwritten_by_one_commit(spark: SparkSession, lake: Lake) -> None:
    lake.write(spark.range(5))
    before = len(lake.table.metadata.metadata_log)
    lake.write(spark.range(7), "overwrite", txnAppId="load", txnVersion=1)
    assert lake.ids == list(range(7))
    assert len(lake.table.metadata.metadata_log) == before + 1
    lake.write(spark.range(9), "overwrite", txnAppId="load", txnVersion=1)
    assert lake.ids == list(range(7))
    lake.write(spark.range(0), "overwrite")
    assert lake.ids == []


def test_a_failed_task_leaves_no_row_to_see(spark: SparkSession, lake: Lake) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr("IF(id = 99, CAST(raise_error('no') AS BIGINT), id) AS id")
    with pytest.raises(PySparkException):
        lake.write(frame)
    assert lake.ids == []


def test_a_null_for_a_column_that_takes_none_fails_before_anybody_sees_a_row(spark: SparkSession, lake: Lake) -> None:
    def make(catalog: Catalog) -> None:
        catalog.create_namespace("lake")
        catalog.create_table("lake.orders", Schema(NestedField(1, "id", LongType(), required=True)))

    lake.change(make)
    lake.write(spark.sql("SELECT CAST(a AS BIGINT) AS id FROM VALUES (1), (2) AS rows(a)"))
    with pytest.raises(PySparkException, match="'id' with null values"):
        lake.write(spark.sql("SELECT CAST(a AS BIGINT) AS id FROM VALUES (3), (NULL) AS rows(a)"))
    assert lake.ids == [1, 2]


@pytest.mark.parametrize(
    ("query", "options", "fault"),
    [
        ("SELECT 1 AS id", {}, "columns id of the data frame do not fit table lake.orders: .*id long"),
        ("SELECT 1L AS id, 2 AS more", {}, "columns more of the data frame do not fit"),
        ("SELECT 1L AS other", {}, "columns id, other of the data frame do not fit"),
        ("SELECT 1L AS id", {"table": "lake.made", "path": "lake.made"}, "option table is given twice"),
        ("SELECT 1L AS id", {"table": "lake.by_id"}, "table lake.by_id is partitioned by id"),
        ("SELECT INTERVAL 1 DAY AS id", {"table": "lake.made"}, "column id cannot be in an Iceberg table"),
        ("SELECT NULL AS id", {"table": "lake.made"}, "table lake.made cannot be created .*Field: id"),
        ("SELECT 1L AS id", {"catalog.warehouse": "s3://bucket", "table": "lake.made"}, "is at s3://bucket"),
        ("SELECT 1L AS id", {"catalog.warehouse": "here", "table": "lake.made"}, "is at here/.* same path"),
        ("SELECT 1L AS id", {"catalog.uri": "odd://me:hush@host"}, r"infer the catalog type.*<catalog\.uri>"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(
    spark: SparkSession, lake: Lake, query: str, options: dict[str, str], fault: str
) -> None:
    def make(catalog: Catalog) -> None:
        catalog.create_namespace("lake")
        schema = Schema(NestedField(1, "id", LongType()))
        catalog.create_table("lake.orders", schema)
        by_id = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="id"))
        catalog.create_table("lake.by_id", schema, partition_spec=by_id)

    lake.change(make)
    given = {"table": "lake.orders", **lake.options, **options}
    with pytest.raises(PySparkException, match=fault) as error:
        spark.sql(query).write.format("ariane_iceberg").mode("append").options(**given).save()
    assert "hush" not in str(error.value)
    assert lake.files == []
    with lake.place.opened() as catalog:
        assert sorted(name for _, name in catalog.list_tables("lake")) == ["by_id", "orders"]


def test_a_table_of_a_later_format_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.opened()
    table = lake.table
    order, properties = table.sort_order(), {"format-version": "3"}
    table.metadata = new_table_metadata(table.schema(), table.spec(), order, table.location(), properties)
    monkeypatch.setattr(SqlCatalog, "load_table", lambda *_: table)
    with pytest.raises(SettingsError, match=r"lake\.orders has format version 3, which pyiceberg does not write yet"):
        lake.opened()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "no table is given: add the option table"),
        ({"table": "orders"}, "table orders has no namespace"),
        ({"table": "lake..orders"}, "has no namespace"),
        ({"path": "/data/lake/orders"}, "is a path: give namespace and name"),
        ({"table": "lake.orders", "txnVersion": "1"}, "belong together"),
        ({"table": "lake.orders", "compression": "rar"}, "option compression is 'rar'"),
        ({"tabel": "lake.orders"}, "option tabel is unknown: did you mean table"),
        ({"catlog.uri": "sqlite://"}, r"option catlog\.uri is unknown: did you mean catalog\.uri"),
    ],
)
def test_a_bad_option_is_refused_before_the_catalog_is_called(options: dict[str, str], fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        read_iceberg_options(options)


def test_a_stream_takes_no_name_for_its_batches(spark: SparkSession, lake: Lake) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value AS id").writeStream.format("ariane_iceberg")
    stream = stream.options(**lake.options, txnAppId="load", txnVersion="1").trigger(availableNow=True)
    query = stream.option("checkpointLocation", str(lake.root / "checkpoint")).start("lake.orders")
    with pytest.raises(PySparkException, match="are for batch writes"):
        query.awaitTermination(PATIENCE_S)


def test_the_format_says_how_a_table_is_read(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"only writes: read the table with spark\.read\.parquet"):
        spark.read.format("ariane_iceberg").load()


def test_secrets_of_a_catalog_are_not_shown(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", "odd://me:hush@host/hush")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TOKEN", "hush")
    place = CatalogConfig.of("shop", {"credential": "me:hush"})
    assert "hush" not in repr(place)
    with pytest.raises(SettingsError, match="catalog shop cannot be opened") as error, place.opened():
        pass
    assert "hush" not in str(error.value)
    assert error.value.__context__ is None
    given = replace(place, properties={**lake.place.properties, "token": "hush"})
    assert "hush" not in repr(IcebergLakeTable.opened(IcebergOptions(table="a.b"), given, IDS, overwrite=False))
    with pytest.raises(ArianeError, match=r"catalog shop says OSError: no answer to <catalog\.token>") as later:
        with given.opened():
            raise OSError("no answer to hush")
    assert later.value.__suppress_context__
    with pytest.raises(OSError, match="no answer at all"), given.opened():
        raise OSError("no answer at all")


def test_all_that_a_commit_names_is_on_the_disk(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    table = lake.opened()
    table.commit(written(table), Batch("query", 0))
    warehouse = lake.root / "warehouse"
    kept = [lake.root, warehouse, *warehouse.rglob("*")]
    assert {path.suffix for path in kept} == {"", ".avro", ".json", ".parquet"}
    assert {path.stat().st_ino for path in kept} <= synced


# --- several drivers ----------------------------------------------------------------------------------------------


def test_a_batch_that_another_driver_has_just_committed_is_left_out(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked before either commits. The catalog refuses the second, which looks again."""
    table = lake.opened()
    commit_once, first = iceberg._commit_once, written(table)

    def overtaken(loaded: Table, locations: list[str], batch: Batch | None, *, overwrite: bool) -> None:
        monkeypatch.undo()
        table.commit(first, batch)
        commit_once(loaded, locations, batch, overwrite=overwrite)

    monkeypatch.setattr(iceberg, "_commit_once", overtaken)
    table.commit(written(table), Batch("query", 0))
    assert lake.ids == [1, 2, 3]
    assert [task.file.file_path for task in lake.table.scan().plan_files()] == [first[0].location]


def test_drivers_that_commit_at_once_write_each_batch_once(lake: Lake) -> None:
    table = lake.opened()
    batches = [(f"query-{number % 3}", number // 9) for number in range(18)]  # each batch by three drivers

    def drive(named: tuple[str, int]) -> None:
        table.commit(written(table), Batch(*named))

    with ThreadPoolExecutor(4) as drivers:
        list(drivers.map(drive, batches))
    assert lake.ids == sorted([1, 2, 3] * 6)


def test_a_table_that_others_always_change_is_given_up_with_a_reason(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise CommitFailedException("branch main has changed")

    monkeypatch.setattr(iceberg, "_commit_once", refuse)
    monkeypatch.setattr(iceberg, "_ATTEMPTS", 2)
    table = lake.opened()
    with pytest.raises(ArianeError, match="changed by others during each of 2 commits"):
        table.commit(written(table), Batch("query", 0))
    assert lake.ids == []


# --- what is not there --------------------------------------------------------------------------------------------


def printed(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout


def test_without_the_extra_the_format_says_what_to_install() -> None:
    program = """\
import sys
sys.modules["pyiceberg"] = None
from pyspark.sql.types import StructType
from pyspark_ariane_iceberg import DefaultSource
try:
    DefaultSource({"table": "lake.orders"}).writer(StructType(), False)
except Exception as error:
    print(type(error).__name__, error)
"""
    message = 'SettingsError the sink to Iceberg tables needs pyiceberg: pip install "ariane[spark,iceberg]"\n'
    assert printed(program) == message


def test_the_module_that_spark_looks_for_imports_nothing_heavy() -> None:
    """One that fails to be imported hides every other source."""
    modules = printed("import sys, pyspark_ariane_iceberg; print(*sys.modules)").split()
    assert not {"pyiceberg", "pyarrow", "sqlalchemy"} & set(modules)


def test_the_page_lists_every_option_as_it_is_declared() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    assert option_table(IcebergOptions) in page
