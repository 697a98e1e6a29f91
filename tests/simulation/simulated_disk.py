"""A simulated disk in memory with power cuts. It distinguishes what was written from what survives a crash.

    what                     readers see it     it survives a power cut
    bytes, by 4 KiB page     at once            after `sync` of the file
    size of a new file       at once            after `sync` of the file
    names                    at once            after `sync_directory` of their directory
    all of these             at once            after `sync` of the whole file system

`cut_power` lets a seed choose for all that was not synced: the old, the newest, for a page any version between. That is
harsher than Linux, which orders some of it, and kinder in one thing: no page is torn inside.

Every crash point of a scenario is found by counting: run it once, read `operations`, run it again with `crash_at(n)`
for each n up to that. PowerCut ends the run; `cut_power` and `crash_process` then give disks to recover from. Many can
be taken of one disk, at little cost: they share its pages.
"""

import errno
import os
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import NamedTuple, TypeVar

from ariane.clock import Clock
from ariane.testing.clock import FakeClock

# --- disk_pages ---
#
# The bytes of a simulated file: what readers see, what is durable, and every version of a page between the two.

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
        """Writes to a mapping are not observable: its pages are compared, and only their newest state is known."""
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


# --- disk_names ---
#
# The names on a simulated disk: those that readers see, those that are durable, and the changes between the two.


class Directory:
    """Has nothing of its own: the names of all directories are in one table."""

    def after_process_crash(self) -> "Directory":
        return self

    def after_power_cut(self, _luck: Luck) -> "Directory":
        return self


Node = Content | Directory
Kind = TypeVar("Kind", Content, Directory)

_ROOT = Directory()


class _Change(NamedTuple):
    """Puts a node at a path or, without one, takes its name. A node has but one name, so a rename is one change."""

    node: Node
    path: Path | None
    directories: frozenset[Path]

    def apply(self, names: dict[Path, Node]) -> None:
        old = next((path for path, node in names.items() if node is self.node), None)
        if old is not None:
            del names[old]
        if self.path is not None:
            names[self.path] = self.node


class Names:
    """`/` and `.` are always there."""

    def __init__(self) -> None:
        self._current: dict[Path, Node] = {}
        self._durable: dict[Path, Node] = {}
        self._changes: list[_Change] = []

    def get(self, path: Path) -> Node | None:
        return _ROOT if path == path.parent else self._current.get(path)

    def find(self, path: Path, kind: type[Kind]) -> Kind:
        node = self.get(path)
        if node is None:
            raise os_error(errno.ENOENT)
        if not isinstance(node, kind):
            raise os_error(errno.EISDIR if kind is Content else errno.ENOTDIR)
        return node

    def below(self, directory: Path) -> list[str]:
        return sorted(path.name for path in self._current if path.parent == directory)

    def put(self, node: Node, path: Path | None, *directories: Path) -> None:
        """Names a node, or renames it, or removes it; `directories` are those whose names that changes."""
        change = _Change(node, path, frozenset(directories))
        change.apply(self._current)
        self._changes.append(change)

    def sync(self, directory: Path) -> None:
        """Makes the changes in a directory durable, with those in others that they build on (a rename across two)."""
        directories = {directory}
        settled: list[_Change] = []
        waiting: list[_Change] = []
        for change in reversed(self._changes):
            is_concerned = not directories.isdisjoint(change.directories)
            (settled if is_concerned else waiting).append(change)
            directories.update(change.directories if is_concerned else ())
        for change in reversed(settled):
            change.apply(self._durable)
        self._changes = waiting[::-1]

    def sync_all(self) -> None:
        for change in self._changes:
            change.apply(self._durable)
        self._changes = []

    def contents(self) -> list[Content]:
        """Of all files."""
        return [node for node in self._current.values() if isinstance(node, Content)]

    def block_bytes(self) -> int:
        return sum(content.block_bytes() for content in self.contents())

    def after_process_crash(self) -> "Names":
        nodes = {*self._current.values(), *self._durable.values(), *(change.node for change in self._changes)}
        twins = {node: node.after_process_crash() for node in nodes}
        found = Names()
        found._current = {path: twins[node] for path, node in self._current.items()}
        found._durable = {path: twins[node] for path, node in self._durable.items()}
        found._changes = [change._replace(node=twins[change.node]) for change in self._changes]
        return found

    def after_power_cut(self, names_luck: Luck, pages_luck: Luck) -> "Names":
        names = self._survivors(names_luck)
        found = Names()
        for path in sorted(names):  # parents first, and an order that does not hang on the history
            if isinstance(found.get(path.parent), Directory):
                found._current[path] = names[path].after_power_cut(pages_luck)
        found._durable = dict(found._current)
        return found

    def _survivors(self, luck: Luck) -> dict[Path, Node]:
        kept = [luck.keeps() for _ in self._changes]
        while True:
            names = dict(self._durable)
            forced = self._replay(kept, names)
            if forced is None:
                return names
            kept[forced] = True

    def _replay(self, kept: list[bool], names: dict[Path, Node]) -> int | None:
        """None when all is well. Nothing may be lost that was not removed: so when a change puts a node where another
        still stands that had left before, the index of that other's change, which must be kept too."""
        for index, change in enumerate(self._changes):
            if kept[index]:
                occupant = names.get(change.path) if change.path is not None else None
                forced = self._undone_before(index, kept, occupant)
                if forced is not None:
                    return forced
                change.apply(names)
        return None

    def _undone_before(self, end: int, kept: list[bool], node: Node | None) -> int | None:
        changes = enumerate(self._changes[:end] if node is not None else ())
        return next((index for index, change in changes if change.node is node and not kept[index]), None)


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


