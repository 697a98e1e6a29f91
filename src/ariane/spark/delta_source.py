"""The sink to Delta tables, as Spark asks for it. Imports the rest only when it is used: see `ariane.spark`."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


class DeltaSink(DataSource):
    """`df.write.format("ariane_delta")` and `.writeStream`: a Delta table without a JAR."""

    @classmethod
    def name(cls) -> str:
        return "ariane_delta"

    def schema(self) -> "StructType":
        raise _no_reader()

    def reader(self, schema: "StructType") -> "DataSourceReader":
        raise _no_reader()

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from ariane.spark.delta_writers import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from ariane.spark.delta_writers import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)


def _no_reader() -> Exception:
    from ariane.errors import SettingsError

    return SettingsError(
        "the format ariane_delta only writes: read the table with "
        "spark.read.parquet(*DeltaTable(path).file_uris()), with deltalake, or with duckdb"
    )
