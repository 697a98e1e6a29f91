"""The files `checkpoint` and `abort`: up to where the store's files are durable, and how the last run ended.

`checkpoint` has 4096 bytes. The first three numbers are Apache's, for Apache to read. Apache ignores the rest; it holds
two slots of Ariane, written alternately, so that one of them is intact after any crash:

    offset  bytes  field
         0      8  physicTimestamp    store time of the last message that is durable in the commit log, ms
         8      8  logicsTimestamp    ... in the consume queues
        16      8  indexTimestamp     ... in index files that are full
      1024     44  slot A             2048: slot B
                8  "ARIANE 1"
                8  sequence           the slot with the higher one counts
                8  flushedTo          the commit log is durable up to this physical offset
                8  dispatchedTo       queues and index are durable for all records below this physical offset
                8  storeTimestamp     of the last record below dispatchedTo, ms
                4  CRC-32 of the above, 31 bits
      3072     20  the written mark, rewritten every second and never synced: it outlives the process, which is enough
                8  "ARIANE W"
                8  writtenTo          queues and index are written for all records below this physical offset
                4  CRC-32 of the above, 31 bits

`abort` exists while a broker runs: at start-up it means that the last run ended in a crash. Apache leaves it empty;
Ariane stores the kernel's boot id in it. The same id: only the process died, and the page cache still holds every
write. Another id, or none: the machine may have crashed, and what was not synced may be lost. After a failed sync the
id is overwritten: the page cache may show bytes that the disk does not have.
"""

import struct
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from ariane.store.disk import Disk, File, read_all, replace_all
from ariane.wire.hashes import crc32

CHECKPOINT_BYTES = 4096
_TIMESTAMPS = struct.Struct(">qqq")
_SLOT = struct.Struct(">8sqqqq")
_CRC = struct.Struct(">i")
_MAGIC = b"ARIANE 1"
_SLOT_POSITIONS = (1024, 2048)
_MARK = struct.Struct(">8sq")
_MARK_MAGIC = b"ARIANE W"
_MARK_POSITION = 3072
_SYNC_FAILED = "sync failed"
_MARKER_BYTES = 64
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    physic_timestamp_ms: int = 0
    logics_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    flushed_to: int = 0
    dispatched_to: int = 0
    written_to: int = 0
    """Valid only after a crash of the process; at least `dispatched_to`."""
    store_timestamp_ms: int = 0
    sequence: int = 0
    has_ariane_slot: bool = False
    """Whether an intact slot of Ariane was found: Apache's own checkpoints have timestamps only."""


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Decodes a checkpoint file; all zero when it is missing or too short."""
    if len(data) < _TIMESTAMPS.size:
        return Checkpoint()
    physic, logics, index = _TIMESTAMPS.unpack_from(data)
    apache = Checkpoint(physic_timestamp_ms=physic, logics_timestamp_ms=logics, index_timestamp_ms=index)
    slots = [slot for position in _SLOT_POSITIONS if (slot := _decode_slot(data, position, apache)) is not None]
    newest = max(slots, key=lambda slot: slot.sequence, default=apache)
    return replace(newest, written_to=max(newest.dispatched_to, _decode_mark(data)))


def _decode_mark(data: bytes) -> int:
    mark = data[_MARK_POSITION : _MARK_POSITION + _MARK.size]
    if len(mark) < _MARK.size or data[_MARK_POSITION + _MARK.size :][: _CRC.size] != _CRC.pack(crc32(mark)):
        return 0
    magic, written_to = _MARK.unpack(mark)
    return int(written_to) if magic == _MARK_MAGIC else 0


def _decode_slot(data: bytes, position: int, apache: Checkpoint) -> Checkpoint | None:
    slot = data[position : position + _SLOT.size]
    if len(slot) < _SLOT.size or data[position + _SLOT.size :][: _CRC.size] != _CRC.pack(crc32(slot)):
        return None
    magic, sequence, flushed_to, dispatched_to, timestamp_ms = _SLOT.unpack(slot)
    if magic != _MAGIC:
        return None
    return replace(
        apache,
        sequence=sequence,
        flushed_to=flushed_to,
        dispatched_to=dispatched_to,
        store_timestamp_ms=timestamp_ms,
        has_ariane_slot=True,
    )


def read_checkpoint(disk: Disk, path: Path) -> Checkpoint:
    return decode_checkpoint(read_all(disk, path, CHECKPOINT_BYTES) or b"")


def write_checkpoint(disk: Disk, path: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Writes and syncs it; returns it with its new sequence number. Blocks: call it in a thread."""
    following = replace(checkpoint, sequence=checkpoint.sequence + 1, has_ariane_slot=True)
    if disk.size(path) != CHECKPOINT_BYTES:
        replace_all(disk, path, bytes(CHECKPOINT_BYTES))
    file = disk.open(path, writable=True)
    try:
        file.write(_pack_slot(following), _SLOT_POSITIONS[following.sequence % 2])
        file.write(_pack_timestamps(following), 0)
        file.sync()
    finally:
        file.close()
    return following


