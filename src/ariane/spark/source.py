"""The Spark data source. It delegates to other modules, which are imported when they are used (see `ariane.spark`)."""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class RocketmqSource(DataSource):
    """`spark.read.format("rocketmq")`, `.readStream`, `.write` and `.writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        _check_spark_version()

    def schema(self) -> "StructType":
        from ariane.spark.readers import schema_of

        return schema_of(self.options)

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from ariane.spark.readers import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from ariane.spark.readers import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from ariane.spark.write.at_least_once import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from ariane.spark.write.at_least_once import stream_writer

        return stream_writer(self.options, schema)


class ArianeSource(RocketmqSource):
    """The same source under the name `ariane`."""

    @classmethod
    def name(cls) -> str:
        return "ariane"


def _check_spark_version() -> None:
    from pyspark import __version__

    from ariane.errors import SettingsError

    major, minor = (int(part) for part in __version__.split(".")[:2])
    if (major, minor) < (4, 2):
        raise SettingsError(f"this is Spark {__version__}, and the data source needs 4.2 or later: upgrade pyspark")
