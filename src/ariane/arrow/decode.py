"""Concatenated records, as in a pull answer or a commit log, to Arrow batches.

bytes ──> walk.py: where records begin and whether they are whole ──> rows ──> selection.py: which are wanted
                                                                                  │
batch <── columns.py: one array for each column that is asked for <──── bodies.py: packed bodies unpacked
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ariane.arrow.bad_records import BadRecord
from ariane.arrow.bodies import BODY_BYTES_MAX, UNPACKED_BYTES_MAX, Unpacked, unpack_bodies
from ariane.arrow.checksums import checksum_faults
from ariane.arrow.columns import Given, make_batch
from ariane.arrow.property_columns import PropertyColumns
from ariane.arrow.rows import Rows
from ariane.arrow.schema import message_schema
from ariane.arrow.selection import Selection, select
from ariane.arrow.source import Int64s, Source
from ariane.arrow.starts import find_chains
from ariane.arrow.walk import Walk
from ariane.arrow.wrapped import first_wrapped, unwrap
from ariane.errors import RecordError


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
    walk = Walk(Source(buffer), memoryview(buffer).nbytes, base)
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


def decode_pieces(source: Source, begins: Int64s, ends: Int64s, decoder: "Decoder") -> list[pa.RecordBatch] | None:
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
            source = Source(unwrap(rows, 0, self.body_bytes_max))
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
