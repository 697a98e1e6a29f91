"""Sinks to lake tables: tasks write Parquet files, and the driver adds them to the table in one commit.

A file is invisible before its commit, so tasks may fail and be repeated. A batch that is written twice, because the
driver died between the commit and Spark's own record of it, is recognised by its number in the table, and skipped.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ariane.errors import SettingsError
from ariane.spark.options.lake import Batch, LakeOptions
from ariane.store.disk import RealDisk


@dataclass(frozen=True)
class WrittenFile:
    location: str
    """The name of the file in the table."""
    path: Path
    size: int
    rows: int
    written_ms: int


def write_file(location: str, path: Path, batches: Iterable[pa.RecordBatch], compression: str) -> WrittenFile | None:
    """None without rows. Synced when it returns: a commit must not name a file that a power cut can destroy."""
    make_directory(path.parent)
    rows, writer = 0, None
    try:
        with path.open("xb") as file:
            for batch in batches:
                if writer is None:
                    writer = pq.ParquetWriter(file, batch.schema, compression=compression)
                writer.write_batch(batch)
                rows += batch.num_rows
            if writer is not None:
                writer.close()
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if not rows:
        path.unlink()
        return None
    RealDisk().sync_directory(path.parent)
    return WrittenFile(location, path, size, rows, int(time() * 1000))


def make_directory(directory: Path) -> None:
    """With its parents; all new names are synced when it returns."""
    new = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in new:
        RealDisk().sync_directory(path.parent)


def remove_files(files: Iterable[WrittenFile]) -> None:
    """For a batch that will not be committed."""
    for file in files:
        file.path.unlink(missing_ok=True)


# --- the writers ---


class LakeTable(Protocol):
    """A table to write to. It is pickled for the tasks."""

    @property
    def options(self) -> LakeOptions: ...

    def has_batch(self, batch: Batch) -> bool: ...

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenFile | None:
        """Writes the rows of one task, and syncs the file; None without rows."""
        ...

    def commit(self, files: list[WrittenFile], batch: Batch | None) -> None:
        """Adds all files in one commit. Does nothing if the table has the batch.

        The files stay then: they are orphans, or those of the table after a commit whose response was lost.
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
    """The driver gets the query's id with the tasks' messages; the id and the batch number survive a restart."""

    def __init__(self, table: LakeTable) -> None:
        self._table = table

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise SettingsError("Spark does not report which query and micro-batch this is: give a checkpointLocation")
        return _write(self._table, iterator, query, Batch(query, int(batch)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        queries = [message.query for message in messages if isinstance(message, Written)]
        if queries:
            self._table.commit(_files(messages), Batch(queries[0], batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _abort(messages)


def _write(table: LakeTable, batches: Iterator[pa.RecordBatch], query: str, batch: Batch | None) -> Written:
    if batch is not None and table.has_batch(batch):
        for _ in batches:  # Spark requires that all rows are consumed
            pass
        return Written(None, query)
    return Written(table.write(batches), query)


def _abort(messages: list[WriterCommitMessage | None]) -> None:
    """Only if a task failed: otherwise a commit was tried, and may have succeeded."""
    if any(message is None for message in messages):
        remove_files(_files(messages))


def _files(messages: list[WriterCommitMessage | None]) -> list[WrittenFile]:
    return [message.file for message in messages if isinstance(message, Written) and message.file is not None]
