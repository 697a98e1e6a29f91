"""The files `consumequeue_sums/state.0` and `state.1`: what a start must find in the consume queues and the index.

They are written in turn, each with a checkpoint, so one of them is intact after any crash, and after damage to the
other. Apache ignores the directory. Numbers are big endian, except for the arrays of a queue's blocks.

    bytes  field
        8  "ARIANE Q"
        8  sequence           the intact file with the higher one counts
        8  logEnd             queues and index have the records below this physical offset, and no other
        8  flushedTo          the commit log is durable up to this physical offset
        8  storeTimestamp     of the last record below logEnd, ms
        8  queueSegmentBytes  size of a queue's file
        4  indexSlots         of an index file, 0 when there is no index
        4  indexEntries
        4  number of index files
        4  number of queues
           for each index file: its name (17), its header (40; store/index/entries.py), CRC-32 of its entries (4)
           for each queue:
        1    length of the topic, and the topic
        4    queueId
        8    begin            position of the first file: entries times 20
        8    end              position after the last entry
        8    lastEnd          end of the last entry's record in the log
        4    number of blocks
       4B    their CRC-32     consume_queue/block_checksums.py
       8B    physical offset of their first entries
        4  CRC-32 of all the above

A queue that a state does not have had no entry then. Topics deleted since are in store/config/deletions.py.
"""

import errno
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

from ariane.errors import StoreCorrupt, StoreFull
from ariane.store.consume_queue.block_checksums import BlockChecksums
from ariane.store.disk import Disk, read_all, replace_all
from ariane.store.index.index import SavedIndexFile

NAMES = ("state.0", "state.1")
_MAGIC = b"ARIANE Q"
_HEAD = struct.Struct(">8sqqqqqIIII")
_INDEX_FILE = struct.Struct(">17s40sI")
_QUEUE = struct.Struct(">IqqqI")
_CRC = struct.Struct(">I")

QueueKey: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class QueueState:
    """What the files of one queue must hold."""

    checksums: BlockChecksums
    last_end: int


@dataclass(frozen=True, slots=True)
class SavedState:
    sequence: int = 0
    log_end: int = 0
    flushed_to: int = 0
    store_timestamp_ms: int = 0
    queue_segment_bytes: int = 0
    index_capacity: tuple[int, int] = (0, 0)
    """Slots and entries of an index file, zeros when there was no index."""
    queues: Mapping[QueueKey, QueueState] = field(default_factory=dict)
    index_files: Sequence[SavedIndexFile] = ()


def encode_queue(topic: str, queue_id: int, checksums: BlockChecksums, last_end: int) -> bytes:
    name = topic.encode()
    count, crcs, firsts = checksums.saved()
    numbers = _QUEUE.pack(queue_id, checksums.begin, checksums.end, last_end, count)
    return b"".join((bytes([len(name)]), name, numbers, crcs, firsts))


def encode_index_file(file: SavedIndexFile) -> bytes:
    return _INDEX_FILE.pack(file.name.encode(), file.header, file.entries_crc)


@dataclass(frozen=True, slots=True)
class StateToSave:
    """Collected on the event loop; a thread writes it."""

    log_end: int
    store_timestamp_ms: int
    queue_segment_bytes: int
    index_capacity: tuple[int, int]
    queues: Sequence[bytes]
    index_files: Sequence[bytes]

    def write(self, disk: Disk, directory: Path, sequence: int, flushed_to: int) -> None:
        """Blocks until it is durable. StoreFull without space, OSError if the disk fails; the other file stays."""
        head = _HEAD.pack(
            _MAGIC,
            sequence,
            self.log_end,
            flushed_to,
            self.store_timestamp_ms,
            self.queue_segment_bytes,
            *self.index_capacity,
            len(self.index_files),
            len(self.queues),
        )
        content = b"".join((head, *self.index_files, *self.queues))
        path = directory / NAMES[sequence % 2]
        try:
            disk.make_directory(directory)
            replace_all(disk, path, content + _CRC.pack(crc32(content)))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(f"{path} cannot be written: {error.strerror}") from error
            raise


