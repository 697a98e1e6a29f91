"""Sinks to Delta tables: tasks write files, and the driver makes them count by one commit.

Nobody sees a file before its commit, so that tasks may fail and be repeated. A batch that is written twice, because the
driver died between the commit and Spark's own note of it, is known by the number in the table, and left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ariane.errors import SettingsError
from ariane.spark.delta_files import WrittenFile, remove_files, write_file
from ariane.spark.delta_options import DeltaOptions
from ariane.spark.delta_table import Batch, check_table, commit, has_batch
from ariane.spark.option_values import read_options


@dataclass
class Written(WriterCommitMessage):
    file: WrittenFile | None
    query: str


class DeltaSteps:
    """What both writers do."""

    def __init__(self, options: DeltaOptions, schema: StructType, *, overwrite: bool) -> None:
        self._options = options
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._overwrite = overwrite
        if not overwrite:
            check_table(options.root, self._schema)

    def write(self, batches: Iterator[pa.RecordBatch], query: str, batch: Batch | None) -> Written:
        if has_batch(self._options.root, batch):
            for _ in batches:  # Spark wants its rows to be taken
                pass
            return Written(None, query)
        return Written(write_file(self._options.root, batches, self._options.compression), query)

    def commit(self, messages: list[Written], batch: Batch | None) -> None:
        files = [one.file for one in messages if one.file is not None]
        if files or self._overwrite or batch is None:
            commit(self._options.root, self._schema, files, batch, overwrite=self._overwrite)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Only when a task has failed: otherwise a commit was tried, and may have come about."""
        if any(one is None for one in messages):
            files = [one.file for one in messages if isinstance(one, Written) and one.file is not None]
            remove_files(self._options.root, files)


class DeltaWriter(DataSourceArrowWriter):
    def __init__(self, options: DeltaOptions, steps: DeltaSteps) -> None:
        self._steps = steps
        self._batch = (
            None
            if options.app_id is None or options.app_version is None
            else Batch(options.app_id, options.app_version)
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._steps.write(iterator, "", self._batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._steps.commit([one for one in messages if isinstance(one, Written)], self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._steps.abort(messages)


class DeltaStreamWriter(DataSourceStreamArrowWriter):
    """The query's id comes to the driver with the tasks' messages; both it and the number outlive a restart."""

    def __init__(self, steps: DeltaSteps) -> None:
        self._steps = steps

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise SettingsError("Spark does not tell which query and micro-batch this is: give a checkpointLocation")
        return self._steps.write(iterator, query, Batch(query, int(batch)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [one for one in messages if isinstance(one, Written)]
        if written:
            self._steps.commit(written, Batch(written[0].query, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._steps.abort(messages)


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DeltaWriter:
    wanted = read_options(DeltaOptions, options)
    return DeltaWriter(wanted, DeltaSteps(wanted, schema, overwrite=overwrite))


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DeltaStreamWriter:
    wanted = read_options(DeltaOptions, options)
    if wanted.app_id is not None:
        raise SettingsError("options txnAppId and txnVersion are for batch writes: a stream has its own")
    return DeltaStreamWriter(DeltaSteps(wanted, schema, overwrite=overwrite))
