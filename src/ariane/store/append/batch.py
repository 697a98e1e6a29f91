"""A client's batch on its way into the log, field by field, and what became of it: no object for each message."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, islice, pairwise, repeat
from typing import Any, NamedTuple, TypeAlias, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from ariane.store.append.draft import Appended, Draft
from ariane.store.index.entries import Int64s
from ariane.wire.properties import PROPERTIES_BYTES_MAX
from ariane.wire.record.batch import BatchColumns


class BatchKeys(NamedTuple):
    """For the index: of each message the unique key first, then the user's keys."""

    texts: list[str]
    counts: int | list[int]
    """How many each message has: all the same, or one by one."""

    def of_each(self, offsets: list[int]) -> list[int]:
        """For each key the offset of its message."""
        if not isinstance(self.counts, int):
            return list(chain.from_iterable(map(repeat, offsets, self.counts)))
        spread = [0] * (self.counts * len(offsets))
        for place in range(self.counts):
            spread[place :: self.counts] = offsets
        return spread

    def of_messages(self, messages: int) -> Iterator[tuple[str, ...]]:
        counts = [self.counts] * messages if isinstance(self.counts, int) else self.counts
        texts = iter(self.texts)
        return (tuple(islice(texts, count)) for count in counts)


class DraftBatch(msgspec.Struct, kw_only=True, gc=False):
    """Messages of one queue. The lists are as long as there are messages."""

    topic: str
    queue_id: int
    bodies: list[bytes]
    properties: list[bytes]
    properties_end: bytes = b""
    """What each property text still needs behind it: the last separator, if the client left it out."""
    flags: list[int]
    tags_codes: list[int]
    keys: BatchKeys
    born_timestamp_ms: int
    born_host: bytes
    sys_flag: int = 0
    reconsume_times: int = 0

    def __len__(self) -> int:
        return len(self.bodies)

    def drafts(self) -> list[Draft]:
        """One by one, for who has to look at each."""
        columns = zip(
            self.bodies, self.properties, self.flags, self.tags_codes, self.keys.of_messages(len(self)), strict=True
        )
        return [
            Draft(
                topic=self.topic,
                queue_id=self.queue_id,
                body=body,
                properties=text + self.properties_end,
                born_timestamp_ms=self.born_timestamp_ms,
                born_host=self.born_host,
                flag=flag,
                sys_flag=self.sys_flag,
                reconsume_times=self.reconsume_times,
                tags_code=tags_code,
                keys=keys,
            )
            for body, text, flag, tags_code, keys in columns
        ]


class AppendedBatch(Sequence[Appended]):
    """All messages of a batch, dense in the log and in their queue."""

    __slots__ = ("_store_timestamp_ms", "physical_offsets", "queue_offset", "sizes")

    def __init__(
        self, physical_offsets: Sequence[int], sizes: list[int], queue_offset: int, store_timestamp_ms: int
    ) -> None:
        self.physical_offsets = physical_offsets
        self.sizes = sizes
        self.queue_offset = queue_offset
        self._store_timestamp_ms = store_timestamp_ms

    @classmethod
    def of(cls, appended: Iterable[Appended]) -> "AppendedBatch":
        """Of messages that were appended one by one; at least one."""
        every = list(appended)
        offsets, sizes = [one.physical_offset for one in every], [one.size for one in every]
        return cls(offsets, sizes, every[0].queue_offset, every[0].store_timestamp_ms)

    def __len__(self) -> int:
        return len(self.physical_offsets)

    @overload
    def __getitem__(self, index: int) -> Appended: ...
    @overload
    def __getitem__(self, index: slice) -> list[Appended]: ...
    def __getitem__(self, index: int | slice) -> Appended | list[Appended]:
        numbers = range(len(self.physical_offsets))[index]
        return self._at(numbers) if isinstance(numbers, int) else [self._at(number) for number in numbers]

    def _at(self, number: int) -> Appended:
        return Appended(
            self.physical_offsets[number], self.queue_offset + number, self.sizes[number], self._store_timestamp_ms
        )


# --- item_table ---
#
# The items of batches as the rows of one table, when all have the same lengths.
#
# What a loop of a program sends has often one shape: bodies of one length, the same properties, keys counted up. Then
# every field of every item is a column, and numpy reads, checks and copies a column of hundreds of messages at the
# price of a few single ones. Items stand back to back, and so do the bodies of batches that are joined: one table holds
# as many batches as came together. wire/record/batch.py draws an item.
#
#     | size | ........ | flag | bodyLength | body      | textLength | text           |
#     | size | ........ | flag | bodyLength | body      | textLength | text           |

Rows: TypeAlias = NDArray[Any]
"""Of a structured type, or of pieces of bytes."""

Bytes2D: TypeAlias = NDArray[np.uint8]
"""A row for each message, a byte in each column."""

_BODY_AT = 20
_BARE_BYTES = 22
_unpack_first = struct.Struct(">i12xi").unpack_from
_TYPES_CACHED = 1024


class UniformSizes(NamedTuple):
    """The lengths that all items share."""

    size: int
    body_bytes: int
    text_bytes: int


