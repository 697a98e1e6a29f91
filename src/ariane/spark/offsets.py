"""Offsets of queues, as options and checkpoints write them. Pure.

    {"v": 1, "o": {"orders": {"broker-a": {"0": 23, "1": 17}}}}                                   a checkpoint
    {"v": 1, "o": {"orders": {"broker-a": {"0": 23, "1": 17, "2": 9}}}, "b": {"orders": {"broker-a": {"2": 4}}}}

`o` is the next offset to read. `b` is where queues begin that the offset before did not know: a batch that is replayed
must begin where it began the first time, though the broker may have removed old messages meanwhile. In the options
startingOffsets and endingOffsets the inner object stands alone, and -2 is earliest, -1 is latest, as Kafka has it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ariane.errors import SettingsError
from ariane.model.route import MessageQueue

EARLIEST = -2
LATEST = -1
_VERSION = 1

Offsets = dict[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    next: Offsets
    begins: Offsets = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        nested: dict[str, Any] = {"v": _VERSION, "o": to_nested(self.next)}
        return nested | {"b": to_nested(self.begins)} if self.begins else nested

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """SettingsError when the checkpoint is not one of ours."""
        if value.get("v") != _VERSION:
            raise SettingsError(
                f"the checkpoint's offset has version {value.get('v')!r}, expected {_VERSION}: it belongs to another "
                "source or a later release; use that, or start with a new checkpoint directory"
            )
        return cls(from_nested(value.get("o", {}), "the checkpoint"), from_nested(value.get("b", {}), "the checkpoint"))


def to_nested(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Sorted, so that equal offsets are equal texts: Spark compares the texts to see whether there is news."""
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def from_nested(nested: object, where: str) -> Offsets:
    try:
        return {
            MessageQueue(topic=topic, broker_name=broker, queue_id=_whole(queue)): _whole(offset)
            for topic, brokers in _items(nested)
            for broker, queues in _items(brokers)
            for queue, offset in _items(queues)
        }
    except (TypeError, ValueError):
        raise SettingsError(
            f'{where} must look like {{"orders": {{"broker-a": {{"0": 23}}}}}}: topic, broker name, queue, offset'
        ) from None


@dataclass(frozen=True, slots=True)
class Position:
    """What startingOffsets or endingOffsets says: one word for all queues, or a number for some."""

    word: int | None = None
    numbers: Offsets = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, option: str) -> "Position":
        words = {"earliest": EARLIEST, "latest": LATEST}
        if text.lower() in words:
            return cls(words[text.lower()])
        try:
            nested = json.loads(text)
        except ValueError:
            raise SettingsError(f"option {option} is {text[:80]!r}: earliest, latest or JSON expected") from None
        return cls(None, from_nested(nested, f"option {option}"))

    def of(self, queue: MessageQueue, default: int) -> int:
        """EARLIEST, LATEST or an offset. Queues that the JSON leaves out get `default`."""
        return self.word if self.word is not None else self.numbers.get(queue, default)


def _items(value: object) -> Any:
    if not isinstance(value, dict):
        raise TypeError
    return value.items()


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError
    return int(value)


# --- ranges ---
#
# Which Spark partition reads which part of which queue. Pure.


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
