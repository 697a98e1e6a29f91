"""Sinks to topics: which one it is, and the plain one.

There each task sends its rows and returns when every one is acknowledged; there is nothing to commit. A task that
fails, or that Spark runs twice, has sent some messages already: delivery is at least once. Duplicates have the same
unique key, by which a consumer can tell them.
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
    """So many messages were acknowledged by brokers."""

    messages: int


class TopicWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self._options = options
        self._query = uuid.uuid4().hex  # made once, on the driver: repeated tasks have the same

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
    wanted = read_options(WriteOptions, options)
    if wanted.delivery is Delivery.EXACTLY_ONCE:
        from ariane.spark.write.exactly_once import (
            ExactlyOnceWriter,  # with a whole client, which the other does not need
        )

        return ExactlyOnceWriter(wanted, schema)
    return TopicWriter(wanted, schema)


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    wanted = read_options(WriteOptions, options)
    if wanted.delivery is Delivery.EXACTLY_ONCE:
        from ariane.spark.write.exactly_once import ExactlyOnceStreamWriter

        return ExactlyOnceStreamWriter(wanted, schema)
    return TopicStreamWriter(wanted, schema)


def _send(batches: Iterator[pa.RecordBatch], options: WriteOptions, query: str, batch: str) -> Acknowledged:
    keep_imports()
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    keys = TaskKeys(TaskIdentity(query, batch, partition))
    sender = TaskSender(cluster_for(options.client_settings()), options, partition)
    for one in batches:
        rows = encode_rows(one, keys) if options.topic is not None and can_encode(one.schema) else None
        if rows is None or options.topic is None:
            sender.send(messages_of(one, options.topic, keys))
        else:
            sender.send_rows(options.topic, rows)
    sender.finish()
    return Acknowledged(sender.sent)
