"""Batch reads from archives that the job `archive` made, with the options and the columns of any other read."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ariane.spark.archive_layout import ArchiveLayout
from ariane.spark.archive_plan import ArchivePiece, plan_archive
from ariane.spark.archive_read import read_piece
from ariane.spark.columns import Columns
from ariane.spark.output import Output, selection_of
from ariane.spark.read_options import ReadOptions


class ArchiveBatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    @property
    def _layout(self) -> ArchiveLayout:
        assert self._options.archive_path is not None
        return ArchiveLayout(Path(self._options.archive_path).absolute())

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(pieces) for pieces in plan_archive(self._layout, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's own, when there is nothing to read
            return
        selection = selection_of(self._options, with_times=True)
        with Output(self._options, self._columns, _place(partition.value)) as output:
            for piece in partition.value:
                for batch in read_piece(self._layout, piece, output.needed, selection):
                    yield from output.shaped(batch)


def _place(pieces: list[ArchivePiece]) -> str:
    return f"{pieces[0].path} of the archive, from row group {pieces[0].first_group} on"
