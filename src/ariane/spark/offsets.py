"""Offsets of queues as options and checkpoints write them, and offset ranges for Spark partitions. Pure functions.

    {"v": 1, "o": {"orders": {"broker-a": {"0": 23, "1": 17}}}}                                   a checkpoint
    {"v": 1, "o": {"orders": {"broker-a": {"0": 23, "1": 17, "2": 9}}}, "b": {"orders": {"broker-a": {"2": 4}}}}

`o` is the next offset to read. `b` is where queues begin that are new since the previous offset: a batch that is
replayed must begin where it began the first time, though the broker may have deleted old messages meanwhile. The
options startingOffsets and endingOffsets have the inner object alone, in which -2 is earliest and -1 is latest, as in
Kafka.
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
        """SettingsError when the checkpoint is from another source or a later version."""
        if value.get("v") != _VERSION:
            raise SettingsError(
                f"the checkpoint's offset has version {value.get('v')!r}, expected {_VERSION}: it belongs to another "
                "source or a later release; use that, or start with a new checkpoint directory"
            )
        return cls(from_nested(value.get("o", {}), "the checkpoint"), from_nested(value.get("b", {}), "the checkpoint"))


def to_nested(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Sorted, so that equal offsets are equal texts: Spark compares the texts to see whether anything is new."""
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
    """The value of startingOffsets or endingOffsets: one word for all queues, or an offset for some."""

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


# --- ranges of offsets ---


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The offsets of a queue from `start` up to, not including, `end`."""

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
    """A partition for each queue that has messages to read, and more where a limit or `partitions_min` requires it.

    `record_bytes` is the estimated mean size of a queue's messages, for `bytes_max`.
    """
    whole = [queue_range for queue_range in ranges if len(queue_range) > 0]
    parts = [
        part
        for queue_range in whole
        for part in _split_by_size(queue_range, _records_max(queue_range, limits, record_bytes or {}))
    ]
    if limits.partitions_min is None or len(parts) >= limits.partitions_min:
        return parts
    return _split_to_minimum(parts, limits.partitions_min)


def _records_max(queue_range: QueueRange, limits: SplitLimits, record_bytes: Mapping[MessageQueue, float]) -> int:
    records = limits.records_max or len(queue_range)
    if limits.bytes_max is not None and record_bytes.get(queue_range.queue):
        records = min(records, int(limits.bytes_max / record_bytes[queue_range.queue]))
    return max(1, records)


def _split_by_size(queue_range: QueueRange, records_max: int) -> Iterator[QueueRange]:
    """Into parts of nearly the same length: a short last part would leave a core idle at the end."""
    count = -(-len(queue_range) // records_max)
    yield from _split(queue_range, count)


def _split(queue_range: QueueRange, count: int) -> Iterator[QueueRange]:
    first, size = queue_range.start, len(queue_range)
    for number in range(count):
        start, end = first + size * number // count, first + size * (number + 1) // count
        if end > start:
            yield QueueRange(queue_range.queue, start, end)


def _split_to_minimum(ranges: list[QueueRange], partitions_min: int) -> list[QueueRange]:
    """In proportion to their lengths, so that partitions are even; rounding may give a few more than the minimum."""
    total = sum(len(part) for part in ranges)
    return [part for whole in ranges for part in _split(whole, max(1, -(-len(whole) * partitions_min // total)))]
