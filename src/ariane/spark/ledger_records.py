"""What the ledger holds, as values and as bytes. Pure.

A batch is decided by one record of kind `winners`: it names the half messages that are to become visible. All others of
the batch, of attempts that failed or that a killed driver left behind, are to be rolled back. A record of kind `ended`
says that the brokers have heard of all winners.

    winners  {query, batch, id, group, winners: [{attempt, partition, broker, count, packed}], parts: [offsets]}
    ended    {query, batch, id}

A half message is named by the attempt that sent it and a serial number, which no other send of this attempt has: a
send that is repeated, because its answer did not come, is another half message. `packed` has three numbers for each:

    serial        counted by the attempt
    half offset   in the queue of half messages, as the broker's answer tells
    log offset    in the broker's commit log, likewise

as differences from row to row, 64 bits each, little-endian, column by column, and then zlib. Half messages of one
attempt lie close together, so that about three bytes are left of 24. What does not fit one message goes into parts:
messages of the same queue which stand before the record, and which only the record makes count.
"""

import zlib
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec
import numpy as np

from ariane.errors import RecordError

ENTRIES_MAX = 50_000
"""In one `Winners`."""
RECORD_BYTES_MAX = 1024 * 1024


class HalfEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    serial: int
    half_offset: int
    log_offset: int


class Winners(msgspec.Struct, frozen=True, kw_only=True):
    """Half messages of one attempt on one broker, in the order of its rows."""

    attempt: str
    partition: int
    broker: str
    count: int
    packed: bytes

    def entries(self) -> list[HalfEntry]:
        """RecordError when the bytes are not what was packed."""
        size = self.count * 24
        reader = zlib.decompressobj()
        try:
            data = reader.decompress(self.packed, size + 1) if 0 < self.count <= ENTRIES_MAX else b""
        except zlib.error as error:
            raise RecordError(f"a ledger record is damaged: {error}") from None
        if len(data) != size or not size:
            raise RecordError(f"a ledger record is damaged: {len(data)} bytes for {self.count} half messages")
        columns = np.cumsum(np.frombuffer(data, "<i8").reshape(3, self.count), axis=1)
        return [HalfEntry(*row) for row in columns.T.tolist()]


class Kind(StrEnum):
    WINNERS = "winners"
    ENDED = "ended"


class LedgerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    query: str
    batch: int
    kind: Kind
    id: str
    """Made by its writer, so that it knows its own."""
    group: str = ""
    """Of the producer, which must be told with every outcome."""
    winners: list[Winners] = []
    parts: list[int] = []
    """Offsets in the ledger's queue."""


def pack(attempt: str, partition: int, broker: str, entries: list[HalfEntry]) -> list[Winners]:
    return [
        Winners(attempt=attempt, partition=partition, broker=broker, count=len(some), packed=_packed(some))
        for start in range(0, len(entries), ENTRIES_MAX)
        if (some := entries[start : start + ENTRIES_MAX])
    ]


def _packed(entries: list[HalfEntry]) -> bytes:
    columns = np.array([(one.serial, one.half_offset, one.log_offset) for one in entries], "<i8").T
    differences = np.diff(columns, axis=1, prepend=0)
    return zlib.compress(np.ascontiguousarray(differences).astype("<i8").tobytes(), 1)


def encode_record(record: LedgerRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_record(data: bytes) -> LedgerRecord:
    try:
        return msgspec.json.decode(data, type=LedgerRecord)
    except msgspec.DecodeError as error:
        raise RecordError(f"a ledger record cannot be read: {error}") from None


def split_parts(winners: Iterable[Winners]) -> Iterator[list[Winners]]:
    """Pieces that fit one message each."""
    piece: list[Winners] = []
    size = 0
    for one in winners:
        length = len(one.packed) * 4 // 3 + 200  # as base64, with the names around it
        if piece and size + length > RECORD_BYTES_MAX:
            yield piece
            piece, size = [], 0
        piece.append(one)
        size += length
    if piece:
        yield piece


def encode_part(winners: list[Winners]) -> bytes:
    return msgspec.json.encode(winners)


def decode_part(data: bytes) -> list[Winners]:
    try:
        return msgspec.json.decode(data, type=list[Winners])
    except msgspec.DecodeError as error:
        raise RecordError(f"a part of a ledger record cannot be read: {error}") from None
