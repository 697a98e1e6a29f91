"""Schema inference for topics with JSON bodies, from a sample: the newest messages of each queue, or of a store.

Whole numbers are BIGINT, or DECIMAL(38, 0) when one needs more; numbers with a point are DOUBLE; times stay STRING,
because a text that looks like a time may not be one. Where two bodies have different types, the column is STRING, and
the value its JSON text. Fields are sorted by name, so the order of the sample has no effect.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from ariane.arrow.schema import message_schema
from ariane.errors import SettingsError
from ariane.spark.cluster import cluster_for
from ariane.spark.offsets import QueueRange
from ariane.spark.options.read import BadBodies, BodyFormat, ReadOptions
from ariane.spark.read.broker import read_range
from ariane.spark.read.columns import Columns
from ariane.spark.read.planning import Planner

_LONG = 1 << 63
_WIDE = 10**38
_NOTHING: DataType = NullType()


def infer_schema(bodies: Iterable[bytes]) -> StructType | None:
    """The schema of all bodies that are objects; None when there is none among them."""
    decode = msgspec.json.Decoder().decode
    kinds = []
    for body in bodies:
        try:
            value = decode(body)
        except ValueError:
            continue
        if isinstance(value, dict):
            kinds.append(_kind(value))
    if not kinds:
        return None
    whole = _without_nulls(reduce(_merged, kinds))
    if not isinstance(whole, StructType):  # every object was empty
        return None
    _check_names(whole)
    return whole


def _kind(value: Any) -> DataType:
    match value:
        case None:
            return NullType()
        case bool():
            return BooleanType()
        case int():
            return _number(value)
        case float():
            return DoubleType()
        case dict():
            return _struct({name: _kind(element) for name, element in value.items()})
        case list():
            return ArrayType(reduce(_merged, map(_kind, value), _NOTHING))
    return StringType()


def _number(value: int) -> DataType:
    if -_LONG <= value < _LONG:
        return LongType()
    return DecimalType(38, 0) if abs(value) < _WIDE else DoubleType()


def _struct(kinds: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kinds[name]) for name in sorted(kinds)])


def _merged(left: DataType, right: DataType) -> DataType:
    if left == right or isinstance(right, NullType):
        return left
    if isinstance(left, NullType):
        return right
    if isinstance(left, StructType) and isinstance(right, StructType):
        kinds = {field.name: field.dataType for field in left.fields}
        for field in right.fields:
            kinds[field.name] = _merged(kinds.get(field.name, NullType()), field.dataType)
        return _struct(kinds)
    if isinstance(left, ArrayType) and isinstance(right, ArrayType):
        return ArrayType(_merged(left.elementType, right.elementType))
    return _both_numbers(left, right) or StringType()


def _both_numbers(left: DataType, right: DataType) -> DataType | None:
    kinds = {type(left), type(right)}
    if not kinds <= {LongType, DecimalType, DoubleType}:
        return None
    return DoubleType() if DoubleType in kinds else DecimalType(38, 0)


def _without_nulls(kind: DataType) -> DataType:
    """Columns that were always null, and objects without fields, become STRING, which later values fit."""
    if isinstance(kind, StructType) and kind.fields:
        return StructType([StructField(field.name, _without_nulls(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_without_nulls(kind.elementType))
    return StringType() if isinstance(kind, (NullType, StructType)) else kind


def _check_names(schema: StructType) -> None:
    """Spark's column names are case-insensitive: with `id` and `Id`, the user has to say which is meant."""
    seen: dict[str, str] = {}
    for field in schema.fields:
        other = seen.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise SettingsError(
                f"bodies have both {other!r} and {field.name!r}, which are the same column for Spark: give the schema "
                "with .schema(...)"
            )
        if isinstance(field.dataType, StructType):
            _check_names(field.dataType)


BODY = Columns(("body",))
SAMPLE_BYTES = 16 * 1024 * 1024
"""The size of the splits of a log in which the newest messages are searched: large enough for most samples."""


class BatchReader(Protocol):
    def partitions(self) -> list[InputPartition]: ...

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]: ...


def inferred_schema(options: ReadOptions, file_reader: BatchReader | None) -> StructType:
    """The fields of the bodies, then the requested columns of the message, then the one for bad records.

    `file_reader` reads the column `body` of a store or an archive; without it messages are pulled from brokers.
    """
    bodies = _of_queues(options) if file_reader is None else _of_partitions(file_reader, options.sampling_size)
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
    """Options to read the bodies as they are, wherever the query itself begins and ends. Damaged records are left out:
    the query will report them."""
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


def _of_partitions(reader: BatchReader, count: int) -> Iterator[bytes]:
    """From the last partition on, which has the newest messages."""
    for partition in reversed(reader.partitions()):
        newest: deque[bytes] = deque(maxlen=count)
        for batch in reader.read(partition):
            newest.extend(batch.column("body").slice(max(0, batch.num_rows - count)).to_pylist())
        yield from newest
        count -= len(newest)
        if count <= 0:
            return


def _for_bad_bodies(options: ReadOptions) -> list[StructField]:
    """Other bodies may differ from the sample, so there is a column for those that do not fit."""
    if options.bad_records_path is None and options.bad_bodies in (None, BadBodies.KEEP):
        return [StructField(options.bad_record_column, StringType())]
    return []
