"""Where pyspark finds the format "ariane_iceberg": see pyspark_ariane."""

from ariane.spark.lake.iceberg_source import IcebergSink as DefaultSource

__all__ = ["DefaultSource"]
