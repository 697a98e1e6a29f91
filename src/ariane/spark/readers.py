"""Selects the reader for a set of options.

A reader is imported only when it is needed: a session's first `load()` and its first plan have a process each, which
imports its modules while the job waits. The reader of archives imports pandas, which takes half a second.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from ariane.errors import SettingsError
from ariane.spark.options.base import read_options
from ariane.spark.options.read import ReadOptions
from ariane.spark.read.columns import Columns, columns_of, spark_schema
from ariane.spark.worker_memory import keep_imports

if TYPE_CHECKING:
    from ariane.spark.archive.read import ArchiveBatchReader
    from ariane.spark.read.broker import BrokerBatchReader
    from ariane.spark.read.store import StoreBatchReader
    from ariane.spark.read.stream import BrokerStreamReader


def schema_of(options: Mapping[str, str]) -> StructType:
    """The schema of a `load()` without one."""
    keep_imports()
    read = read_options(ReadOptions, options)
    if not read.infer_schema:
        return spark_schema(read)
    from ariane.spark.read.json_inference import BODY, inferred_schema, sample_options

    is_file = read.reads_archive or read.reads_store
    return inferred_schema(read, _batch_reader(sample_options(read), BODY) if is_file else None)


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    read = read_options(ReadOptions, options)
    return _batch_reader(read, columns_of(read, schema))


def _batch_reader(read: ReadOptions, columns: Columns) -> "ArchiveBatchReader | StoreBatchReader | BrokerBatchReader":
    if read.reads_archive:
        from ariane.spark.archive.read import ArchiveBatchReader

        return ArchiveBatchReader(read, columns)
    if read.reads_store:
        from ariane.spark.read.store import StoreBatchReader

        return StoreBatchReader(read, columns)
    from ariane.spark.read.broker import BrokerBatchReader
    from ariane.spark.read.pushdown import PushingReader

    return PushingReader(read, columns) if read.pushdown else BrokerBatchReader(read, columns)


def stream_reader(options: Mapping[str, str], schema: StructType) -> "BrokerStreamReader":
    from ariane.spark.read.stream import BrokerStreamReader

    read = read_options(ReadOptions, options)
    if read.reads_archive:
        raise SettingsError("streams are read from brokers: leave out archivePath, or use spark.read")
    return BrokerStreamReader(read, columns_of(read, schema))
