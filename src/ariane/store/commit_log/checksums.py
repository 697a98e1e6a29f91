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
         0      8  coveredTo        the block's bytes are summed from its first one up to this physical offset
         8      4  sum              their CRC-32, all 32 bits, unsigned
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
from ariane.wire.hashes import crc32

_HEAD = struct.Struct(">8sqii")
_CRC = struct.Struct(">i")
_CHECKSUM = struct.Struct(">qI")
_MAGIC = b"ARIANE S"
_HEAD_BYTES = 32
CHECKSUM_BYTES = 16
_UNWRITTEN = bytes(CHECKSUM_BYTES)
BLOCK_BYTES_MIN = 512
"""With smaller blocks the checksums would take more than a thirtieth of the log."""


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

    def read(self, first: int = 0) -> list[BlockChecksum]:
        """The checksums of the blocks from `first` up to the last one that has one."""
        data = self._file.read((self.blocks.count - first) * CHECKSUM_BYTES, self.blocks.position_of(first)).rstrip(
            b"\0"
        )
        raws = [
            data[at : at + CHECKSUM_BYTES].ljust(CHECKSUM_BYTES, b"\0") for at in range(0, len(data), CHECKSUM_BYTES)
        ]
        return [self._unpack(raw, number) for number, raw in enumerate(raws, first)]

    def _unpack(self, raw: bytes, number: int) -> BlockChecksum:
        if raw == _UNWRITTEN:
            return NOT_KNOWN
        if raw[_CHECKSUM.size :] != _CRC.pack(crc32(raw[: _CHECKSUM.size])):
            return DAMAGED
        checksum = BlockChecksum(*_CHECKSUM.unpack_from(raw))
        return checksum if self.blocks.begin_of(number) < checksum.covered_to <= self.blocks.end_of(number) else DAMAGED

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
