"""Batch reads from brokers, and what streams share with them: the messages of a queue range as Arrow batches."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ariane.model.group import ExpressionType
from ariane.spark.cluster import Cluster, cluster_for
from ariane.spark.offsets import QueueRange
from ariane.spark.options.read import ReadOptions
from ariane.spark.read.columns import Columns
from ariane.spark.read.output import Output, selection_of
from ariane.spark.read.planning import Planner
from ariane.spark.read.pull_buffers import grouped_by_buffer
from ariane.spark.read.range_pull import PullSettings, RangePull
from ariane.spark.worker_memory import keep_imports

DEFAULT_GROUP = "ariane-spark"


class BrokerBatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        keep_imports()
        planner = Planner(cluster_for(self._options.client_settings()), self._options)
        return [InputPartition(part) for part in planner.split(planner.batch_ranges())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # made by Spark when there is nothing to read
            return iter(())
        return read_range(partition.value, self._options, self._columns, with_times=True)


def read_range(
    offsets: QueueRange, options: ReadOptions, columns: Columns, *, with_times: bool, cluster: Cluster | None = None
) -> Iterator[pa.RecordBatch]:
    """The messages of a queue range that pass the filters. Runs in a task. `cluster`: to use other connections."""
    selection = selection_of(options, with_times=with_times)
    pull = RangePull(cluster or cluster_for(options.client_settings()), offsets, pull_settings(options))
    with Output(options, columns, _description(offsets)) as output:
        for bodies in grouped_by_buffer(pull.spans()):
            yield from output.batches(bodies, offsets, selection)


def _description(offsets: QueueRange) -> str:
    queue = offsets.queue
    return f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}, {offsets.start} to {offsets.end}"


def pull_settings(options: ReadOptions) -> PullSettings:
    sql = options.sql_filter
    return PullSettings(
        group=options.group or DEFAULT_GROUP,
        expression=sql or " || ".join(options.tag_list or ["*"]),
        expression_type=ExpressionType.SQL92 if sql else ExpressionType.TAG,
        count=options.pull_count,
        timeout_s=options.pull_timeout_ms / 1000,
        patience_s=options.patience_s,
        fail_on_data_loss=options.fail_on_data_loss,
    )