def uniform_sizes_of(batch: bytes | memoryview) -> UniformSizes | None:
    """The lengths of the first item; None when they are empty, or when not all items can have them."""
    if len(batch) <= _BARE_BYTES:
        return None
    size, body_bytes = _unpack_first(batch)
    text_bytes = size - _BARE_BYTES - body_bytes
    if body_bytes < 1 or not 1 <= text_bytes <= PROPERTIES_BYTES_MAX or len(batch) % size:
        return None
    return UniformSizes(size, body_bytes, text_bytes)


class UniformBatch(NamedTuple):
    rows: Rows
    shape: UniformSizes

    @classmethod
    def of(cls, batches: bytes | memoryview, shape: UniformSizes) -> "UniformBatch | None":
        """None when a row has other lengths than `shape`, which is the shape of each batch's first item."""
        rows = np.frombuffer(batches, _item_type(shape))
        for name, length in zip(("size", "body_bytes", "text_bytes"), shape, strict=True):
            if np.count_nonzero(rows[name] != length):  # a third of the time of any()
                return None
        return cls(rows, shape)

    def texts(self) -> Bytes2D:
        """The property texts, byte by byte."""
        size, _, text_bytes = self.shape
        return self.rows.view(np.uint8).reshape(len(self.rows), size)[:, size - text_bytes :]


@lru_cache(maxsize=_TYPES_CACHED)
def _item_type(shape: UniformSizes) -> "np.dtype[Any]":
    size, body_bytes, text_bytes = shape
    text_at = _BODY_AT + body_bytes
    # Pieces of bytes (V) are copied row by row: half the time of slices of a byte array.
    fields = {
        "size": (">i4", 0),
        "flag": (">i4", 12),
        "body_bytes": (">i4", 16),
        "body": (f"V{body_bytes}", _BODY_AT),
        "text_bytes": (">i2", text_at),
        "text": (f"V{text_bytes}", text_at + 2),
    }
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": size})


# --- draft_batches ---
#
# Several batches of one topic on their way into the log together: no object for a message, and in a table none for its
# keys.

_FEW = 256


class BatchPlan(NamedTuple):
    """One client's batch: how many of the messages are its own, and what they share."""

    messages: int
    queue_id: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    """Of one length in all batches: records with an address of IPv6 are longer."""
    reconsume_times: int


class DraftBatchGroup(msgspec.Struct, kw_only=True, gc=False):
    topic: str
    plans: list[BatchPlan]
    """At least one, in the order of their messages."""
    items: UniformBatch | BatchColumns
    """The messages of all batches: a table when all have the same lengths."""
    properties_end: bytes = b""
    """What each property text still needs behind it: the last separator, if the client left it out."""
    tags_codes: int | Int64s
    """Of all messages, or one by one."""
    keys: list[Bytes2D] | BatchKeys
    """For the index. Of a table: a column of unique keys, then one of the users' keys, either may be missing; ASCII."""

    @property
    def are_few(self) -> bool:
        """Whether what numpy costs has too few messages to share it. Already two batches save more than that."""
        return len(self.plans) == 1 and len(self) < _FEW and not isinstance(self.items, UniformBatch)

    def each(self) -> list[DraftBatch]:
        """Batch by batch, for who has to look at each."""
        columns, codes = self._columns(), self._tags_codes()
        if len(self.plans) == 1 and isinstance(self.keys, BatchKeys):
            return [self._batch(self.plans[0], columns, codes, self.keys)]
        keys, batches = self._keys(), list[DraftBatch]()
        ends = accumulate((plan.messages for plan in self.plans), initial=0)
        for plan, (first, end) in zip(self.plans, pairwise(ends), strict=True):
            mine = slice(first, end)
            own = BatchColumns(columns.bodies[mine], columns.properties[mine], columns.flags[mine])
            own_keys = BatchKeys([key for one in keys[mine] for key in one], [len(one) for one in keys[mine]])
            batches.append(self._batch(plan, own, codes[mine], own_keys))
        return batches

    def _batch(self, plan: BatchPlan, columns: BatchColumns, codes: list[int], keys: BatchKeys) -> DraftBatch:
        return DraftBatch(
            topic=self.topic,
            queue_id=plan.queue_id,
            bodies=columns.bodies,
            properties=columns.properties,
            properties_end=self.properties_end,
            flags=columns.flags,
            tags_codes=codes,
            keys=keys,
            born_timestamp_ms=plan.born_timestamp_ms,
            born_host=plan.born_host,
            sys_flag=plan.sys_flag,
            reconsume_times=plan.reconsume_times,
        )

    def __len__(self) -> int:
        """How many messages."""
        return len(self.items.rows) if isinstance(self.items, UniformBatch) else len(self.items.bodies)

    def _columns(self) -> BatchColumns:
        if isinstance(self.items, UniformBatch):
            rows = self.items.rows
            return BatchColumns(rows["body"].tolist(), rows["text"].tolist(), rows["flag"].tolist())
        return self.items

    def _tags_codes(self) -> list[int]:
        codes = self.tags_codes
        return [codes] * len(self) if isinstance(codes, int) else codes.tolist()

    def _keys(self) -> list[tuple[str, ...]]:
        if isinstance(self.keys, BatchKeys):
            return list(self.keys.of_messages(len(self)))
        columns = [[row.tobytes().decode() for row in column] for column in self.keys]
        return list(zip(*columns, strict=True)) if columns else [()] * len(self)
