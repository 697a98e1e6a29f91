"""A client's batch on its way into the log, field by field, and what became of it: no object for each message."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import NamedTuple, overload

import msgspec

from ariane.store.draft import Appended, Draft


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