# ---


class PowerCut(BaseException):
    """The machine is off. Not an Exception, so that no handler takes it for a call that failed."""


class Operation(NamedTuple):
    """One line of a disk's journal."""

    kind: str
    path: Path
    position: int = 0
    length: int = 0


class SimulatedFile:
    def __init__(self, disk: "SimulatedDisk", path: Path, content: Content, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._open_content: Content | None = content
        self._size = content.size
        self._writable = writable

    @property
    def size(self) -> int:
        return self._size

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        if not self._writable:
            raise os_error(errno.EBADF)
        with self._disk._lock:
            self._disk._write(self._path, self._content(), data, position)

    def read(self, length: int, position: int) -> bytes:
        with self._disk._lock:
            return bytes(self._content().image[position : position + length])

    def next_data(self, position: int) -> int | None:
        with self._disk._lock:
            return self._content().next_data(position)

    def view(self) -> memoryview:
        with self._disk._lock:
            return memoryview(self._content().image).toreadonly()

    def writable_view(self, length: int) -> memoryview:
        if not self._writable:
            raise os_error(errno.EACCES)
        with self._disk._lock:
            return self._content().map_writable(length)

    @contextmanager
    def window(self, begin: int, end: int) -> Iterator[memoryview]:
        yield self.view()[begin:end]

    def read_cached(self, length: int, position: int) -> bytes | None:
        data = b"" if self._disk.is_cold else self.read(length, position)
        return data if len(data) == length else None

    def sync(self) -> None:
        with self._disk._lock:
            self._disk._sync(self._path, self._content())

    def close(self) -> None:
        self._open_content = None

    def _content(self) -> Content:
        if self._open_content is None:
            raise os_error(errno.EBADF)
        return self._open_content


class SimulatedFileSystem:
    """All of a disk. While its syncs fail, the sync of every file fails."""

    def __init__(self, disk: "SimulatedDisk", path: Path) -> None:
        self._disk = disk
        self._path = path

    def holds(self, path: Path) -> bool:
        with self._disk._lock:
            return self._disk._names.get(path) is not None

    def sync(self) -> None:
        with self._disk._lock:
            self._disk._sync_all(self._path)

    def close(self) -> None:
        """It holds nothing."""


class SimulatedDisk:
    """What `ariane.store.disk.Disk` asks for. It begins empty: `/` and `.` are there, other directories are made."""

    def __init__(self, clock: Clock | None = None, *, space_left: int | None = None) -> None:
        self.space_left = space_left
        """Bytes that can still be taken, by pages; None for no limit. Set it to fill the disk, or to free some."""
        self.is_cold = False
        """Whether files report that their bytes are not in the page cache."""
        self.journal: list[Operation] = []
        self._clock = clock if clock is not None else FakeClock()
        self._names = Names()
        self._write_error: OSError | None = None
        self._sync_error: OSError | None = None
        self._crash_at: int | None = None
        self._is_off = False
        self._lock = threading.Lock()  # a flush thread syncs while the loop writes

    def create(self, path: Path, size: int, *, allocated: int) -> SimulatedFile:
        with self._lock:
            self._step(Operation("create", path, 0, size))
            self._names.find(path.parent, Directory)
            if self._names.get(path) is not None:
                raise os_error(errno.EEXIST)
            content = Content(size, min(allocated, size), self._clock.now_ms())
            self._take(content.block_bytes())
            self._names.put(content, path, path.parent)
            return SimulatedFile(self, path, content, writable=True)

    def open(self, path: Path, *, writable: bool) -> SimulatedFile:
        return SimulatedFile(self, path, self._names.find(path, Content), writable=writable)

    def names(self, directory: Path) -> list[str]:
        with self._lock:
            return self._names.below(directory)

    def size(self, path: Path) -> int | None:
        node = self._names.get(path)
        return node.size if isinstance(node, Content) else None

    def modified_ms(self, path: Path) -> int:
        return self._names.find(path, Content).modified_ms

    def remove(self, path: Path) -> None:
        with self._lock:
            self._step(Operation("remove", path))
            content = self._names.find(path, Content)
            self._take(-content.block_bytes())
            self._names.put(content, None, path.parent)

    def remove_directory(self, path: Path) -> None:
        with self._lock:
            self._step(Operation("remove_directory", path))
            directory = self._names.find(path, Directory)
            if self._names.below(path):
                raise os_error(errno.ENOTEMPTY)
            self._names.put(directory, None, path.parent, path)

    def make_directory(self, path: Path, *, synced: bool = True) -> list[Path]:
        missing = []
        while self._names.get(path) is None:
            missing.append(path)
            path = path.parent
        for new in reversed(missing):
            with self._lock:
                self._step(Operation("make_directory", new))
                self._names.find(new.parent, Directory)
                self._names.put(Directory(), new, new.parent)
            if synced:
                self.sync_directory(new.parent)
        return [new.parent for new in missing]

    def rename(self, source: Path, target: Path) -> None:
        """Of files: a store renames no directory."""
        with self._lock:
            self._step(Operation("rename", source))
            content = self._names.find(source, Content)
            self._names.find(target.parent, Directory)
            if self._names.get(target) not in (None, content):
                self._take(-self._names.find(target, Content).block_bytes())
            self._names.put(content, target, source.parent, target.parent)

    def sync_directory(self, path: Path) -> None:
        with self._lock:
            self._step(Operation("sync_directory", path), self._sync_error)
            self._names.find(path, Directory)
            self._names.sync(path)

    def file_system(self, path: Path) -> SimulatedFileSystem | None:
        return SimulatedFileSystem(self, path)

    def used_ratio(self, path: Path) -> float:
        with self._lock:
            if self._names.get(path) is None:
                raise os_error(errno.ENOENT)
            used = self._names.block_bytes()
            return 0.0 if self.space_left is None else used / max(1, used + self.space_left)

    @property
    def operations(self) -> int:
        """How many writes, syncs and changes of names were asked for."""
        return len(self.journal)

    def crash_at(self, operation: int) -> None:
        """The machine goes off before this operation, counted from 1; of a write, the first page may be done."""
        self._crash_at = operation

    def fail_writes(self, error: OSError | None) -> None:
        """Every write raises this, until set to None; of a write over several pages the first may be done."""
        self._write_error = error

    def fail_syncs(self, error: OSError | None) -> None:
        """Every sync raises this, until set to None. What it should have written stays in doubt, as on Linux."""
        self._sync_error = error

    def flip_bit(self, path: Path, position: int, bit: int) -> None:
        """Decay of what is stored: neither readers nor restarts see the old value again."""
        with self._lock:
            self._names.find(path, Content).flip(position, 1 << bit)

    def crash_process(self) -> "SimulatedDisk":
        """What a new process finds after kill -9: every write, and no more of it durable than before."""
        with self._lock:
            found = SimulatedDisk(self._clock, space_left=self.space_left)
            found._names = self._names.after_process_crash()
            return found

    def cut_power(self, rng: random.Random) -> "SimulatedDisk":
        """What the machine finds when it is on again; the same for the same history and seed."""
        with self._lock:
            found = SimulatedDisk(self._clock)
            found._names = self._names.after_power_cut(Luck(rng), Luck(rng))
            if self.space_left is not None:
                found.space_left = max(0, self.space_left + self._names.block_bytes() - found._names.block_bytes())
            return found

    def _step(self, operation: Operation, error: OSError | None = None) -> None:
        self._check_power()
        if self._crash_at is not None and self.operations + 1 >= self._crash_at:
            self._is_off = True
            raise PowerCut(f"before operation {self._crash_at}: {operation}")
        self.journal.append(operation)
        if error is not None:
            raise OSError(error.errno, error.strerror)

    def _check_power(self) -> None:
        if self._is_off:
            raise PowerCut("the machine is off: go on with a disk from cut_power or crash_process")

    def _write(self, path: Path, content: Content, data: bytes | bytearray | memoryview, position: int) -> None:
        self._check_power()
        try:
            self._step(Operation("write", path, position, len(data)), self._write_error)
            self._take(content.sparse_bytes(position, len(data)))
        except (PowerCut, OSError):
            front = PAGE_BYTES - position % PAGE_BYTES  # Linux breaks a write off between pages
            if front < len(data) and not content.sparse_bytes(position, front):
                content.write(memoryview(data)[:front], position)
            raise
        content.write(data, position)
        content.modified_ms = self._clock.now_ms()

    def _sync(self, path: Path, content: Content) -> None:
        try:
            self._step(Operation("sync", path), self._sync_error)
        except OSError:
            content.fail_to_sync()
            raise
        content.sync()

    def _sync_all(self, path: Path) -> None:
        contents = self._names.contents()
        try:
            self._step(Operation("sync_file_system", path), self._sync_error)
        except OSError:
            for content in contents:
                content.fail_to_sync()
            raise
        for content in contents:
            content.sync()
        self._names.sync_all()

    def _take(self, space: int) -> None:
        if self.space_left is None:
            return
        if space > self.space_left:
            raise os_error(errno.ENOSPC)
        self.space_left -= space
