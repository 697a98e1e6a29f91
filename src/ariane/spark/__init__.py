"""RocketMQ topics and store directories as Spark tables and streams, and Spark rows as messages.

    from ariane.spark import session
    spark = session()
    spark.read.format("rocketmq").option("topic", "orders").load().show()

Every Spark driver that looks for data sources imports this package, so it imports nothing heavy itself.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(app_name: str = "ariane", *, master: str | None = None, **settings: Any) -> "SparkSession":
    """A Spark session with the right Python, Java and sockets; see `ariane.spark.spark_session.session`."""
    from ariane.spark.spark_session import session as build

    return build(app_name, master=master, **settings)


__all__ = ["session"]
