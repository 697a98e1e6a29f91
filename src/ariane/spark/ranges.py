"""Which Spark partition reads which part of which queue. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ariane.model.route import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The offsets from `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLimits:
    partitions_min: int | None = None
    records_max: int | None = None
    bytes_max: int | None = None


def split_ranges(
    ranges: Iterable[QueueRange], limits: SplitLimits, record_bytes: Mapping[MessageQueue, float] | None = None
) -> list[QueueRange]:
    """A partition for each queue with something to read, and more where a limit or `partitions_min` asks for it.

    `record_bytes` is the mean size of a queue's messages, for `bytes_max`: counted by the caller, as an estimate.
    """
    wanted = [one for one in ranges if len(one) > 0]
    pieces = [piece for one in wanted for piece in _cut(one, _records_max(one, limits, record_bytes or {}))]
    if limits.partitions_min is None or len(pieces) >= limits.partitions_min:
        return pieces
    return _cut_into(pieces, limits.partitions_min)


def _records_max(one: QueueRange, limits: SplitLimits, record_bytes: Mapping[MessageQueue, float]) -> int:
    records = limits.records_max or len(one)
    if limits.bytes_max is not None and record_bytes.get(one.queue):
        records = min(records, int(limits.bytes_max / record_bytes[one.queue]))
    return max(1, records)


def _cut(one: QueueRange, records_max: int) -> Iterator[QueueRange]:
    """Pieces of nearly the same length: a short last one would leave a core idle at the end."""
    count = -(-len(one) // records_max)
    yield from _parts(one, count)


def _parts(one: QueueRange, count: int) -> Iterator[QueueRange]:
    size = len(one)
    for number in range(count):
        start, end = one.start + size * number // count, one.start + size * (number + 1) // count
        if end > start:
            yield QueueRange(one.queue, start, end)


def _cut_into(pieces: list[QueueRange], partitions_min: int) -> list[QueueRange]:
    """By length, so that partitions are even; each piece stays at least one, so there may be a few more."""
    total = sum(len(piece) for piece in pieces)
    return [part for piece in pieces for part in _parts(piece, max(1, -(-len(piece) * partitions_min // total)))]