def read_saved_state(disk: Disk, directory: Path) -> tuple[SavedState | None, list[str]]:
    """The newest intact one, and what is wrong with the files: each is there after the second checkpoint of a store."""
    found, problems = list[SavedState](), list[str]()
    for name in NAMES:
        path = directory / name
        data = read_all(disk, path, disk.size(path) or 0)
        if data is None:
            continue
        try:
            found.append(decode_state(data))
        except StoreCorrupt as error:
            problems.append(f"{path}: {error}")
    return max(found, key=lambda state: state.sequence, default=None), problems


def remove_saved_states(disk: Disk, directory: Path) -> None:
    """So that the next start compares the queues with the whole log: for tools that change them."""
    removed = [name for name in NAMES if disk.size(directory / name) is not None]
    for name in removed:
        disk.remove(directory / name)
    if removed:
        disk.sync_directory(directory)


def fit_saved_states(disk: Disk, directory: Path, log_end: int) -> None:
    """For a log that will end at `log_end`: removes states that say more, and none says that more is durable."""
    for name in NAMES:
        data = read_all(disk, directory / name, disk.size(directory / name) or 0)
        if data is None:
            continue
        try:
            state = decode_state(data)
        except StoreCorrupt:
            state = None
        if state is None or state.log_end > log_end:
            disk.remove(directory / name)
            disk.sync_directory(directory)
        elif state.flushed_to > log_end:
            magic, sequence, end, _, *rest = _HEAD.unpack_from(data)
            content = _HEAD.pack(magic, sequence, end, log_end, *rest) + data[_HEAD.size : -_CRC.size]
            replace_all(disk, directory / name, content + _CRC.pack(crc32(content)))


def decode_state(data: bytes) -> SavedState:
    """StoreCorrupt when a byte is not as it was written."""
    if len(data) < _HEAD.size + _CRC.size or _CRC.unpack(data[-_CRC.size :])[0] != crc32(data[: -_CRC.size]):
        raise StoreCorrupt("its checksum is wrong")
    magic, sequence, log_end, flushed_to, timestamp_ms, segment_bytes, *capacity, index_files, queues = (
        _HEAD.unpack_from(data)
    )
    if magic != _MAGIC:
        raise StoreCorrupt("not a file of this version")
    begin = _HEAD.size + index_files * _INDEX_FILE.size
    try:
        return SavedState(
            sequence,
            log_end,
            flushed_to,
            timestamp_ms,
            segment_bytes,
            (capacity[0], capacity[1]),
            dict(_decode_queues(data, begin, queues, segment_bytes)),
            [SavedIndexFile(name.decode(), *rest) for name, *rest in _INDEX_FILE.iter_unpack(data[_HEAD.size : begin])],
        )
    except (ValueError, IndexError, struct.error) as error:  # written so: not damage, but a fault of the writer
        raise StoreCorrupt(f"its fields do not fit each other ({error})") from error


def _decode_queues(data: bytes, at: int, count: int, segment_bytes: int) -> Iterable[tuple[QueueKey, QueueState]]:
    for _ in range(count):
        name_end = at + 1 + data[at]
        topic = data[at + 1 : name_end].decode()
        queue_id, begin, end, last_end, blocks = _QUEUE.unpack_from(data, name_end)
        crcs_at = name_end + _QUEUE.size
        firsts_at = crcs_at + 4 * blocks
        at = firsts_at + 8 * blocks
        checksums = BlockChecksums.loaded(segment_bytes, begin, end, data[crcs_at:firsts_at], data[firsts_at:at])
        yield (topic, queue_id), QueueState(checksums, last_end)


assert sys.byteorder == "little", "as the files have it"
assert (array("I").itemsize, array("q").itemsize) == (4, 8), "as the files have them"
