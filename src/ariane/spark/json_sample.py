"""The schema of a topic whose bodies are JSON, from a sample: the newest messages of each queue, or of a store."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from ariane.arrow.schema import message_schema
from ariane.errors import SettingsError
from ariane.spark.batch import read_range
from ariane.spark.cluster import cluster_for
from ariane.spark.columns import Columns
from ariane.spark.json_schema import infer_schema
from ariane.spark.planning import Planner
from ariane.spark.ranges import QueueRange
from ariane.spark.read_options import BadBodies, BodyFormat, ReadOptions

BODY = Columns(("body",))
SAMPLE_BYTES = 16 * 1024 * 1024
"""The parts that a log is cut into to find its newest messages: large enough for most samples."""


class BatchReader(Protocol):
    def partitions(self) -> list[InputPartition]: ...

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]: ...


def inferred_schema(options: ReadOptions, past_brokers: BatchReader | None) -> StructType:
    """The fields of the bodies, then the columns of the message that are asked for, then the one for bad records.

    `past_brokers` reads column `body` of a store or an archive; without it brokers are asked.
    """
    bodies = _of_queues(options) if past_brokers is None else _of_parts(past_brokers, options.sampling_size)
    fields = infer_schema(bodies)
    if fields is None:
        raise SettingsError(
            "inferSchema found no JSON object among the newest messages: give the fields with "
            '.schema("id BIGINT, name STRING"), or correct topic and filters'
        )
    own = from_arrow_schema(message_schema(options.column_list)).fields if options.column_list else []
    names = {field.name for field in own} | {options.bad_record_column}
    kept = [field for field in fields.fields if field.name not in names]
    return StructType([*kept, *own, *_for_bad_bodies(options)])


def sample_options(options: ReadOptions) -> ReadOptions:
    """To read the bodies as they are, wherever the query itself begins and ends. What is damaged it will tell."""
    return replace(
        options,
        format=BodyFormat.RAW,
        infer_schema=False,
        bad_bodies=None,
        bad_records_path=None,
        fail_on_data_loss=False,
        columns=None,
        starting="",
        starting_timestamp=None,
        ending="latest",
        ending_timestamp=None,
        as_of=None,
        partitions_min=None,
        bytes_per_partition=SAMPLE_BYTES,
    )


def _of_queues(options: ReadOptions) -> Iterator[bytes]:
    sampled = sample_options(options)
    planner = Planner(cluster_for(options.client_settings()), sampled)
    ends = planner.ends(planner.queues())
    each = -(-options.sampling_size // max(1, len(ends)))
    for queue, end in sorted(ends.items()):
        newest = QueueRange(queue, max(end.first, end.next - each), end.next)
        if len(newest) > 0:
            for batch in read_range(newest, sampled, BODY, with_times=False):
                yield from batch.column("body").to_pylist()


def _of_parts(reader: BatchReader, count: int) -> Iterator[bytes]:
    """The last parts of a log are its newest."""
    for partition in reversed(reader.partitions()):
        newest: deque[bytes] = deque(maxlen=count)
        for batch in reader.read(partition):
            newest.extend(batch.column("body").slice(max(0, batch.num_rows - count)).to_pylist())
        yield from newest
        count -= len(newest)
        if count <= 0:
            return


def _for_bad_bodies(options: ReadOptions) -> list[StructField]:
    """A sample does not promise that all bodies are alike, so there is a place for those that are not."""
    if options.bad_records_path is None and options.bad_bodies in (None, BadBodies.KEEP):
        return [StructField(options.bad_record_column, StringType())]
    return []
