"""Rows of one task as one Parquet file of a lake table, which counts when a commit of the table names it."""

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
    """As the table names it."""
    path: Path
    size: int
    rows: int
    written_ms: int


def write_file(location: str, path: Path, batches: Iterable[pa.RecordBatch], compression: str) -> WrittenFile | None:
    """None without rows. On the disk when it returns: a commit must not name a file that a power cut takes back."""
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
    """With its parents; the names of all that are new are on the disk when it returns."""
    new = [one for one in (directory, *directory.parents) if not one.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for one in new:
        RealDisk().sync_directory(one.parent)


def remove_files(files: Iterable[WrittenFile]) -> None:
    """Of a batch that will not be committed."""
    for file in files:
        file.path.unlink(missing_ok=True)


# --- lake_writers ---
#
# Sinks to lake tables: tasks write files, and the driver makes them count by one commit.
#
# Nobody sees a file before its commit, so that tasks may fail and be repeated. A batch that is written twice, because
# the driver died between the commit and Spark's own note of it, is known by the number in the table, and left out.


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
