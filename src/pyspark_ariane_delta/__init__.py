"""Where pyspark finds the format "ariane_delta": see pyspark_ariane."""

from ariane.spark.lake.delta_source import DeltaSink as DefaultSource

__all__ = ["DefaultSource"]
