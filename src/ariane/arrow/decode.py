"""Concatenated records, as in a pull answer or a commit log, to Arrow batches.

bytes ──> walk.py: where records begin and whether they are whole ──> rows ──> selection.py: which are wanted
                                                                                  │
batch <── columns.py: one array for each column that is asked for <──── bodies.py: packed bodies unpacked
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ariane.arrow.body_columns import (
    BODY_BYTES_MAX,
    UNPACKED_BYTES_MAX,
    Unpacked,
    body_column,
    born_hosts,
    offset_ids,
    store_hosts,
    unpack_bodies,
)
from ariane.arrow.filter import Selection, select
from ariane.arrow.gather import Bools, ByteGatherer, Int64s, fixed, is_all
from ariane.arrow.property_columns import PropertyColumns
from ariane.arrow.rows import Rows, checksum_faults
from ariane.arrow.schema import COLUMNS, TIMESTAMP, message_schema
from ariane.arrow.walk import BadRecord, Walk, find_chains
from ariane.errors import RecordError
from ariane.wire.compression import decompress
from ariane.wire.record.batch import decode_batch
from ariane.wire.record.layout import pack_record
from ariane.wire.record.read import RecordView, verify
from ariane.wire.sys_flag import SysFlag, with_compression

# --- columns ---
#
# From rows to a batch: how each column is made, and only those that are asked for.

NEEDS_PROPERTIES = frozenset({"msgId", "tags", "keys", "properties", "uniqueKey"})

_YEAR_1_MS = -62_135_596_800_000
_YEAR_10000_MS = 253_402_300_800_000


class Given(NamedTuple):
    """What columns are made from."""

    rows: Rows
    properties: PropertyColumns
    broker_name: str | None
    unpacked: Unpacked | None


Column = Callable[[Given], pa.Array]


def make_batch(schema: pa.Schema, given: Given) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_MAKERS[name](given) for name in schema.names], schema=schema)


def _number(name: str, field: str | None = None) -> Column:
    kind = COLUMNS[name]
    width = kind.to_pandas_dtype()
    return lambda given: fixed(given.rows.field(field or name, width), kind)


def _store_time(given: Given) -> pa.Array:
    time_ms = given.rows.field("storeTimestamp", np.int64)
    return fixed(time_ms * 1000, TIMESTAMP, _in_calendar(time_ms))


def _born_time(given: Given) -> pa.Array:
    """A producer may have sent any number. One that is no time would be null in every query, and far in the future it
    would be worse: so it counts as born when it was stored."""
    time_ms = given.rows.field("bornTimestamp", np.int64)
    valid = _in_calendar(time_ms)
    if valid is not None:
        time_ms = np.where(valid, time_ms, given.rows.field("storeTimestamp", np.int64))
        valid = _in_calendar(time_ms)
    return fixed(time_ms * 1000, TIMESTAMP, valid)


def _in_calendar(time_ms: Int64s) -> Bools | None:
    """Which of them are times of the years 1 to 9999, that Python and Spark can show; None when all are."""
    if 0 <= np.bitwise_or.reduce(time_ms) < _YEAR_10000_MS:  # has every bit that some time has
        return None
    valid = (time_ms >= _YEAR_1_MS) & (time_ms < _YEAR_10000_MS)
    return None if is_all(valid) else valid


def _broker_name(given: Given) -> pa.Array:
    count = len(given.rows)
    if given.broker_name is None:
        return pa.nulls(count, pa.string())
    name = given.broker_name.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * len(name)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(name * count)])


def _message_ids(given: Given) -> pa.Array:
    unique = given.properties.unique_keys
    return unique if not unique.null_count else pc.coalesce(unique, offset_ids(given.rows))


_MAKERS: Mapping[str, Column] = {
    "topic": lambda given: given.rows.topic_column(),
    "brokerName": _broker_name,
    "queueId": _number("queueId"),
    "queueOffset": _number("queueOffset"),
    "msgId": _message_ids,
    "tags": lambda given: given.properties.tags,
    "keys": lambda given: given.properties.keys,
    "body": lambda given: body_column(given.rows, given.unpacked),
    "bornTimestamp": _born_time,
    "storeTimestamp": _store_time,
    "properties": lambda given: given.properties.map,
    "physicalOffset": lambda given: fixed(given.rows.physical, pa.int64()),
    "sysFlag": _number("sysFlag"),
    "flag": _number("flag"),
    "reconsumeTimes": _number("reconsumeTimes"),
    "bornHost": lambda given: born_hosts(given.rows),
    "storeHost": lambda given: store_hosts(given.rows),
    "preparedTransactionOffset": _number("preparedTransactionOffset"),
    "bodyCRC": _number("bodyCRC"),
    "uniqueKey": lambda given: given.properties.unique_keys,
    "offsetMsgId": lambda given: offset_ids(given.rows),
    "storeSize": _number("storeSize", "size"),
}
assert _MAKERS.keys() == COLUMNS.keys(), "every column can be made"


# --- wrapped ---
#
# Records that hold a whole batch: 5.x keeps one so for topics with batch queues, and its consumers take it apart.
#
# one record, sysFlag with INNER_BATCH and NEEDS_UNWRAP      a record for each item
# queueOffset 40, body = item item item                  ->  queueOffset 40, 41, 42, each with its own body,
#                                                            flag and properties; the other fields are shared

_WRAPPED = int(SysFlag.INNER_BATCH | SysFlag.NEEDS_UNWRAP)


def first_wrapped(rows: Rows) -> int:
    """The number of the first row that holds a batch; how many rows there are when none does."""
    if rows.flags & _WRAPPED != _WRAPPED:
        return len(rows)
    return int(np.argmax(np.append(rows.sys_flag & _WRAPPED == _WRAPPED, True)))


def unwrap(rows: Rows, number: int, body_bytes_max: int) -> bytes:
    """The records of the messages in one row; RecordError when its body cannot be read."""
    view = verify(rows.source.view, int(rows.position[number]), check_body_crc=False)
    assert isinstance(view, RecordView), "rows are checked"
    body = decompress(view.body(rows.source.view), view.sys_flag, body_bytes_max)
    items = decode_batch(body, count_max=max(1, len(body) // 22))
    sys_flag = with_compression(view.sys_flag & ~_WRAPPED, None)
    return b"".join(
        pack_record(
            topic=view.topic.encode(),
            body=item.body,
            properties=item.properties,
            queue_id=view.queue_id,
            flag=item.flag,
            queue_offset=view.queue_offset + place,
            physical_offset=view.physical_offset,
            sys_flag=sys_flag,
            born_timestamp_ms=view.born_timestamp_ms,
            born_host=view.born_host,
            store_timestamp_ms=view.store_timestamp_ms,
            store_host=view.store_host,
            reconsume_times=view.reconsume_times,
            prepared_transaction_offset=view.prepared_transaction_offset,
        )
        for place, item in enumerate(items)
    )


# ---


class Decoded(NamedTuple):
    batch: pa.RecordBatch
    bad: list[BadRecord]
    end: int
    """The first byte of the buffer that is not dealt with: its length, unless the batch became too large."""


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
    """One batch of the records in `buffer`, from `start` on; what is no record is told, not left out.

    `base` is the physical offset of the buffer's first byte, when it is a piece of a commit log. `partial`: the buffer
    may end inside a record, which is then left; `end` says where. It is also less than the buffer's length when packed
    bodies became too large for one batch: call again from there.
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
    for stretch in walk.stretches(start, walk.limit, partial=partial):
        for part in decoder.parts(walk, stretch.rows):
            if gathered + part.batch.nbytes > _BATCH_BYTES_MAX and batches:
                return Decoded(_joined(batches, decoder.schema), bad, end)
            batches.append(part.batch)
            bad += part.bad
            gathered += part.batch.nbytes
            end = part.end
        bad += stretch.bad
        end = stretch.end
    return Decoded(_joined(batches, decoder.schema), bad, end)


