"""A session for a driver in a process of its own, which shows nothing and starts as fast as it can."""

from pyspark.sql import SparkSession

from ariane.spark import session


def quiet_session(name: str, master: str) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    spark = session(name, master=master, **settings)
    spark.sparkContext.setLogLevel("OFF")
    return spark
