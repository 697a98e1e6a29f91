"""Which reader a set of options asks for."""

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from ariane.spark.batch import BrokerBatchReader
from ariane.spark.columns import columns_of
from ariane.spark.option_values import read_options
from ariane.spark.pushdown import PushingReader
from ariane.spark.read_options import ReadOptions
from ariane.spark.store_batch import StoreBatchReader
from ariane.spark.stream import BrokerStreamReader


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    read = read_options(ReadOptions, options)
    columns = columns_of(read, schema)
    if read.reads_store:
        return StoreBatchReader(read, columns)
    return PushingReader(read, columns) if read.pushdown else BrokerBatchReader(read, columns)


def stream_reader(options: Mapping[str, str], schema: StructType) -> BrokerStreamReader:
    read = read_options(ReadOptions, options)
    return BrokerStreamReader(read, columns_of(read, schema))
