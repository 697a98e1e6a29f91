"""Decodes concatenated records, as in a pull response or a commit log, to Arrow batches.

bytes ──> walk.py: find and check records ──> rows ──> filter.py: select rows
                                                          │
batch <── one array for each selected column <── body_columns.py: decompress bodies
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ariane.arrow.body_columns import (
    BODY_BYTES_MAX,
    DECOMPRESSED_BYTES_MAX,
    DecompressedBodies,
    body_column,
    born_hosts,
    decompress_bodies,
    offset_ids,
    store_hosts,
)
from ariane.arrow.filter import Selection, select
from ariane.arrow.gather import Bools, ByteGatherer, Int64s, all_true, fixed
from ariane.arrow.property_columns import PropertyColumns
from ariane.arrow.rows import Rows, checksum_errors
from ariane.arrow.schema import COLUMNS, TIMESTAMP, message_schema
from ariane.arrow.walk import BadRecord, Walk, find_chains
from ariane.errors import RecordError
from ariane.wire.compression import decompress
from ariane.wire.record.batch import decode_batch
from ariane.wire.record.layout import pack_record
from ariane.wire.record.read import RecordView, verify
from ariane.wire.sys_flag import SysFlag, with_compression

# --- columns: rows to a batch, only the selected columns ---

NEEDS_PROPERTIES = frozenset({"msgId", "tags", "keys", "properties", "uniqueKey"})

_YEAR_1_MS = -62_135_596_800_000
_YEAR_10000_MS = 253_402_300_800_000


class ColumnInputs(NamedTuple):
    """The data from which columns are made."""

    rows: Rows
    properties: PropertyColumns
    broker_name: str | None
    decompressed: DecompressedBodies | None


Column = Callable[[ColumnInputs], pa.Array]


def make_batch(schema: pa.Schema, inputs: ColumnInputs) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_MAKERS[name](inputs) for name in schema.names], schema=schema)


def _number(name: str, field: str | None = None) -> Column:
    kind = COLUMNS[name]
    width = kind.to_pandas_dtype()
    return lambda inputs: fixed(inputs.rows.field(field or name, width), kind)


def _store_time(inputs: ColumnInputs) -> pa.Array:
    time_ms = inputs.rows.field("storeTimestamp", np.int64)
    return fixed(time_ms * 1000, TIMESTAMP, _in_calendar(time_ms))


def _born_time(inputs: ColumnInputs) -> pa.Array:
    """A producer may send any number. An invalid time would be null in every query, and one far in the future would be
    worse, so the store time is used instead."""
    time_ms = inputs.rows.field("bornTimestamp", np.int64)
    valid = _in_calendar(time_ms)
    if valid is not None:
        time_ms = np.where(valid, time_ms, inputs.rows.field("storeTimestamp", np.int64))
        valid = _in_calendar(time_ms)
    return fixed(time_ms * 1000, TIMESTAMP, valid)


def _in_calendar(time_ms: Int64s) -> Bools | None:
    """Which times are in the years 1 to 9999, which Python and Spark can show; None when all are."""
    if 0 <= np.bitwise_or.reduce(time_ms) < _YEAR_10000_MS:  # the union of all bits is at least the largest time
        return None
    valid = (time_ms >= _YEAR_1_MS) & (time_ms < _YEAR_10000_MS)
    return None if all_true(valid) else valid


def _broker_name(inputs: ColumnInputs) -> pa.Array:
    count = len(inputs.rows)
    if inputs.broker_name is None:
        return pa.nulls(count, pa.string())
    name = inputs.broker_name.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * len(name)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(name * count)])


def _message_ids(inputs: ColumnInputs) -> pa.Array:
    unique = inputs.properties.unique_keys
    return unique if not unique.null_count else pc.coalesce(unique, offset_ids(inputs.rows))


_MAKERS: Mapping[str, Column] = {
    "topic": lambda inputs: inputs.rows.topic_column(),
    "brokerName": _broker_name,
    "queueId": _number("queueId"),
    "queueOffset": _number("queueOffset"),
    "msgId": _message_ids,
    "tags": lambda inputs: inputs.properties.tags,
    "keys": lambda inputs: inputs.properties.keys,
    "body": lambda inputs: body_column(inputs.rows, inputs.decompressed),
    "bornTimestamp": _born_time,
    "storeTimestamp": _store_time,
    "properties": lambda inputs: inputs.properties.map,
    "physicalOffset": lambda inputs: fixed(inputs.rows.physical, pa.int64()),
    "sysFlag": _number("sysFlag"),
    "flag": _number("flag"),
    "reconsumeTimes": _number("reconsumeTimes"),
    "bornHost": lambda inputs: born_hosts(inputs.rows),
    "storeHost": lambda inputs: store_hosts(inputs.rows),
    "preparedTransactionOffset": _number("preparedTransactionOffset"),
    "bodyCRC": _number("bodyCRC"),
    "uniqueKey": lambda inputs: inputs.properties.unique_keys,
    "offsetMsgId": lambda inputs: offset_ids(inputs.rows),
    "storeSize": _number("storeSize", "size"),
}
assert _MAKERS.keys() == COLUMNS.keys(), "every column can be made"


# --- inner batches ---
#
# RocketMQ 5.x stores a whole batch as one record in topics with batch queues, and its consumers unpack it.
#
# one record, sysFlag with INNER_BATCH and NEEDS_UNWRAP      a record for each item
# queueOffset 40, body = item item item                  ->  queueOffset 40, 41, 42, each with its own body,
#                                                            flag and properties; the other fields are shared

_INNER_BATCH = int(SysFlag.INNER_BATCH | SysFlag.NEEDS_UNWRAP)


def first_inner_batch(rows: Rows) -> int:
    """The index of the first row that holds a batch; the number of rows when none does."""
    if rows.flags & _INNER_BATCH != _INNER_BATCH:
        return len(rows)
    return int(np.argmax(np.append(rows.sys_flag & _INNER_BATCH == _INNER_BATCH, True)))


def unwrap_inner_batch(rows: Rows, index: int, body_bytes_max: int) -> bytes:
    """The messages in one row as records; RecordError when its body cannot be read."""
    view = verify(rows.source.view, int(rows.position[index]), check_body_crc=False)
    assert isinstance(view, RecordView), "rows are validated"
    body = decompress(view.body(rows.source.view), view.sys_flag, body_bytes_max)
    items = decode_batch(body, count_max=max(1, len(body) // 22))
    sys_flag = with_compression(view.sys_flag & ~_INNER_BATCH, None)
    return b"".join(
        pack_record(
            topic=view.topic.encode(),
            body=item.body,
            properties=item.properties,
            queue_id=view.queue_id,
            flag=item.flag,
            queue_offset=view.queue_offset + number,
            physical_offset=view.physical_offset,
            sys_flag=sys_flag,
            born_timestamp_ms=view.born_timestamp_ms,
            born_host=view.born_host,
            store_timestamp_ms=view.store_timestamp_ms,
            store_host=view.store_host,
            reconsume_times=view.reconsume_times,
            prepared_transaction_offset=view.prepared_transaction_offset,
        )
        for number, item in enumerate(items)
    )


# --- decoding ---


class Decoded(NamedTuple):
    batch: pa.RecordBatch
    bad: list[BadRecord]
    end: int
    """The first byte of the buffer that is not decoded yet: its length, unless the batch became too large."""


def decode_records(
    buffer: Any,
    *,
    columns: Sequence[str] | None = None,
    include_properties: bool = False,
    selection: Selection | None = None,
    broker_name: str | None = None,
    decompress: bool = True,
    check_crc: bool = False,
    start: int = 0,
    base: int | None = None,
    partial: bool = False,
) -> Decoded:
    """One batch of the records in `buffer`, from `start` on; bytes that are not a valid record are in `bad`.

    `base` is the physical offset of the buffer's first byte, when it is a piece of a commit log. `partial`: the buffer
    may end inside a record, which is then left; `end` is where it begins. `end` is also less than the buffer's length
    when decompressed bodies became too large for one batch: call again from there.
    """
    decoder = Decoder(
        schema=message_schema(columns, include_properties=include_properties),
        selection=selection or Selection(),
        broker_name=broker_name,
        decompress=decompress,
        check_crc=check_crc,
    )
    walk = Walk(ByteGatherer(buffer), memoryview(buffer).nbytes, base)
    batches: list[pa.RecordBatch] = []
    bad: list[BadRecord] = []
    end, gathered = start, 0
    for span in walk.spans(start, walk.limit, partial=partial):
        for part in decoder.parts(walk, span.rows):
            if gathered + part.batch.nbytes > _BATCH_BYTES_MAX and batches:
                return Decoded(_concat(batches, decoder.schema), bad, end)
            batches.append(part.batch)
            bad += part.bad
            gathered += part.batch.nbytes
            end = part.end
        bad += span.bad
        end = span.end
    return Decoded(_concat(batches, decoder.schema), bad, end)


def decode_pieces(
    source: ByteGatherer, begins: Int64s, ends: Int64s, decoder: "Decoder"
) -> list[pa.RecordBatch] | None:
    """Batches of the records in some pieces of a buffer, which hold whole records and nothing else.

    Pull responses are decoded this way in the memory into which they were received. None when any record is bad: the
    caller then joins the pieces and calls `decode_records`, which reports what is wrong.
    """
    starts = find_chains(source, begins, ends)
    if starts is None:
        return None
    walk = Walk(source, len(source))
    checked = walk.check_at(starts)
    if len(checked.indexes) < len(starts) or len(checked.rows.invalid_topics()):
        return None
    parts = list(decoder.parts(walk, checked.rows))
    return None if any(part.bad for part in parts) else [part.batch for part in parts]


_BATCH_BYTES_MAX = 2 * DECOMPRESSED_BYTES_MAX
"""Far below the limit of 2 GiB per column."""


def _concat(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)


class Part(NamedTuple):
    batch: pa.RecordBatch
    bad: list[BadRecord]
    end: int
    """Where the first record begins that is not decoded yet, or where the last one ends."""


@dataclass(frozen=True)
class Decoder:
    """The options of a decode. One instance serves all batches of a read."""

    schema: pa.Schema
    selection: Selection = field(default_factory=Selection)
    broker_name: str | None = None
    decompress: bool = True
    check_crc: bool = False
    body_bytes_max: int = BODY_BYTES_MAX

    def parts(self, walk: Walk, rows: Rows) -> Iterator[Part]:
        """The batches of these rows: one, unless decompressed bodies get too large or records hold inner batches."""
        while len(rows):
            plain = first_inner_batch(rows)
            if not plain:
                part, done = self._decode_inner_batch(walk, rows), 1
            else:
                part, done = self._decode_part(walk, rows if plain == len(rows) else rows.first(plain))
            yield part
            if done == len(rows):
                return
            rows = rows.skip(done)

    def _decode_part(self, walk: Walk, rows: Rows) -> tuple[Part, int]:
        """A batch of the first rows, and their number."""
        bad: list[BadRecord] = []
        valid = rows
        if self.check_crc:
            valid = _without(walk, rows, checksum_errors(rows), bad)
        selected, properties = select(valid, self.selection)
        done, decompressed = len(rows), None
        if self.decompress and "body" in self.schema.names:
            decompressed = decompress_bodies(selected, self.body_bytes_max)
            if decompressed.end < len(selected):
                done = int(np.searchsorted(rows.position, selected.position[decompressed.end]))
            if decompressed.failed or decompressed.end < len(selected):
                selected, decompressed = _readable(walk, selected, decompressed, bad)
                properties = PropertyColumns(selected)
        batch = make_batch(self.schema, ColumnInputs(selected, properties, self.broker_name, decompressed))
        last = done - 1
        return Part(batch, bad, int(rows.position[last]) + rows.size(last)), done

    def _decode_inner_batch(self, walk: Walk, rows: Rows) -> Part:
        """The batch of the messages in the first row."""
        at, size = int(rows.position[0]), rows.size(0)
        try:
            source = ByteGatherer(unwrap_inner_batch(rows, 0, self.body_bytes_max))
        except RecordError as error:
            return Part(_concat([], self.schema), [walk.bad_record(at, size, str(error))], at + size)
        inner = Walk(source, len(source))
        parts = [part for span in inner.spans(0, len(source)) for part in self.parts(inner, span.rows)]
        return Part(_concat([part.batch for part in parts], self.schema), [], at + size)


def _readable(
    walk: Walk, rows: Rows, decompressed: DecompressedBodies, bad: list[BadRecord]
) -> tuple[Rows, DecompressedBodies]:
    """Without the rows whose body cannot be decompressed, and without those after the end."""
    keep = np.setdiff1d(np.arange(decompressed.end), [index for index, _ in decompressed.failed])
    _without(walk, rows, decompressed.failed, bad)
    kept = decompressed._replace(rows=np.searchsorted(keep, decompressed.rows), failed=[], end=len(keep))
    return rows.take(keep), kept


def _without(walk: Walk, rows: Rows, problems: list[tuple[int, str]], bad: list[BadRecord]) -> Rows:
    """The other rows; rows with a problem are appended to `bad`."""
    for index, reason in problems:
        bad.append(walk.bad_record(int(rows.position[index]), rows.size(index), reason))
    indexes = [index for index, _ in problems]
    return rows if not problems else rows.take(np.setdiff1d(np.arange(len(rows)), indexes))
