"""Checksums of the entries of one consume queue, block by block: damage is noticed before an entry is used.

    file  |---- block ----|---- block ----|-- block --|    4,096 entries each; the last of a file is shorter
    CRC   over the whole block                        |    over the written part of the last block

They are computed from what is written, kept in memory, and saved with each checkpoint (consume_queue/saved_state.py).
A start checks the last block of a queue, which will be continued; any other block is checked when it is first read
(consume_queue/files.py). So the start takes equally long for short and long queues.

With each block the physical offset of its first entry is kept: where the log has to be read to build the block again.
"""

from array import array
from collections.abc import Callable

from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES
from ariane.wire.hashes import unmasked_crc32 as crc32

BLOCK_BYTES = 4096 * ENTRY_BYTES

Read = Callable[[int, int], bytes]
"""Bytes of the queue's files by position and length."""


class BlockChecksums:
    """Covers the bytes from `begin`, where a file begins, to `end`. Positions are those of consume_queue/files.py."""

    __slots__ = ("_crcs", "_firsts", "_segment_bytes", "_unchecked", "_unchecked_from", "begin", "end", "unchecked_to")

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self.restart(0)

    def restart(self, begin: int) -> None:
        """Covers nothing: the next entry will be at `begin`."""
        assert begin % self._segment_bytes == 0, "a file begins there"
        self.begin = self.end = begin
        self._crcs = array("I")
        self._firsts = array("q")
        self._unchecked = bytearray()
        self._unchecked_from = 0  # number of the first block of `_unchecked`
        self.unchecked_to = 0
        """No block from this position on is unchecked."""

    @classmethod
    def loaded(cls, segment_bytes: int, begin: int, end: int, crcs: bytes, firsts: bytes) -> "BlockChecksums":
        """As they were saved: no block counts as checked. ValueError if the numbers do not fit each other."""
        found = cls(segment_bytes)
        if begin % segment_bytes or not 0 <= begin <= end or end % ENTRY_BYTES:
            raise ValueError("not the bounds of a queue")
        found.begin, found.end = begin, end
        found._crcs.frombytes(crcs)
        found._firsts.frombytes(firsts)
        count = found._count_to(end)
        if not count == len(found._crcs) == len(found._firsts):
            raise ValueError("not the blocks of a queue")
        found._unchecked = bytearray(b"\1") * count
        found._unchecked_from = found._number(begin)
        found.unchecked_to = end
        return found

    def saved(self) -> tuple[int, bytes, bytes]:
        """Number of blocks, their checksums and first physical offsets."""
        return len(self._crcs), self._crcs.tobytes(), self._firsts.tobytes()

    # --- where blocks are -------------------------------------------------------------------------------------------

    def _number(self, position: int) -> int:
        file, at = divmod(position, self._segment_bytes)
        return file * -(-self._segment_bytes // BLOCK_BYTES) + at // BLOCK_BYTES

    def _count_to(self, position: int) -> int:
        """Number of blocks that begin before `position`."""
        return self._number(position - 1) + 1 - self._number(self.begin) if position > self.begin else 0

    def block_begin(self, position: int) -> int:
        """Where the block begins that holds `position`."""
        at = position % self._segment_bytes
        return position - at % BLOCK_BYTES

    def _block_limit(self, begin: int) -> int:
        file_end = begin - begin % self._segment_bytes + self._segment_bytes
        return min(begin + BLOCK_BYTES, file_end)

    def block_end(self, begin: int) -> int:
        """The end of the covered part of the block that begins at `begin`."""
        return min(self._block_limit(begin), self.end)

    def first_physical(self, position: int) -> int:
        """Physical offset of the first entry of the block that holds `position`; 0 for a filler."""
        return self._firsts[self._number(position) - self._number(self.begin)]

    def first_needed(self, log_begin: int, last_end: int) -> int:
        """Where the first block begins with an entry of a record that is still in the log, which begins at `log_begin`.

        `last_end` is the end of the last entry's record. `end` when there is no such block.
        """
        if last_end <= log_begin:
            return self.end
        position = self.begin
        while (following := self.block_end(position)) < self.end and self.first_physical(following) <= log_begin:
            position = following
        return position

    # --- changes ----------------------------------------------------------------------------------------------------

    def add(self, position: int, data: bytes | bytearray) -> None:
        """Entries were written behind the last one."""
        assert position == self.end, "entries follow each other"
        limit = self._block_limit(self.block_begin(position))
        if position + len(data) <= limit:
            self._add_to_block(position, data)
            return
        view, done = memoryview(data), 0
        while done < len(data):
            step = self._block_limit(self.block_begin(self.end)) - self.end
            self._add_to_block(self.end, view[done : done + step])
            done += step

    def _add_to_block(self, position: int, data: bytes | bytearray | memoryview) -> None:
        if position == self.begin or self.block_begin(position) == position:
            self._crcs.append(crc32(data))
            self._firsts.append(ENTRY.unpack_from(data)[0])
        else:
            self._crcs[-1] = crc32(data, self._crcs[-1])
        self.end = position + len(data)

    def cut(self, position: int, read: Read) -> None:
        """The queue ends at `position` now. `read` is asked for the rest of the last block."""
        if position >= self.end:
            return
        if position <= self.begin:
            self.restart(self.begin)
            return
        self.end = position
        count = self._count_to(position)
        del self._crcs[count:], self._firsts[count:]
        begin = self.block_begin(position)
        if begin < position:
            self._crcs[-1] = crc32(read(begin, position - begin))
        self.unchecked_to = min(self.unchecked_to, position)

    def drop_before(self, position: int) -> None:
        """Files before `position` were removed."""
        count = min(self._number(position) - self._number(self.begin), len(self._crcs))
        if count > 0:
            del self._crcs[:count], self._firsts[:count]
            self.begin = position
            self.end = max(self.end, position)

    # --- checks -----------------------------------------------------------------------------------------------------

    def unchecked(self, position: int, length: int) -> list[int]:
        """Where the blocks of this range begin that were not checked since the start."""
        found, end = [], min(position + length, self.unchecked_to)
        position = max(position, self.begin)
        while position < end:
            begin = self.block_begin(position)
            if self._unchecked[self._number(begin) - self._unchecked_from]:
                found.append(begin)
            position = self._block_limit(begin)
        return found

    def is_sound(self, begin: int, data: bytes) -> bool:
        """Whether a block has the bytes that were written. It counts as checked then. A thread may call it."""
        if len(data) != self.block_end(begin) - begin:
            return False
        number = self._number(begin)
        at = number - self._number(self.begin)
        if at < 0:  # its file was removed meanwhile
            return True
        if crc32(data) != self._crcs[at]:
            return False
        self._unchecked[number - self._unchecked_from] = 0
        return True

    def repaired(self, begin: int, data: bytes) -> None:
        """The block was written again, as the log says."""
        number = self._number(begin)
        at = number - self._number(self.begin)
        if at >= 0:
            self._crcs[at], self._firsts[at] = crc32(data), ENTRY.unpack_from(data)[0]
            self._unchecked[number - self._unchecked_from] = 0
