"""A program that reads a topic in a batch and as a stream, reads its store, and writes to another topic.

    python -m tests.spark.spark_job MASTER-OR-REMOTE DIRECTORY NAMESERVER TOPIC TOPIC-OUT STORE

The address decides where it runs: `local[2]`, `spark://...` or `sc://...`; nothing else in it differs.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit

from ariane.spark import session

_ATTEMPTS = 10
"""Spark gives the process of a streaming source ten seconds to start, too few on a busy machine."""


def main(address: str, root: str, nameserver: str, topic: str, out: str, store: str) -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    remote = address.startswith("sc://")
    spark = session("job", master=address, **({} if remote else settings))
    try:
        print(json.dumps(Job(spark, Path(root), nameserver).run(topic, out, store)))
    finally:
        spark.stop()


class Job:
    def __init__(self, spark: SparkSession, root: Path, nameserver: str) -> None:
        self.spark = spark
        self.root = root
        self.nameserver = nameserver

    def run(self, topic: str, out: str, store: str) -> dict[str, Any]:
        batch = self.reader(self.spark.read).option("topic", topic).load()
        self.write(batch, out)
        return {
            "batch": bodies(batch),
            "stream": self.stream(topic),
            "written": bodies(self.reader(self.spark.read).option("topic", out).load()),
            "store": bodies(
                self.spark.read.format("rocketmq").option("storePath", store).option("topic", topic).load()
            ),
            **workers(batch),
        }

    def reader(self, reader: Any) -> Any:
        return reader.format("rocketmq").option("nameServer", self.nameserver)

    def write(self, frame: DataFrame, out: str) -> None:
        rows = frame.select(concat(lit("copy of "), col("body").cast("string")).alias("body"))
        self.reader(rows.write).option("topic", out).mode("append").save()

    def stream(self, topic: str) -> list[str]:
        lake = str(self.root / "lake")
        frame = self.reader(self.spark.readStream).option("topic", topic).option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.root / "checkpoint"))
        for _ in range(_ATTEMPTS):
            try:
                writer.trigger(availableNow=True).start(lake).awaitTermination()
                break
            except PySparkException as error:
                if "failed to connect back" not in str(error):
                    raise
        return bodies(self.spark.read.parquet(lake))


def bodies(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


def workers(frame: DataFrame) -> dict[str, list[str]]:
    """The working directories of the tasks, one for each executor, and where they import the package from."""

    def locations(batches: Any) -> Any:
        import pyarrow as pa

        import ariane

        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"directory": [os.getcwd()], "package": [ariane.__file__]})

    rows = frame.mapInArrow(locations, "directory STRING, package STRING").collect()
    return {"workers": sorted({row.directory for row in rows}), "packages": sorted({row.package for row in rows})}


if __name__ == "__main__":
    main(*sys.argv[1:])
