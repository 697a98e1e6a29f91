"""Where pyspark finds the format "ariane": it imports every module named pyspark_* and takes its DefaultSource."""

from ariane.spark.source import ArianeSource as DefaultSource

__all__ = ["DefaultSource"]
