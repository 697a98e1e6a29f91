"""What it costs to index a message with two keys: CPU microseconds, entry by entry and in batches.

    python -m bench.index

Targets are what prototypes reached on a quiet machine (2 virtual CPUs, an optimised build of CPython 3.11). The file
has the default size, and 65,536 messages in turn spread their keys over its slots, so that the memory of a real index
is paid for, too.
"""

import struct
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

from ariane.store.disk import RealDisk, RealFile
from ariane.store.index.entries import (
    ENTRY,
    HEADER_BYTES,
    SLOT_BYTES,
    Header,
    KeyedMessage,
    entries_position,
    file_bytes,
    key_hash,
)
from ariane.store.index.file import IndexCapacity, IndexFile
from ariane.store.index.pending_keys import PendingKeys
from ariane.store.settings import StoreSettings
from bench.timing import us_per_call

MESSAGES = 65_536
KEYS = 2

TARGETS_US = {"one by one": 4.20, "batches of 16": 1.71, "batches of 64": 0.61, "batches of 256": 0.34,
              "batches of 1024": 0.27}  # fmt: skip

_SLOT = struct.Struct(">i")
_NOW_MS = 1_700_000_000_000


def main() -> None:
    print(f"{'index, us':<22}{'a key':>9}{'a message':>11}{'target':>9}{'ratio':>7}")
    with tempfile.TemporaryDirectory() as directory:
        for name, us in rows(Path(directory)):
            target = TARGETS_US[name]
            print(f"{name:<22}{us / KEYS:9.3f}{us:11.3f}{target:9.2f}{us / target:7.2f}")


def rows(directory: Path) -> Iterator[tuple[str, float]]:
    """Every measurement as (name, microseconds a message)."""
    settings = StoreSettings()
    shape = IndexCapacity(settings.index_slots, settings.index_entries)
    messages = [_message(number) for number in range(MESSAGES)]
    yield "one by one", us_per_call(_one_by_one(directory / "scalar", shape, messages))
    for size in (16, 64, 256, 1024):
        call = _batches(directory / str(size), shape, [messages[i : i + size] for i in range(0, MESSAGES, size)])
        yield f"batches of {size}", us_per_call(call) / size


def _message(number: int) -> KeyedMessage:
    unique_key = f"7F0000010000{number * 2_654_435_761 % 2**64:020X}"
    return number * 300, _NOW_MS + number, "BenchTopic", (unique_key, f"order-{number:06d}")


def _batches(path: Path, shape: IndexCapacity, batches: list[list[KeyedMessage]]) -> Callable[[], None]:
    """As `Index.put_columns` does, but round and round over the same offsets."""
    file = IndexFile.create(RealDisk(), path, shape, Header.following(0, 0))
    following = cycle([PendingKeys.of(batch) for batch in batches])

    def put() -> None:
        file.publish(file.write_entries(next(following).rows(-1)))

    return put


def _one_by_one(path: Path, shape: IndexCapacity, messages: list[KeyedMessage]) -> Callable[[], None]:
    """The obvious way, into a mapping: what the batches were measured against."""
    file: RealFile = RealDisk().create(path, file_bytes(*shape), allocated=0)
    view = file.writable_view(file.size)
    following = cycle(messages)
    count = 1

    def put() -> None:
        nonlocal count
        physical, timestamp_ms, topic, keys = next(following)
        for key in keys:
            code = key_hash(topic, key)
            slot = HEADER_BYTES + code % shape.slots * SLOT_BYTES
            position = entries_position(shape.slots) + count * ENTRY.size
            seconds = (timestamp_ms - _NOW_MS) // 1000
            ENTRY.pack_into(view, position, code, physical, seconds, *_SLOT.unpack_from(view, slot))
            _SLOT.pack_into(view, slot, count)
            count += 1

    return put


if __name__ == "__main__":
    main()
