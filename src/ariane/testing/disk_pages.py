"""The bytes of a simulated file: what readers see, what is durable, and every version of a page between the two."""

import random
from collections.abc import Sequence
from copy import copy
from typing import TypeVar

PAGE_BYTES = 4096

T = TypeVar("T")


class Luck:
    """Chooses what survives a power cut. The odds are drawn anew each time: even ones would always keep one half."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._odds = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))

    def keeps(self) -> bool:
        return self._rng.random() < self._odds

    def choose(self, old: T, newer: Sequence[T]) -> T:
        if not newer or not self.keeps():
            return old
        return newer[-1] if self._rng.random() < 0.75 else self._rng.choice(newer)


class Content:
    """Pages are immutable, so that disks can share them; one that was never written is in no table."""

    def __init__(self, size: int, allocated: int, modified_ms: int) -> None:
        self.modified_ms = modified_ms
        self._allocated = allocated
        self._sizes = [0, allocated, size]  # the durable one first: a file is made empty, then extended
        self._durable: dict[int, bytes] = {}
        self._newer: dict[int, list[bytes]] = {}
        self._dirty: set[int] = set()  # the pages of _newer that the next sync writes
        self._mapped_bytes = 0
        self._image: bytearray | None = None

    @property
    def size(self) -> int:
        return self._sizes[-1]

    @property
    def image(self) -> bytearray:
        """What readers see. Made when first asked for: most files of most disks after a crash are never opened."""
        if self._image is None:
            image = bytearray(self.size)
            for page in self._written():
                image[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = self._newest(page)
            self._image = image
        return self._image

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        assert position + len(data) <= self.size, "no file of a store grows after it was made"
        self.image[position : position + len(data)] = data
        for page in _pages(position, len(data)):
            self._keep_version(page)

    def map_writable(self, length: int) -> memoryview:
        assert not self.sparse_bytes(0, length), "on a full disk, a write to blocks not allocated is a SIGBUS"
        self._mapped_bytes = max(self._mapped_bytes, length)
        return memoryview(self.image)[:length]

    def sync(self) -> None:
        self._notice_mapped_writes()
        for page in self._dirty:
            self._durable[page] = self._newer.pop(page)[-1]
        self._dirty.clear()
        del self._sizes[:-1]

    def fail_to_sync(self) -> None:
        """As Linux does: the pages count as clean from now on, so that the next sync succeeds without them."""
        self._notice_mapped_writes()
        self._dirty.clear()

    def flip(self, position: int, mask: int) -> None:
        page, at = divmod(position, PAGE_BYTES)
        self._notice_mapped_writes()
        self.image[position] ^= mask
        self._durable[page] = _flipped(self._old(page), at, mask)
        if page in self._newer:
            self._newer[page] = [_flipped(version, at, mask) for version in self._newer[page]]

    def next_data(self, position: int) -> int | None:
        self._notice_mapped_writes()
        page = min((page for page in self._written() if page >= position // PAGE_BYTES), default=None)
        return None if page is None or position >= self.size else max(position, page * PAGE_BYTES)

    def sparse_bytes(self, position: int, length: int) -> int:
        """The blocks that a range has still to take."""
        sparse_from = len(_pages(0, self._allocated))
        pages = [page for page in _pages(position, length) if page >= sparse_from]
        return sum(page not in self._durable and page not in self._newer for page in pages) * PAGE_BYTES

    def block_bytes(self) -> int:
        return len(self._written().union(_pages(0, self._allocated))) * PAGE_BYTES

    def after_process_crash(self) -> "Content":
        self._notice_mapped_writes()
        twin = copy(self)
        twin._sizes, twin._durable, twin._dirty = list(self._sizes), dict(self._durable), set(self._dirty)
        twin._newer = {page: list(versions) for page, versions in self._newer.items()}
        twin._mapped_bytes, twin._image = 0, None
        return twin

    def after_power_cut(self, luck: Luck) -> "Content":
        self._notice_mapped_writes()
        size = luck.choose(self._sizes[0], self._sizes[1:])
        twin = Content(size, min(self._allocated, size), self.modified_ms)
        twin._sizes = [size]
        survivors = {page: luck.choose(self._old(page), self._newer[page]) for page in sorted(self._newer)}
        twin._durable = {page: data for page, data in (self._durable | survivors).items() if page * PAGE_BYTES < size}
        if size < self.size and (last := size // PAGE_BYTES) in twin._durable:
            twin._durable[last] = twin._durable[last][: size % PAGE_BYTES]
        return twin

    def _notice_mapped_writes(self) -> None:
        """Nobody tells when a mapping is written to: its pages are compared, and only their newest state is known."""
        for page in _pages(0, self._mapped_bytes):
            if self._current(page) != self._newest(page):
                self._keep_version(page)

    def _keep_version(self, page: int) -> None:
        self._newer.setdefault(page, []).append(self._current(page))
        self._dirty.add(page)

    def _written(self) -> set[int]:
        return self._durable.keys() | self._newer.keys()

    def _current(self, page: int) -> bytes:
        return bytes(self.image[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])

    def _newest(self, page: int) -> bytes:
        return self._newer[page][-1] if page in self._newer else self._old(page)

    def _old(self, page: int) -> bytes:
        return self._durable.get(page) or bytes(min(PAGE_BYTES, self.size - page * PAGE_BYTES))


def _pages(position: int, length: int) -> range:
    return range(position // PAGE_BYTES, -(-(position + length) // PAGE_BYTES)) if length else range(0)


def _flipped(page: bytes, at: int, mask: int) -> bytes:
    return page[:at] + bytes([page[at] ^ mask]) + page[at + 1 :]
