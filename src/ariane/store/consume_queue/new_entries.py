"""Buffer of new entries of all consume queues, in order of arrival, until a queue is read or written.

    queue     entry             queue     entry
    |--4----| |--20-----------| |--4----| |--20-----------| ...

A store has thousands of queues, and their ends do not fit a CPU's cache. Appending an entry to its own queue costs
several cache misses; appending it to this common buffer costs none. When one queue is read or written, the entries of
all queues are distributed: sorted by queue, and those of one queue in one piece.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES

Int64s: TypeAlias = npt.NDArray[np.int64]

_NUMBERED = struct.Struct(f">I{ENTRY_BYTES}s")
_ROW = np.dtype([("queue", ">u4"), ("entry", f"V{ENTRY_BYTES}")])
_FEW_BYTES = 64 * _NUMBERED.size  # fewer are distributed faster one by one than sorted
_SORTED_FASTEST = 2**16  # numpy uses a radix sort for 16-bit numbers

_FIELDS_OF_ONE = struct.Struct(">I" + ENTRY.format.removeprefix(">"))

pack_numbered = _FIELDS_OF_ONE.pack
"""A queue's number, then the fields of its entry."""


def ends_of_numbered(packed: bytes | bytearray) -> list[int]:
    """Where the records of entries end in the log; from output of `pack_numbered`."""
    return [physical + size for _, physical, size, _ in _FIELDS_OF_ONE.iter_unpack(packed)]


_FIELDS = np.dtype([("queue", ">u4"), ("physical", ">i8"), ("size", ">i4"), ("tags", ">i8")])


def pack_all(queues: Sequence[int], physical: Int64s, sizes: Int64s, tags_codes: Int64s) -> bytes:
    """As `pack_numbered`, for many entries."""
    packed = np.empty(len(queues), _FIELDS)
    packed["queue"], packed["physical"], packed["size"], packed["tags"] = queues, physical, sizes, tags_codes
    return packed.tobytes()


class Owner(Protocol):
    """A queue."""

    tail: bytearray
    """Its last entries."""


Q = TypeVar("Q", bound=Owner)


class NewEntries(Generic[Q]):
    __slots__ = ("_free", "_owners", "changed", "dirty", "distributed", "packed")

    def __init__(self) -> None:
        self.packed = bytearray()
        """Output of `pack_numbered`; the append path adds to it, so it stays the same object."""
        self.dirty: set[Q] = set()
        """Queues that got entries; a queue is removed when it has written them."""
        self.changed: set[Q] = set()
        """Queues whose files changed since their state was last collected for a checkpoint."""
        self.distributed = 0
        """Number of entries distributed since the store was opened."""
        self._owners: list[Q] = []
        self._free: list[int] = []

    @property
    def total(self) -> int:
        """Entries distributed, and those that are still in the buffer."""
        return self.distributed + len(self.packed) // _NUMBERED.size

    def register(self, queue: Q) -> int:
        """The number that identifies its entries in the buffer."""
        if self._free:
            number = self._free.pop()
            self._owners[number] = queue
        else:
            number = len(self._owners)
            self._owners.append(queue)
        return number

    def unregister(self, number: int) -> None:
        """The queue was deleted and has no entries here; its number is reused."""
        self._free.append(number)

    def distribute(self) -> None:
        """Appends the buffered entries to the tails of their queues."""
        self.distributed = self.total
        packed, owners, dirty = self.packed, self._owners, self.dirty
        few = len(packed) <= _FEW_BYTES
        distributed = list(_NUMBERED.iter_unpack(packed)) if few else self._sorted(bytes(packed))
        packed.clear()
        for number, entries in distributed:
            queue = owners[number]
            queue.tail += entries
            dirty.add(queue)

    def _sorted(self, packed: bytes) -> Iterable[tuple[int, bytes]]:
        rows = np.frombuffer(packed, _ROW)
        kind = np.uint16 if len(self._owners) <= _SORTED_FASTEST else np.uint32
        numbers = rows["queue"].astype(kind)
        order = numbers.argsort(kind="stable")
        numbers, entries = numbers[order], rows["entry"][order].tobytes()
        firsts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
        begins = (firsts * ENTRY_BYTES).tolist()
        pieces = map(entries.__getitem__, map(slice, begins, [*begins[1:], len(entries)]))
        return zip(numbers[firsts].tolist(), pieces, strict=True)
