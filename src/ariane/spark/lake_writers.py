"""Sinks to lake tables: tasks write files, and the driver makes them count by one commit.

Nobody sees a file before its commit, so that tasks may fail and be repeated. A batch that is written twice, because the
driver died between the commit and Spark's own note of it, is known by the number in the table, and left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ariane.errors import SettingsError
from ariane.spark.lake_files import WrittenFile, remove_files
from ariane.spark.lake_options import Batch, LakeOptions


class LakeTable(Protocol):
    """A table to write to. It travels to the tasks."""

    @property
    def options(self) -> LakeOptions: ...

    def has_batch(self, batch: Batch) -> bool: ...

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenFile | None:
        """Rows of one task, on the disk when it returns; None without any."""
        ...

    def commit(self, files: list[WrittenFile], batch: Batch | None) -> None:
        """All files at once. Nothing, when the table has the batch.

        The files stay then: they are of no use, or the very ones of the table, after a commit whose answer was lost.
        """
        ...


@dataclass
class Written(WriterCommitMessage):
    file: WrittenFile | None
    query: str


class LakeWriter(DataSourceArrowWriter):
    def __init__(self, table: LakeTable) -> None:
        self._table = table

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(self._table, iterator, "", self._table.options.batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._table.commit(_files(messages), self._table.options.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(messages)


class LakeStreamWriter(DataSourceStreamArrowWriter):
    """The query's id comes to the driver with the tasks' messages; both it and the number outlive a restart."""

    def __init__(self, table: LakeTable) -> None:
        self._table = table

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise SettingsError("Spark does not tell which query and micro-batch this is: give a checkpointLocation")
        return _write(self._table, iterator, query, Batch(query, int(batch)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        queries = [one.query for one in messages if isinstance(one, Written)]
        if queries:
            self._table.commit(_files(messages), Batch(queries[0], batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _abort(messages)


def _write(table: LakeTable, batches: Iterator[pa.RecordBatch], query: str, batch: Batch | None) -> Written:
    if batch is not None and table.has_batch(batch):
        for _ in batches:  # Spark wants its rows to be taken
            pass
        return Written(None, query)
    return Written(table.write(batches), query)


def _abort(messages: list[WriterCommitMessage | None]) -> None:
    """Only when a task has failed: otherwise a commit was tried, and may have come about."""
    if any(one is None for one in messages):
        remove_files(_files(messages))


def _files(messages: list[WriterCommitMessage | None]) -> list[WrittenFile]:
    return [one.file for one in messages if isinstance(one, Written) and one.file is not None]
