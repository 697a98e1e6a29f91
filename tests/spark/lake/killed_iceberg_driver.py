"""A Spark driver that is killed at a commit: test_iceberg_crashes.py runs it as a process.

It writes lines of files to an Iceberg table, a file in each batch. In its second batch it stops before or after the
table's commit, and creates a file; then the test kills it. The configuration is in an environment variable, which
Spark's processes inherit.
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
        """Waits to be killed, if this is the configured step."""
        config = json.loads(os.environ[VARIABLE])
        if batch is not None and batch.version == 1 and config["step"] == step:
            Path(config["reached"]).touch()
            signal.pause()


class HoldingSink(IcebergSink):
    @classmethod
    def name(cls) -> str:
        return "holding"

    def table(self, schema: StructType, *, overwrite: bool) -> IcebergLakeTable:
        table = super().table(schema, overwrite=overwrite)
        return HoldingTable(**{column.name: getattr(table, column.name) for column in fields(table)})


def main(config: dict[str, Any]) -> None:
    spark = quiet_session("killed", "local[2]")
    spark.dataSource.register(HoldingSink)
    lines = read_lines(spark, config["source"]).repartition(2)
    writer = lines.selectExpr("cast(line AS bigint) AS id").writeStream.format("holding").options(**config["options"])
    writer = writer.option("checkpointLocation", config["checkpoint"]).trigger(availableNow=True)
    writer.start("lake.orders").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(os.environ[VARIABLE]))
