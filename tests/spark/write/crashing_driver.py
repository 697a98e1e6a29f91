"""A Spark driver that is killed: run as a process of its own, by test_spark_exactly_once.py.

It writes lines of files to several topics with the real sink, each by a query of its own, a file in each batch. Each
query stops in the batch and between the two steps that it is told, and says so; when all stand still, whoever started
the driver kills it. What it is told comes by the environment, which Spark's own processes inherit.
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
    def told(self) -> dict[str, Any]:
        """Of this query, which is known by the topic that it writes to."""
        found: dict[str, Any] = json.loads(os.environ[VARIABLE])["queries"][self.options.topic]
        return found

    def hold_at(self, step: str, batch: int) -> None:
        """Waits to be killed, if this is the place."""
        told = self.told
        if told["step"] == step and told["batch"] == batch:
            Path(told["reached"]).touch()
            signal.pause()

    def prepare(self, batches: Iterator[pa.RecordBatch], query: str, batch: int) -> Prepared:
        return super().prepare(self._killed(batches, batch), query, batch)

    def _killed(self, batches: Iterator[pa.RecordBatch], batch: int) -> Iterator[pa.RecordBatch]:
        """The first attempt dies when its rows have been sent; Spark starts another one."""
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if self.told["kill_task_in"] == batch and context.partitionId() == 0 and context.attemptNumber() == 0:
            os._exit(1)

    def decide(self, query: str, batch: int, winners: list[Winners]) -> LedgerRecord:
        self.hold_at("halves sent", batch)
        return super().decide(query, batch, winners)

    def end(self, decided: LedgerRecord, winners: list[Winners]) -> None:
        self.hold_at("recorded", decided.batch)
        super().end(decided, winners[:1])
        self.hold_at("some ended", decided.batch)
        super().end(decided, winners[1:])

    def note_ended(self, query: str, batch: int) -> None:
        self.hold_at("all ended", batch)
        super().note_ended(query, batch)
        self.hold_at("end noted", batch)


class CrashingSource(RocketmqSource):
    @classmethod
    def name(cls) -> str:
        return "crashing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> ExactlyOnceStreamWriter:
        options = read_options(WriteOptions, self.options)
        return ExactlyOnceStreamWriter(options, schema, CrashingSteps(options, schema))


def main(told: dict[str, Any]) -> None:
    spark = quiet_session("crashing", "local[2,4]")
    spark.dataSource.register(CrashingSource)
    # One after the other: a machine that is busy with five starts of Python at a time lets some of them time out.
    for target in told["queries"]:
        run(spark, told, target)
    if told["holds"]:
        signal.pause()
    spark.stop()


def run(spark: SparkSession, told: dict[str, Any], target: str) -> None:
    """Until it has written everything, or stands still."""
    rows = spark.readStream.schema("body STRING").option("maxFilesPerTrigger", 1).text(told["source"]).repartition(2)
    sink = rows.writeStream.format("crashing").option("nameServer", told["nameserver"])
    sink = sink.option("topic", target).option("delivery", "exactly-once")
    sink = sink.option("checkpointLocation", f"{told['checkpoints']}/{target}")
    query = sink.trigger(availableNow=True).start()
    while query.isActive and not Path(told["queries"][target]["reached"]).exists():
        sleep(0.05)
    if not query.isActive:
        query.awaitTermination()  # raises what it failed by


if __name__ == "__main__":
    main(json.loads(os.environ[VARIABLE]))
