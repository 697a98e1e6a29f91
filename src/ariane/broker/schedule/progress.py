"""How far delayed delivery has come, in a small file that outlives the process: a kill repeats one batch at most.

Progress is saved durably every second (the timer's checkpoint) or every ten (`delayOffset.json`), after a sync of what
was delivered. A process that is killed would repeat all that it delivered since then, and one that is killed again and
again would never come further. So after each batch the progress is also written here, in place and without a sync: the
page cache outlives the process. Where messages have to be confirmed, it is written when the batch is. After a crash of
the machine this file is not read, because the messages that it counts as delivered may be lost.

Two slots are written alternately, so that one of them is whole after any crash:

    offset  bytes  field
         0      8  magic       "ARPROGR1"
         8      8  sequence    the slot with the higher one counts
        16     40  boot        id of the machine's boot in which it was written, filled with zeros
        56      4  count       of the numbers that follow; 0 after a clean stop, when the durable copy says all
        60    8 n  numbers     signed
     60+8n      4  crc         over all before it

All blocks are allocated when the file is made: a full disk does not stop it.
"""

import logging
import struct
from collections.abc import Sequence
from pathlib import Path

from ariane.store.disk import Disk, File, read_all
from ariane.store.maintenance.recovery import StoreComponents
from ariane.wire.hashes import crc32

log = logging.getLogger(__name__)

_HEAD = struct.Struct(">8sq40sI")
_CRC = struct.Struct(">I")
_MAGIC = b"ARPROGR1"
_SLOT_BYTES = 4096
_FILE_BYTES = 2 * _SLOT_BYTES
COUNT_MAX = (_SLOT_BYTES - _HEAD.size - _CRC.size) // 8


class ProgressFile:
    """Use on the event loop only; each write is one system call."""

    def __init__(self, disk: Disk, path: Path, boot: str, *, has_page_cache: bool = True) -> None:
        """`has_page_cache`: whether every write of the last run can be read, synced or not."""
        self._disk = disk
        self._path = path
        self._boot = boot.encode()[:40]
        self._has_page_cache = has_page_cache
        self._file: File | None = None
        self._sequence = 0
        self._written: tuple[int, ...] | None = None
        self._is_failing = False
        self._is_closed = False

    @classmethod
    def of(cls, parts: StoreComponents, path: Path) -> "ProgressFile":
        return cls(parts.disk, path, parts.boot, has_page_cache=parts.has_page_cache_of_last_run)

    def read(self) -> tuple[int, ...] | None:
        """The numbers that were last written in this boot of the machine; None if there are none."""
        data = read_all(self._disk, self._path, _FILE_BYTES) or b""
        for position in damaged_slots(data):
            log.error(
                "progress of delayed messages is damaged: some of them may be delivered again",
                extra={"file": str(self._path), "position": position},
            )
        slots = [slot for begin in (0, _SLOT_BYTES) if (slot := _decode(data[begin : begin + _SLOT_BYTES])) is not None]
        if not slots:
            return None
        self._sequence, boot, numbers = max(slots)
        is_valid = self._has_page_cache and self._boot and boot == self._boot
        return numbers if numbers and is_valid else None

    def write(self, numbers: Sequence[int]) -> None:
        """A failure is logged: then a kill repeats more. Does nothing when it is closed: a confirmation may be late."""
        if self._is_closed or not self._boot or len(numbers) > COUNT_MAX or tuple(numbers) == self._written:
            return
        try:
            file = self._file or self._open()
            sequence = self._sequence + 1
            file.write(_encode(sequence, self._boot, numbers), sequence % 2 * _SLOT_BYTES)
        except OSError as error:
            if not self._is_failing:
                fields = {"file": str(self._path), "reason": error.strerror}
                log.warning("progress of delayed messages not recorded: a kill would repeat more of them", extra=fields)
            self._is_failing = True
            return
        self._sequence, self._written, self._is_failing = sequence, tuple(numbers), False

    def clear(self) -> None:
        """The durable copy says all: nothing here may override it at the next start."""
        if self._disk.size(self._path) is not None:
            self.write(())

    def close(self) -> None:
        self._is_closed = True
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        self.read()  # for the sequence
        if self._disk.size(self._path) == _FILE_BYTES:
            self._file = self._disk.open(self._path, writable=True)
        else:
            if self._disk.size(self._path) is not None:  # a kill came between its making and its allocation
                self._disk.remove(self._path)
            self._file = self._disk.create(self._path, _FILE_BYTES, allocated=_FILE_BYTES)
        return self._file


def _encode(sequence: int, boot: bytes, numbers: Sequence[int]) -> bytes:
    head = _HEAD.pack(_MAGIC, sequence, boot, len(numbers))
    data = head + struct.pack(f">{len(numbers)}q", *numbers)
    return data + _CRC.pack(crc32(data))


def _decode(slot: bytes) -> tuple[int, bytes, tuple[int, ...]] | None:
    if len(slot) < _HEAD.size:
        return None
    magic, sequence, boot, count = _HEAD.unpack_from(slot)
    end = _HEAD.size + 8 * count
    if magic != _MAGIC or count > COUNT_MAX or end + _CRC.size > len(slot):
        return None
    if slot[end : end + _CRC.size] != _CRC.pack(crc32(slot[:end])):
        return None
    return sequence, boot.rstrip(b"\0"), struct.unpack_from(f">{count}q", slot, _HEAD.size)


def damaged_slots(data: bytes) -> list[int]:
    """Positions of slots that were written and are not intact."""
    slots = ((begin, data[begin : begin + _SLOT_BYTES]) for begin in range(0, len(data), _SLOT_BYTES))
    return [begin for begin, slot in slots if any(slot) and _decode(slot) is None]
