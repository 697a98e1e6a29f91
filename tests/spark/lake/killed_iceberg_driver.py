"""A Spark driver that is killed at a commit: run as a process of its own, by test_spark_iceberg_kills.py.

It writes lines of files to an Iceberg table, a file in each batch. In its second batch it stands still before or after
the table's commit, and says so; then whoever started it kills it. What it is told comes by the environment, which
Spark's own processes inherit.
"""

import json
import os
import signal
from dataclasses import fields
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from ariane.spark.lake.base import WrittenFile
from ariane.spark.lake.iceberg import IcebergLakeTable
from ariane.spark.lake.iceberg_source import IcebergSink
from ariane.spark.options.lake import Batch
from tests.spark.lake.numbered_lines import read_lines
from tests.spark.quiet_session import quiet_session

VARIABLE = "ARIANE_TEST_KILL"


class HoldingTable(IcebergLakeTable):
    def commit(self, files: list[WrittenFile], batch: Batch | None) -> None:
        self.hold_at("before", batch)
        super().commit(files, batch)
        self.hold_at("after", batch)

    def hold_at(self, step: str, batch: Batch | None) -> None:
        """Waits to be killed, if this is the place."""
        told = json.loads(os.environ[VARIABLE])
        if batch is not None and batch.version == 1 and told["step"] == step:
            Path(told["reached"]).touch()
            signal.pause()


class HoldingSink(IcebergSink):
    @classmethod
    def name(cls) -> str:
        return "holding"

    def table(self, schema: StructType, *, overwrite: bool) -> IcebergLakeTable:
        table = super().table(schema, overwrite=overwrite)
        return HoldingTable(**{one.name: getattr(table, one.name) for one in fields(table)})


def main(told: dict[str, Any]) -> None:
    spark = quiet_session("killed", "local[2]")
    spark.dataSource.register(HoldingSink)
    lines = read_lines(spark, told["source"]).repartition(2)
    writer = lines.selectExpr("cast(line AS bigint) AS id").writeStream.format("holding").options(**told["options"])
    writer = writer.option("checkpointLocation", told["checkpoint"]).trigger(availableNow=True)
    writer.start("lake.orders").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(os.environ[VARIABLE]))
