"""Where pyspark finds the format "rocketmq". A module has one DefaultSource, so each of the two names has its own."""

from ariane.spark.source import RocketmqSource as DefaultSource

__all__ = ["DefaultSource"]