def decode_pieces(
    source: ByteGatherer, begins: Int64s, ends: Int64s, decoder: "Decoder"
) -> list[pa.RecordBatch] | None:
    """Batches of the records in some pieces of a buffer, which hold whole records and nothing else.

    So answers to pulls lie in memory as they were received. None when anything is wrong in any of them: joined, they
    then go the way of `decode_records`, which tells what it is.
    """
    starts = find_chains(source, begins, ends)
    if starts is None:
        return None
    walk = Walk(source, len(source))
    checked = walk.check(starts)
    if len(checked.numbers) < len(starts) or len(checked.rows.odd_topics()):
        return None
    parts = list(decoder.parts(walk, checked.rows))
    return None if any(part.bad for part in parts) else [part.batch for part in parts]


_BATCH_BYTES_MAX = 2 * UNPACKED_BYTES_MAX
"""Far below the 2 GiB that a column may have."""


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)


class Part(NamedTuple):
    batch: pa.RecordBatch
    bad: list[BadRecord]
    end: int
    """Where the first record begins that is not dealt with, or where the last one ends."""


@dataclass(frozen=True)
class Decoder:
    """What to make of records. The same one serves all batches of a read."""

    schema: pa.Schema
    selection: Selection = field(default_factory=Selection)
    broker_name: str | None = None
    decompress: bool = True
    check_crc: bool = False
    body_bytes_max: int = BODY_BYTES_MAX

    def parts(self, walk: Walk, rows: Rows) -> Iterator[Part]:
        """The batches of these rows: one, unless packed bodies grow too large or records hold whole batches."""
        while len(rows):
            plain = first_wrapped(rows)
            if not plain:
                part, done = self._unwrapped(walk, rows), 1
            else:
                part, done = self._part(walk, rows if plain == len(rows) else rows.first(plain))
            yield part
            if done == len(rows):
                return
            rows = rows.behind(done)

    def _part(self, walk: Walk, rows: Rows) -> tuple[Part, int]:
        """A batch of the first rows, and how many they are."""
        bad: list[BadRecord] = []
        sound = rows
        if self.check_crc:
            sound = _without(walk, rows, checksum_faults(rows), bad)
        wanted, properties = select(sound, self.selection)
        done, unpacked = len(rows), None
        if self.decompress and "body" in self.schema.names:
            unpacked = unpack_bodies(wanted, self.body_bytes_max)
            if unpacked.end < len(wanted):
                done = int(np.searchsorted(rows.position, wanted.position[unpacked.end]))
            if unpacked.failed or unpacked.end < len(wanted):
                wanted, unpacked = _readable(walk, wanted, unpacked, bad)
                properties = PropertyColumns(wanted)
        batch = make_batch(self.schema, Given(wanted, properties, self.broker_name, unpacked))
        last = done - 1
        return Part(batch, bad, int(rows.position[last]) + rows.size(last)), done

    def _unwrapped(self, walk: Walk, rows: Rows) -> Part:
        """The batch of the messages in the first row."""
        at, size = int(rows.position[0]), rows.size(0)
        try:
            source = ByteGatherer(unwrap(rows, 0, self.body_bytes_max))
        except RecordError as error:
            return Part(_joined([], self.schema), [walk.bad(at, size, str(error))], at + size)
        inner = Walk(source, len(source))
        parts = [part for stretch in inner.stretches(0, len(source)) for part in self.parts(inner, stretch.rows)]
        return Part(_joined([part.batch for part in parts], self.schema), [], at + size)


def _readable(walk: Walk, rows: Rows, unpacked: Unpacked, bad: list[BadRecord]) -> tuple[Rows, Unpacked]:
    """Without the rows whose body cannot be unpacked, and without those behind the end."""
    keep = np.setdiff1d(np.arange(unpacked.end), [number for number, _ in unpacked.failed])
    _without(walk, rows, unpacked.failed, bad)
    return rows.take(keep), unpacked._replace(rows=np.searchsorted(keep, unpacked.rows), failed=[], end=len(keep))


def _without(walk: Walk, rows: Rows, faults: list[tuple[int, str]], bad: list[BadRecord]) -> Rows:
    """The other rows; these are told as bad."""
    for number, reason in faults:
        bad.append(walk.bad(int(rows.position[number]), rows.size(number), reason))
    numbers = [number for number, _ in faults]
    return rows if not faults else rows.take(np.setdiff1d(np.arange(len(rows)), numbers))