def replace_checkpoint(disk: Disk, path: Path, checkpoint: Checkpoint) -> None:
    """Replaces the file by one that has this slot alone, and no written mark: neither says more than `checkpoint`."""
    content = bytearray(CHECKPOINT_BYTES)
    slot, position = _pack_slot(checkpoint), _SLOT_POSITIONS[checkpoint.sequence % 2]
    content[: _TIMESTAMPS.size] = _pack_timestamps(checkpoint)
    content[position : position + len(slot)] = slot
    replace_all(disk, path, bytes(content))


def _pack_slot(checkpoint: Checkpoint) -> bytes:
    slot = _SLOT.pack(
        _MAGIC, checkpoint.sequence, checkpoint.flushed_to, checkpoint.dispatched_to, checkpoint.store_timestamp_ms
    )
    return slot + _CRC.pack(crc32(slot))


def _pack_timestamps(checkpoint: Checkpoint) -> bytes:
    return _TIMESTAMPS.pack(
        checkpoint.physic_timestamp_ms, checkpoint.logics_timestamp_ms, checkpoint.index_timestamp_ms
    )


def write_mark(file: File, written_to: int) -> None:
    """Records in an open checkpoint file how far queues and index are written."""
    mark = _MARK.pack(_MARK_MAGIC, written_to)
    file.write(mark + _CRC.pack(crc32(mark)), _MARK_POSITION)


class LastExit(Enum):
    CLEAN = "clean"
    PROCESS_CRASH = "process crash"
    """The kernel still has every write."""
    MACHINE_CRASH = "machine crash"
    """What was not synced may be lost, in any order."""
    SYNC_FAILED = "failed sync"
    """The same; and what the page cache shows may not be on the disk, though no later sync reports it."""


def boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # not Linux: every crash counts as a crash of the machine
        return ""


def last_exit(disk: Disk, abort: Path, boot: str) -> LastExit:
    marker = read_all(disk, abort, 256)
    if marker is None:
        return LastExit.CLEAN
    text = marker.decode(errors="replace").strip("\0 \n")
    if text == _SYNC_FAILED:
        return LastExit.SYNC_FAILED
    return LastExit.PROCESS_CRASH if boot and text == boot else LastExit.MACHINE_CRASH


def mark_running(disk: Disk, abort: Path, boot: str) -> None:
    """With room for `mark_sync_failed`, which must not need a new block on a disk that fails."""
    marker = boot.encode().ljust(_MARKER_BYTES)
    if read_all(disk, abort, 256) != marker:
        replace_all(disk, abort, marker)


def mark_sync_failed(disk: Disk, abort: Path) -> None:
    """Overwrites the marker in place, in the page cache: it matters as long as that shows bytes which are not on the
    disk. OSError when even that is refused: then the disk must be mounted again, which clears the page cache."""
    file = disk.open(abort, writable=True)
    try:
        file.write(_SYNC_FAILED.encode().ljust(file.size)[: file.size], 0)
    finally:
        file.close()


def mark_clean(disk: Disk, abort: Path) -> None:
    if disk.size(abort) is not None:
        disk.remove(abort)
        disk.sync_directory(abort.parent)
