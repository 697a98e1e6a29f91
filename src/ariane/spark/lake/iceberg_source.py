"""The Spark data source `ariane_iceberg`, a sink. Other modules are imported when they are used."""

from typing import TYPE_CHECKING

from ariane.spark.lake.source import LakeSink

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ariane.spark.lake.iceberg import IcebergLakeTable
    from ariane.spark.options.lake import IcebergOptions


class IcebergSink(LakeSink):
    """`df.write.format("ariane_iceberg")` and `.writeStream`: an Iceberg table without a JAR."""

    how_to_read = (
        "spark.read.parquet(*(task.file.file_path for task in table.scan().plan_files())), with pyiceberg, or "
        "with duckdb"
    )

    @classmethod
    def name(cls) -> str:
        return "ariane_iceberg"

    def lake_options(self) -> "IcebergOptions":
        from ariane.spark.options.lake import read_iceberg_options

        return read_iceberg_options(self.options)

    def table(self, schema: "StructType", *, overwrite: bool) -> "IcebergLakeTable":
        from ariane.spark.lake.iceberg_catalog import CatalogConfig  # isort: skip - first: reports a missing pyiceberg
        from ariane.spark.lake.iceberg import IcebergLakeTable
        from ariane.spark.options.lake import catalog_properties

        options = self.lake_options()
        catalog = CatalogConfig.of(options.catalog, catalog_properties(self.options))
        return IcebergLakeTable.opened(options, catalog, schema, overwrite=overwrite)
