"""The readers that are compared: from a commit log, or from Parquet with the same rows, into Spark."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ariane.arrow.log.plan import plan_log
from ariane.arrow.log.read import read_split
from ariane.arrow.log.split import LogSplit
from ariane.arrow.schema import message_schema
from ariane.wire.record.read import decode_all
from bench.arrow import DECODED_BYTES, SEVEN
from bench.spark_store import TOPIC, BenchStore


def discard(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def direct(spark: SparkSession, root: Path, columns: str = ",".join(SEVEN)) -> DataFrame:
    """The reader of store directories."""
    reader = spark.read.format("rocketmq").option("storePath", str(root)).option("topic", TOPIC)
    return reader.option("columns", columns).option("minPartitions", 8).load()


def write_parquet(store: BenchStore, directory: Path) -> None:
    """The same seven columns, uncompressed, a file for each split, a row group for each batch of 4 MiB of log."""
    directory.mkdir()
    for number, split in enumerate(plan_log(store.root, topics=[TOPIC]).splits):
        with pq.ParquetWriter(
            directory / f"{number:04}.parquet", message_schema(SEVEN), compression="none", use_dictionary=False
        ) as writer:
            for batch in read_split(split, SEVEN, batch_bytes=DECODED_BYTES):
                writer.write_batch(batch)


def write_spark_parquet(spark: SparkSession, lake: Path, directory: Path) -> None:
    """The rows of `lake` as Spark writes them: dictionaries where values repeat, times in 96 bits, large row groups."""
    parquet(spark, lake).write.option("compression", "none").parquet(str(directory))


class TupleSource(DataSource):
    """A Python source without Arrow: one tuple for each message."""

    @classmethod
    def name(cls) -> str:
        return "bench_tuples"

    def schema(self) -> StructType:
        return from_arrow_schema(message_schema(SEVEN))

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(self.options["path"])


@dataclass
class Records(InputPartition):
    """Whole records, from the byte `begin` of a log of one file on."""

    path: Path
    begin: int
    end: int


class TupleReader(DataSourceReader):
    def __init__(self, root: str) -> None:
        self._root = root

    def partitions(self) -> list[InputPartition]:
        plan = plan_log(Path(self._root), topics=[TOPIC], bytes_per_split=16 << 20)
        path = next(Path(plan.splits[0].commit_log).glob("*"))
        split_points = [*map(_first_record, plan.splits), plan.end]
        return [Records(path, begin, end) for begin, end in pairwise(split_points)]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        assert isinstance(partition, Records)
        with partition.path.open("rb") as file:
            file.seek(partition.begin)
            data = file.read(partition.end - partition.begin)
        for message in decode_all(data):
            yield (
                message.topic,
                message.queue_id,
                message.queue_offset,
                message.physical_offset,
                _time(message.born_timestamp_ms),
                _time(message.store_timestamp_ms),
                message.body,
            )


def _first_record(split: LogSplit) -> int:
    """A split may begin anywhere; the decoder of tuples must begin at a record."""
    first = next(read_split(split, ["physicalOffset"], batch_bytes=1))
    return int(first.column(0)[0].as_py())


def _time(ms: int) -> object:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC)


def tuples(spark: SparkSession, root: Path) -> DataFrame:
    spark.dataSource.register(TupleSource)
    return spark.read.format("bench_tuples").load(str(root))


def parquet(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.read.parquet(str(directory))
