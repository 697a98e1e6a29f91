"""Which reader a set of options asks for."""

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from ariane.errors import SettingsError
from ariane.spark.archive_batch import ArchiveBatchReader
from ariane.spark.batch import BrokerBatchReader
from ariane.spark.columns import Columns, columns_of, spark_schema
from ariane.spark.json_sample import BODY, inferred_schema, sample_options
from ariane.spark.option_values import read_options
from ariane.spark.pushdown import PushingReader
from ariane.spark.read_options import ReadOptions
from ariane.spark.store_batch import StoreBatchReader
from ariane.spark.stream import BrokerStreamReader
from ariane.spark.worker_memory import keep_imports


def schema_of(options: Mapping[str, str]) -> StructType:
    """What `load()` without a schema gives."""
    keep_imports()
    read = read_options(ReadOptions, options)
    if not read.infer_schema:
        return spark_schema(read)
    is_file = read.reads_archive or read.reads_store
    return inferred_schema(read, _batch_reader(sample_options(read), BODY) if is_file else None)


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    read = read_options(ReadOptions, options)
    return _batch_reader(read, columns_of(read, schema))


def _batch_reader(read: ReadOptions, columns: Columns) -> ArchiveBatchReader | StoreBatchReader | BrokerBatchReader:
    if read.reads_archive:
        return ArchiveBatchReader(read, columns)
    if read.reads_store:
        return StoreBatchReader(read, columns)
    return PushingReader(read, columns) if read.pushdown else BrokerBatchReader(read, columns)


def stream_reader(options: Mapping[str, str], schema: StructType) -> BrokerStreamReader:
    read = read_options(ReadOptions, options)
    if read.reads_archive:
        raise SettingsError("streams are read from brokers: leave out archivePath, or use spark.read")
    return BrokerStreamReader(read, columns_of(read, schema))
