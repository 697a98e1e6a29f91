"""A stream of numbers to a lake table, ten in each file and a file in each batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 300


def add_lines(source: Path, number: int) -> None:
    source.mkdir(exist_ok=True)
    (source / f"{number}.txt").write_text("\n".join(str(number * 10 + line) for line in range(10)))


def read_lines(spark: SparkSession, source: str) -> DataFrame:
    return spark.readStream.schema("line STRING").option("maxFilesPerTrigger", 1).text(source)


@dataclass(frozen=True)
class NumberedLines:
    spark: SparkSession
    root: Path

    def add(self, number: int) -> None:
        add_lines(self.root / "source", number)

    def write(self, sink: str, target: str, options: Mapping[str, str]) -> None:
        """Writes all lines that were not written yet."""
        lines = read_lines(self.spark, str(self.root / "source"))
        frame = lines.selectExpr("cast(line AS bigint) AS id", "current_timestamp() AS at", "map('a', line) AS more")
        writer = frame.writeStream.format(sink).options(**options)
        writer = writer.option("checkpointLocation", str(self.root / "checkpoint")).trigger(availableNow=True)
        assert writer.start(target).awaitTermination(PATIENCE_S)

    def forget_batch(self, number: int) -> None:
        """As if the driver had died between the table's commit and Spark's own commit of the batch."""
        for record in (self.root / "checkpoint" / "commits").glob(f"*{number}*"):
            record.unlink()
