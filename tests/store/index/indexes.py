"""Small indexes for tests, an index by Apache's book to compare with, and a check of any file's bytes."""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from ariane.store.disk import Disk
from ariane.store.index.entries import KeyedMessage
from ariane.store.index.file import IndexCapacity
from ariane.store.index.index import Index
from ariane.store.layout import Layout
from ariane.store.settings import StoreSettings
from ariane.wire.hashes import java_hash

ROOT = Path("/store")
TINY = IndexCapacity(slots=3, entries=8)
NOW_MS = 1_700_000_000_000
EVER = (0, 2**63 - 1)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)

HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")


class Entry(NamedTuple):
    hash: int
    physical: int
    seconds: int
    previous: int


def names_from(first: int) -> Callable[[], str]:
    numbers = count(first)
    return lambda: f"{next(numbers):017d}"


def opened(
    disk: Disk, capacity: IndexCapacity = TINY, root: Path = ROOT, name: Callable[[], str] | None = None
) -> Index:
    """An index that nothing is said about yet."""
    settings = StoreSettings(index_slots=capacity.slots, index_entries=capacity.entries)
    return Index.open(disk, Layout.under(root), settings, name or names_from(20261115212619400))


def message(physical: int, *keys: str, topic: str = "orders", at_ms: int | None = None) -> KeyedMessage:
    return physical, NOW_MS + physical if at_ms is None else at_ms, topic, keys


def found(index: Index, key: str, topic: str = "orders", at: tuple[int, int] = EVER, max_num: int = 1000) -> list[int]:
    return index.query(topic, key, max_num, *at).offsets


def filled(disk: Disk, count: int = 20) -> Index:
    """Three files of seven, seven and six entries: offsets 0, 10, 20 and so on, each with the key `k<offset>`."""
    index = opened(disk)
    index.put([message(number * 10, f"k{number * 10}") for number in range(count)])
    return index


def contents(disk: Disk, root: Path = ROOT) -> list[bytes]:
    """Every file of the index, oldest first."""
    directory = Layout.under(root).index
    return [_content(disk, directory / name) for name in disk.names(directory)]


def _content(disk: Disk, path: Path) -> bytes:
    file = disk.open(path, writable=False)
    try:
        return file.read(file.size, 0)
    finally:
        file.close()


def checked(data: bytes, capacity: IndexCapacity) -> list[Entry]:
    """The entries of a file, after a look at every slot, link and count of it."""
    *_, slot_count, entry_count = header = HEADER.unpack_from(data)
    slots = struct.unpack_from(f">{capacity.slots}i", data, HEADER.size)
    position = HEADER.size + 4 * capacity.slots
    entries = [Entry(*ENTRY.unpack_from(data, position + ENTRY.size * number)) for number in range(1, entry_count)]
    heads = [0] * capacity.slots
    for number, entry in enumerate(entries, 1):
        assert entry.previous == heads[entry.hash % capacity.slots]
        heads[entry.hash % capacity.slots] = number
    assert list(slots) == heads
    assert slot_count == sum(head > 0 for head in heads)
    assert header[2:4] == (entries[0].physical, entries[-1].physical)
    return entries


def indexed(disk: Disk, capacity: IndexCapacity = TINY, root: Path = ROOT) -> list[tuple[int, int]]:
    """Hash and physical offset of every entry in the index, in order; each file is checked."""
    return [entry[:2] for data in contents(disk, root) for entry in checked(data, capacity)]


def expected(messages: Iterable[KeyedMessage]) -> list[tuple[int, int]]:
    return [(book_hash(topic, key), physical) for physical, _, topic, keys in messages for key in keys]


def book_hash(topic: str, key: str) -> int:
    size = abs(java_hash(f"{topic}#{key}"))
    return size if size < 2**31 else 0


class BookFile:
    """One file, entry by entry, as Apache's IndexFile.putKey writes it."""

    def __init__(self, capacity: IndexCapacity, end_timestamp_ms: int, end_physical: int) -> None:
        self._shape = capacity
        self.data = bytearray(HEADER.size + 4 * capacity.slots + ENTRY.size * capacity.entries)
        HEADER.pack_into(self.data, 0, end_timestamp_ms, end_timestamp_ms, end_physical, end_physical, 0, 1)

    @property
    def header(self) -> tuple[int, int, int, int, int, int]:
        return HEADER.unpack_from(self.data)

    def put(self, topic: str, key: str, physical: int, timestamp_ms: int) -> bool:
        begin_ms, _, begin_physical, _, slot_count, entry_count = self.header
        if entry_count >= self._shape.entries:
            return False
        code = book_hash(topic, key)
        slot = HEADER.size + 4 * (code % self._shape.slots)
        (previous,) = struct.unpack_from(">i", self.data, slot)
        seconds = min(max((timestamp_ms - begin_ms) // 1000, 0), 2**31 - 1) if begin_ms > 0 else 0
        place = HEADER.size + 4 * self._shape.slots + ENTRY.size * entry_count
        ENTRY.pack_into(self.data, place, code, physical, seconds, previous)
        struct.pack_into(">i", self.data, slot, entry_count)
        if entry_count == 1:
            begin_ms, begin_physical = timestamp_ms, physical
        counts = slot_count + (previous == 0), entry_count + 1
        HEADER.pack_into(self.data, 0, begin_ms, timestamp_ms, begin_physical, physical, *counts)
        return True


def by_the_book(messages: Sequence[KeyedMessage], capacity: IndexCapacity) -> list[bytes]:
    """The files that Apache would write."""
    files: list[BookFile] = []
    for physical, timestamp_ms, topic, keys in messages:
        for key in keys:
            if not files or not files[-1].put(topic, key, physical, timestamp_ms):
                _, end_timestamp_ms, _, end_physical, *_ = files[-1].header if files else (0, 0, 0, 0, 0, 0)
                files.append(BookFile(capacity, end_timestamp_ms, end_physical))
                assert files[-1].put(topic, key, physical, timestamp_ms)
    return [bytes(file.data) for file in files]


@st.composite
def logs(draw: st.DrawFn, size_max: int = 40) -> list[KeyedMessage]:
    """Messages in the order of a log, with any keys, and a clock that is sometimes set back."""
    steps = draw(st.lists(st.tuples(st.integers(1, 500), st.integers(-3_000, 90_000), ANY_TEXT), max_size=size_max))
    keys = st.lists(st.sampled_from(["a", "b", "c", "订单"]) | ANY_TEXT, max_size=4)
    messages: list[KeyedMessage] = []
    physical, at_ms = 0, NOW_MS
    for step, ms, topic in steps:
        messages.append((physical, at_ms, topic, tuple(draw(keys))))
        physical, at_ms = physical + step, at_ms + ms
    return messages
