"""A Spark driver that is killed: test_exactly_once.py runs it as a process.

It writes lines of files to several topics with the real sink, a query for each topic and a file in each batch. Each
query stops in the configured batch, between the configured steps, and creates a file; when all have stopped, the test
kills the driver. The configuration is in an environment variable, which Spark's processes inherit.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ariane.spark.options.base import read_options
from ariane.spark.options.write import WriteOptions
from ariane.spark.source import RocketmqSource
from ariane.spark.write.exactly_once import ExactlyOnce, ExactlyOnceStreamWriter, Prepared
from ariane.spark.write.ledger import LedgerRecord, Winners
from tests.spark.quiet_session import quiet_session

VARIABLE = "ARIANE_TEST_CRASH"


class CrashingSteps(ExactlyOnce):
    @property
    def config(self) -> dict[str, Any]:
        """Of this query, which is identified by its target topic."""
        config: dict[str, Any] = json.loads(os.environ[VARIABLE])["queries"][self.options.topic]
        return config

    def hold_at(self, step: str, batch: int) -> None:
        """Waits to be killed, if this is the configured step."""
        config = self.config
        if config["step"] == step and config["batch"] == batch:
            Path(config["reached"]).touch()
            signal.pause()

    def prepare(self, batches: Iterator[pa.RecordBatch], query: str, batch: int) -> Prepared:
        return super().prepare(self._killed(batches, batch), query, batch)

    def _killed(self, batches: Iterator[pa.RecordBatch], batch: int) -> Iterator[pa.RecordBatch]:
        """The first attempt dies when its rows have been sent; Spark starts another one."""
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if self.config["kill_task_in"] == batch and context.partitionId() == 0 and context.attemptNumber() == 0:
            os._exit(1)

    def decide(self, query: str, batch: int, winners: list[Winners]) -> LedgerRecord:
        self.hold_at("half messages sent", batch)
        return super().decide(query, batch, winners)

    def end(self, decided: LedgerRecord, winners: list[Winners]) -> None:
        self.hold_at("recorded", decided.batch)
        super().end(decided, winners[:1])
        self.hold_at("some ended", decided.batch)
        super().end(decided, winners[1:])

    def note_ended(self, query: str, batch: int) -> None:
        self.hold_at("all ended", batch)
        super().note_ended(query, batch)
        self.hold_at("end recorded", batch)


class CrashingSource(RocketmqSource):
    @classmethod
    def name(cls) -> str:
        return "crashing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> ExactlyOnceStreamWriter:
        options = read_options(WriteOptions, self.options)
        return ExactlyOnceStreamWriter(options, schema, CrashingSteps(options, schema))


def main(config: dict[str, Any]) -> None:
    spark = quiet_session("crashing", "local[2,4]")
    spark.dataSource.register(CrashingSource)
    # One after the other: on a machine that starts five Python processes at a time some of them time out.
    for target in config["queries"]:
        run(spark, config, target)
    if config["holds"]:
        signal.pause()
    spark.stop()


def run(spark: SparkSession, config: dict[str, Any], target: str) -> None:
    """Until it has written everything, or has stopped."""
    rows = spark.readStream.schema("body STRING").option("maxFilesPerTrigger", 1).text(config["source"]).repartition(2)
    sink = rows.writeStream.format("crashing").option("nameServer", config["nameserver"])
    sink = sink.option("topic", target).option("delivery", "exactly-once")
    sink = sink.option("checkpointLocation", f"{config['checkpoints']}/{target}")
    query = sink.trigger(availableNow=True).start()
    while query.isActive and not Path(config["queries"][target]["reached"]).exists():
        sleep(0.05)
    if not query.isActive:
        query.awaitTermination()  # raises its error


if __name__ == "__main__":
    main(json.loads(os.environ[VARIABLE]))
