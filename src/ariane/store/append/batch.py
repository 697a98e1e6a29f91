"""Drafts of batches, as columns rather than an object for each message, and their results."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import NamedTuple, overload

import msgspec

from ariane.store.append.draft import Appended, Draft
from ariane.wire.record.batch import BatchColumns
from ariane.wire.record.uniform_batch import BatchPlan, Bytes2D, Int64s, UniformBatch


class BatchKeys(NamedTuple):
    """For the index: of each message the unique key first, then the user's keys."""

    texts: list[str]
    counts: int | list[int]
    """How many each message has: all the same, or one by one."""

    def of_each(self, messages: int) -> list[int]:
        """How many keys each of so many messages has."""
        return [self.counts] * messages if isinstance(self.counts, int) else self.counts

    def of_messages(self, messages: int) -> Iterator[tuple[str, ...]]:
        texts = iter(self.texts)
        return (tuple(islice(texts, count)) for count in self.of_each(messages))


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
        """A draft for each message."""
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
    """The results of a batch: its messages are dense in the log and in their queue."""

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
        records = list(appended)
        offsets, sizes = [record.physical_offset for record in records], [record.size for record in records]
        return cls(offsets, sizes, records[0].queue_offset, records[0].store_timestamp_ms)

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


# --- several batches --------------------------------------------------------------------------------------------------

_FEW = 256


class DraftBatchGroup(msgspec.Struct, kw_only=True, gc=False):
    """Several batches of one topic. In a uniform batch there is no object for a message, nor for its keys."""

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
        """Whether there are too few messages to share what numpy costs. Two batches already save more than that."""
        return len(self.plans) == 1 and len(self) < _FEW and not isinstance(self.items, UniformBatch)

    def each(self) -> list[DraftBatch]:
        """A draft batch for each batch."""
        columns, codes = self._columns(), self._tags_codes()
        if len(self.plans) == 1 and isinstance(self.keys, BatchKeys):
            return [self._batch(self.plans[0], columns, codes, self.keys)]
        keys, batches = self._keys(), list[DraftBatch]()
        ends = accumulate((plan.messages for plan in self.plans), initial=0)
        for plan, (first, end) in zip(self.plans, pairwise(ends), strict=True):
            own_range = slice(first, end)
            own = BatchColumns(columns.bodies[own_range], columns.properties[own_range], columns.flags[own_range])
            own_keys = BatchKeys(
                [key for message in keys[own_range] for key in message], list(map(len, keys[own_range]))
            )
            batches.append(self._batch(plan, own, codes[own_range], own_keys))
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
