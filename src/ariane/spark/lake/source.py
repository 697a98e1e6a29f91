"""The base class of the Spark data sources for lake tables. Imports nothing heavy (see `ariane.spark`)."""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from ariane.spark.lake.base import LakeTable
    from ariane.spark.options.lake import LakeOptions


class LakeSink(DataSource):
    how_to_read: ClassVar[str]

    @abstractmethod
    def lake_options(self) -> "LakeOptions":
        """The options, checked."""

    @abstractmethod
    def table(self, schema: "StructType", *, overwrite: bool) -> "LakeTable":
        """The table of the options, after a check that such rows fit it."""

    def schema(self) -> "StructType":
        raise self._no_reader()

    def reader(self, schema: "StructType") -> "DataSourceReader":
        raise self._no_reader()

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from ariane.spark.lake.base import LakeWriter

        return LakeWriter(self.table(schema, overwrite=overwrite))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from ariane.errors import SettingsError
        from ariane.spark.lake.base import LakeStreamWriter

        if self.lake_options().batch is not None:
            raise SettingsError("options txnAppId and txnVersion are for batch writes: a stream has its own ids")
        return LakeStreamWriter(self.table(schema, overwrite=overwrite))

    def _no_reader(self) -> Exception:
        from ariane.errors import SettingsError

        return SettingsError(f"the format {self.name()} only writes: read the table with {self.how_to_read}")
