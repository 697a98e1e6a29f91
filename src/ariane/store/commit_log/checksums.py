"""Block checksums of one commit log file, in a small file of the same name in the directory `commitlog_sums`.

A RocketMQ record has a checksum of its body only. Block checksums cover every byte of the log and change none of it:

    offset  bytes  field
         0      8  "ARIANE S"
         8      8  base             physical offset of the log file's first byte
        16      4  fileBytes        of the log file
        20      4  blockBytes       of a block; the last one of the file may be shorter
        24      4  CRC-32 of the above, 31 bits
        28      4  zeros
    then 16 bytes for each block of the log file, all zero while nothing is known of it:
         0      8  coveredTo        the checksum covers the block from its first byte up to this physical offset
         8      4  checksum         their CRC-32, all 32 bits, unsigned
        12      4  CRC-32 of the above, 31 bits

A checksum stores how far it reaches, so appending to its block does not invalidate it. It stores where it belongs and
has a CRC itself, so damage to this file is not taken for damage to the log. And it never crosses a sector, so a crash
leaves either the old or the new one.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ariane.store.disk import Disk, File
from ariane.wire.hashes import POSITIVE_INT32, crc32, running_crc32, unmasked_crc32_of_each

_HEAD = struct.Struct(">8sqii")
_CRC = struct.Struct(">i")
_CHECKSUM = struct.Struct(">qI")
_ENTRY = struct.Struct(">qIi")
_MAGIC = b"ARIANE S"
_HEAD_BYTES = 32
CHECKSUM_BYTES = 16
_UNWRITTEN = bytes(CHECKSUM_BYTES)
BLOCK_BYTES_MIN = 512
"""With smaller blocks the checksums would take more than a thirtieth of the log."""
_PIECE_BYTES = 4096
_READ_AT_ONCE = 4096


def checksum_of(data: bytes | memoryview, before: int = 0) -> int:
    """The checksum of a block, or of the part of it that follows the bytes with the checksum `before`.

    In pieces: for 5 KiB or more the function releases the GIL. A thread would then wait for it again after each block,
    up to 5 ms while the event loop is busy, for a microsecond of work.
    """
    if len(data) <= _PIECE_BYTES:
        return running_crc32(data, before)
    with memoryview(data) as view:
        for at in range(0, len(view), _PIECE_BYTES):
            before = running_crc32(view[at : at + _PIECE_BYTES], before)
    return before


class BlockChecksum(NamedTuple):
    covered_to: int
    crc: int


NOT_KNOWN = BlockChecksum(0, 0)
DAMAGED = BlockChecksum(-1, 0)
"""These bytes were never written: the checksum file itself is damaged."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The division of one log file into blocks. Offsets are physical."""

    base: int
    file_bytes: int
    block_bytes: int

    @property
    def count(self) -> int:
        return -(-self.file_bytes // self.block_bytes)

    @property
    def end(self) -> int:
        return self.base + self.file_bytes

    def number_at(self, offset: int) -> int:
        return (offset - self.base) // self.block_bytes

    def begin_of(self, number: int) -> int:
        return self.base + number * self.block_bytes

    def end_of(self, number: int) -> int:
        return min(self.begin_of(number + 1), self.end)

    def whole_below(self, offset: int) -> int:
        """The end of the last block that ends at or before `offset`."""
        return self.end if offset >= self.end else self.begin_of(self.number_at(offset))

    def position_of(self, number: int) -> int:
        """Position of the block's checksum in the checksum file."""
        return _HEAD_BYTES + number * CHECKSUM_BYTES

    @property
    def checksum_file_bytes(self) -> int:
        """Size of the whole checksum file."""
        return self.position_of(self.count)

    def pack(self) -> bytes:
        head = _HEAD.pack(_MAGIC, self.base, self.file_bytes, self.block_bytes)
        return (head + _CRC.pack(crc32(head))).ljust(_HEAD_BYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes) -> "Blocks | None":
        """None when these 32 bytes are not a valid header."""
        if len(data) != _HEAD_BYTES:
            return None
        _, base, file_bytes, block_bytes = _HEAD.unpack_from(data)
        blocks = cls(base, file_bytes, block_bytes)
        return blocks if block_bytes >= BLOCK_BYTES_MIN and data == blocks.pack() else None


class ChecksumFile:
    """An open checksum file, from `create_checksums` or `open_checksums`. Blocks are addressed by number."""

    def __init__(self, path: Path, file: File, blocks: Blocks) -> None:
        self.path = path
        self.blocks = blocks
        self._file = file

    def read(self, first: int = 0, count: int | None = None) -> list[BlockChecksum]:
        """The checksums of `count` blocks from `first` on, or of all; not those after the last one that has one."""
        count = self.blocks.count - first if count is None else min(count, self.blocks.count - first)
        data = self._file.read(count * CHECKSUM_BYTES, self.blocks.position_of(first)).rstrip(b"\0")
        data = data.ljust(-(-len(data) // CHECKSUM_BYTES) * CHECKSUM_BYTES, b"\0")
        pieces = [data[at : at + _CHECKSUM.size] for at in range(0, len(data), CHECKSUM_BYTES)]
        rows = zip(_ENTRY.iter_unpack(data), unmasked_crc32_of_each(pieces), strict=True)
        return [
            self._checksum(first + number, covered_to, crc, own_crc, actual & POSITIVE_INT32)
            for number, ((covered_to, crc, own_crc), actual) in enumerate(rows)
        ]

    def _checksum(self, number: int, covered_to: int, crc: int, own_crc: int, actual: int) -> BlockChecksum:
        if not (covered_to or crc or own_crc):
            return NOT_KNOWN
        blocks = self.blocks
        begin = blocks.base + number * blocks.block_bytes
        is_valid = own_crc == actual and begin < covered_to <= min(begin + blocks.block_bytes, blocks.end)
        return BlockChecksum(covered_to, crc) if is_valid else DAMAGED

    def last_known(self) -> tuple[int, BlockChecksum] | None:
        """The last block with a valid checksum, and this; None when there is none."""
        for first in reversed(range(0, self.blocks.count, _READ_AT_ONCE)):
            for number, checksum in reversed(list(enumerate(self.read(first, _READ_AT_ONCE), first))):
                if checksum not in (NOT_KNOWN, DAMAGED):
                    return number, checksum
        return None

    def write(self, first: int, checksums: Iterable[BlockChecksum]) -> None:
        """Writes the checksums of consecutive blocks by one write."""
        self._file.write(b"".join(map(_pack, checksums)), self.blocks.position_of(first))

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _pack(checksum: BlockChecksum) -> bytes:
    if checksum == NOT_KNOWN:
        return _UNWRITTEN
    raw = _CHECKSUM.pack(*checksum)
    return raw + _CRC.pack(crc32(raw))


def create_checksums(disk: Disk, path: Path, blocks: Blocks) -> ChecksumFile:
    file = disk.create(path, blocks.checksum_file_bytes, allocated=0)
    try:
        file.write(blocks.pack(), 0)
    except OSError:
        file.close()
        disk.remove(path)
        raise
    return ChecksumFile(path, file, blocks)


def open_checksums(
    disk: Disk, path: Path, base: int, file_bytes: int, *, writable: bool = False
) -> ChecksumFile | None:
    """None when the file is missing, its header is damaged, or it belongs to another log file."""
    size = disk.size(path)
    if size is None:
        return None
    file = disk.open(path, writable=writable)
    blocks = Blocks.unpack(file.read(_HEAD_BYTES, 0))
    if blocks is None or (blocks.base, blocks.file_bytes) != (base, file_bytes) or size != blocks.checksum_file_bytes:
        file.close()
        return None
    return ChecksumFile(path, file, blocks)
