"""The at-least-once sink, and the choice between it and the exactly-once sink (exactly_once.py).

Each task sends its rows and returns when all are acknowledged; there is nothing to commit. A task that fails, or that
Spark runs twice, has sent some messages already: delivery is at least once. Duplicates have the same unique key, by
which a consumer can recognise them.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ariane.errors import SettingsError
from ariane.spark.cluster import cluster_for
from ariane.spark.options.base import read_options
from ariane.spark.options.write import Delivery, WriteOptions
from ariane.spark.worker_memory import keep_imports
from ariane.spark.write.rows import TaskIdentity, TaskKeys, can_encode, check_schema, encode_rows, messages_of
from ariane.spark.write.sender import TaskSender


@dataclass
class Acknowledged(WriterCommitMessage):
    """How many messages brokers have acknowledged."""

    messages: int


class TopicWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self._options = options
        self._query = uuid.uuid4().hex  # drawn once, on the driver: repeated tasks use the same

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Acknowledged:
        return _send(iterator, self._options, self._query, "")


class TopicStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Acknowledged:
        context = TaskContext.get()
        assert context is not None
        # Both stay the same when the query starts again from its checkpoint.
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        batch = context.getLocalProperty("streaming.sql.batchId") or ""
        return _send(iterator, self._options, query, batch)


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceArrowWriter:
    if overwrite:
        raise SettingsError('messages cannot be overwritten: use .mode("append")')
    write = read_options(WriteOptions, options)
    if write.delivery is Delivery.EXACTLY_ONCE:
        from ariane.spark.write.exactly_once import (
            ExactlyOnceWriter,  # imported here: it needs a whole client
        )

        return ExactlyOnceWriter(write, schema)
    return TopicWriter(write, schema)


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    write = read_options(WriteOptions, options)
    if write.delivery is Delivery.EXACTLY_ONCE:
        from ariane.spark.write.exactly_once import ExactlyOnceStreamWriter

        return ExactlyOnceStreamWriter(write, schema)
    return TopicStreamWriter(write, schema)


def _send(batches: Iterator[pa.RecordBatch], options: WriteOptions, query: str, batch: str) -> Acknowledged:
    keep_imports()
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    keys = TaskKeys(TaskIdentity(query, batch, partition))
    sender = TaskSender(cluster_for(options.client_settings()), options, partition)
    for rows in batches:
        encoded = encode_rows(rows, keys) if options.topic is not None and can_encode(rows.schema) else None
        if encoded is None or options.topic is None:
            sender.send(messages_of(rows, options.topic, keys))
        else:
            sender.send_rows(options.topic, encoded)
    sender.finish()
    return Acknowledged(sender.sent)
