"""The epochs of a log: which master wrote which part of it, and up to where two logs are the same. Values, no I/O.

    offset   0        500           900      1000
    log A    | 1 ...... | 3 ......... | 5 ..... |
    log B    | 1 ...... | 3 ......... | 4 .. |              the same up to 900: epoch 3 began at 500 in both

The first record of an epoch is an ordinary message of the system topic `ARIANE_SYS_EPOCH`; where it stands, the epoch
begins. It is replicated, cut and checked like every record, so map and log cannot disagree. An epoch has one master,
which writes that record once: logs that have it at the same offset are the same up to there, and further up to the
smaller of the two ends of that epoch.

What is below the first entry was written before the group existed, or is no longer there.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from ariane.errors import RecordError
from ariane.replication.frames import OFFSET_MAX

EPOCH_MAX = 2**31 - 1
"""An int32 in frames."""
EPOCHS_MAX = 1_000
"""The newest that a map keeps. Older ones say nothing that matters: no log is cut so far back."""
RECORD_BYTES_MAX = 4 * 1024


class Epoch(NamedTuple):
    number: int
    start: int
    """Offset of its first record."""


class EpochRecord(msgspec.Struct, frozen=True):
    """Body of the first record of an epoch."""

    epoch: Annotated[int, Meta(ge=1, le=EPOCH_MAX)]
    member: Annotated[int, Meta(ge=1, le=9)]
    incarnation: Annotated[str, Meta(min_length=1, max_length=64)]

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, body: bytes | memoryview) -> "EpochRecord":
        if len(body) > RECORD_BYTES_MAX:
            raise RecordError(f"the record of an epoch has {len(body)} bytes, at most {RECORD_BYTES_MAX} are possible")
        try:
            return msgspec.json.decode(body, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RecordError(f"not the record of an epoch: {error}") from None


@dataclass(frozen=True, slots=True)
class EpochMap:
    """Epochs and their starts rise strictly."""

    entries: tuple[Epoch, ...] = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> "EpochMap":
        """Of a peer's introduction, or of a file. RecordError unless both numbers rise."""
        entries = tuple(Epoch(number, start) for number, start in pairs)
        if len(entries) > EPOCHS_MAX:
            raise RecordError(f"{len(entries)} epochs, at most {EPOCHS_MAX} are kept")
        number, start = 0, -1
        for entry in entries:
            if not number < entry.number <= EPOCH_MAX or not start < entry.start <= OFFSET_MAX:
                raise RecordError(f"epoch {entry.number} at {entry.start} cannot follow epoch {number} at {start}")
            number, start = entry
        return cls(entries)

    @classmethod
    def from_records(cls, records: Iterable[tuple[int, bytes | memoryview]]) -> "EpochMap":
        """Of the messages of the system topic: physical offset and body, in order of the log."""
        epochs = cls()
        for start, body in records:
            epochs = epochs.add(EpochRecord.from_bytes(body).epoch, start)
        return epochs

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def last(self) -> Epoch | None:
        return self.entries[-1] if self.entries else None

    def pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple((epoch.number, epoch.start) for epoch in self.entries)

    def add(self, number: int, start: int) -> "EpochMap":
        """With one more, which began at `start`. RecordError when it is not newer than all others."""
        return EpochMap.of((*self.entries[-EPOCHS_MAX + 1 :], (number, start)))

    def truncate_to(self, end: int) -> "EpochMap":
        """Of the log when it is cut at `end`: an epoch whose first record is gone is gone."""
        return EpochMap(tuple(epoch for epoch in self.entries if epoch.start < end))

    def epoch_at(self, offset: int) -> int:
        """Who wrote the byte at `offset`; 0 when that was before the first known epoch."""
        index = bisect_right(self.entries, offset, key=lambda epoch: epoch.start)
        return self.entries[index - 1].number if index else 0

    def start_of(self, number: int) -> int | None:
        return next((epoch.start for epoch in self.entries if epoch.number == number), None)

    def end_of(self, number: int, log_end: int) -> int:
        """Where the next epoch began, or where the log ends."""
        return next((epoch.start for epoch in self.entries if epoch.number > number), log_end)

    def consistent_point(self, end: int, other: "EpochMap", other_end: int) -> int | None:
        """Up to where this log, which ends at `end`, and the other one are the same; None when no epoch is in both."""
        others = {(epoch.number, epoch.start) for epoch in other.entries}
        for epoch in reversed(self.entries):
            if (epoch.number, epoch.start) in others:
                return min(self.end_of(epoch.number, end), other.end_of(epoch.number, other_end))
        return None
