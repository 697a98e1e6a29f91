"""New entries of all queues, one behind the other in the order in which they came, until somebody asks for them.

    queue     entry             queue     entry
    |--4----| |--20-----------| |--4----| |--20-----------| ...

A store has thousands of queues, and the memory of their ends is more than a processor's cache holds. An entry that is
put behind the last one of its queue costs several waits for memory; one that is put behind the last one of all costs
none. Queues get theirs when one is read or written, and then all do: sorted, and what came to one queue in one piece.
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
_FEW_BYTES = 64 * _NUMBERED.size  # that are sooner dealt out one by one than sorted
_SORTED_FASTEST = 2**16  # numbers below this are sorted by radix

pack_numbered = struct.Struct(">I" + ENTRY.format.removeprefix(">")).pack
"""A queue's number, then the fields of its entry."""


_FIELDS = np.dtype([("queue", ">u4"), ("physical", ">i8"), ("size", ">i4"), ("tags", ">i8")])


def pack_all(queues: Sequence[int], physical: Int64s, sizes: Int64s, tags_codes: Int64s) -> bytes:
    """What `pack_numbered` makes of each."""
    packed = np.empty(len(queues), _FIELDS)
    packed["queue"], packed["physical"], packed["size"], packed["tags"] = queues, physical, sizes, tags_codes
    return packed.tobytes()


class Owner(Protocol):
    """A queue."""

    tail: bytearray
    """Its last entries."""


Q = TypeVar("Q", bound=Owner)


class NewEntries(Generic[Q]):
    __slots__ = ("_free", "_owners", "dirty", "distributed", "packed")

    def __init__(self) -> None:
        self.packed = bytearray()
        """What `pack_numbered` made, for the hot path to add to; it stays the same object."""
        self.dirty: set[Q] = set()
        """Queues that were given something; a queue that has written it leaves."""
        self.distributed = 0
        """How many entries queues were given since the store was opened."""
        self._owners: list[Q] = []
        self._free: list[int] = []

    @property
    def total(self) -> int:
        """Those that queues were given, and those that wait to be."""
        return self.distributed + len(self.packed) // _NUMBERED.size

    def register(self, queue: Q) -> int:
        """The number that stands before its entries."""
        if self._free:
            number = self._free.pop()
            self._owners[number] = queue
        else:
            number = len(self._owners)
            self._owners.append(queue)
        return number

    def unregister(self, number: int) -> None:
        """The queue is gone, and has nothing here."""
        self._free.append(number)

    def distribute(self) -> None:
        """Gives every queue what is its own."""
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
