"""The Spark data source `ariane_delta`, a sink. Other modules are imported when they are used (see `ariane.spark`)."""

from typing import TYPE_CHECKING

from ariane.spark.lake.source import LakeSink

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ariane.spark.lake.delta import DeltaLakeTable
    from ariane.spark.options.lake import DeltaOptions


class DeltaSink(LakeSink):
    """`df.write.format("ariane_delta")` and `.writeStream`: a Delta table without a JAR."""

    how_to_read = "spark.read.parquet(*DeltaTable(path).file_uris()), with deltalake, or with duckdb"

    @classmethod
    def name(cls) -> str:
        return "ariane_delta"

    def lake_options(self) -> "DeltaOptions":
        from ariane.spark.options.base import read_options
        from ariane.spark.options.lake import DeltaOptions

        return read_options(DeltaOptions, self.options)

    def table(self, schema: "StructType", *, overwrite: bool) -> "DeltaLakeTable":
        from ariane.spark.lake.delta import DeltaLakeTable

        return DeltaLakeTable.opened(self.lake_options(), schema, overwrite=overwrite)
