"""How far the timer has come: `timer/checkpoint`, replaced as a whole.

offset  bytes  field
     0      8  magic          "ARTIMER1"
     8      8  deliveredMs    every unit for an earlier time is delivered, and what was delivered is durable
    16      8  logEnd         the units before this are durable ...
    24      8  queueOffset    ... and stand for every message of the timer topic before this
    32      8  knownBelow     while the topic is read again because the log was lost: messages before this offset
    40      8  knownMs          that were for an earlier time than this were delivered already
    48      4  crc            over all before it
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from ariane.errors import StoreCorrupt
from ariane.store.disk import Disk, read_all, replace_all
from ariane.wire.crc import crc32

_LAYOUT = struct.Struct(">8s5qI")
_MAGIC = b"ARTIMER1"
_APACHE = struct.Struct(">3q")
_APACHE_DOUBT_MS = 60_000


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    delivered_ms: int
    log_end: int
    queue_offset: int
    known_below: int = 0
    known_ms: int = 0


def read_timer_checkpoint(disk: Disk, path: Path) -> TimerCheckpoint | None:
    """None when there is none: nothing ever waited here."""
    data = read_all(disk, path, _LAYOUT.size + 1)
    if data is None:
        return None
    if len(data) == _LAYOUT.size:
        magic, *fields, crc = _LAYOUT.unpack(data)
        if magic == _MAGIC and crc == crc32(data[:-4]):
            return TimerCheckpoint(*fields)
    raise StoreCorrupt(
        f"{path} is damaged: restore it from a copy, or remove it to deliver every message of the timer topic that is "
        "still in the log once more"
    )


def read_apache_checkpoint(disk: Disk, path: Path) -> TimerCheckpoint | None:
    """What Apache 5 notes in `config/timercheck`, when it ran this store before us: up to when it delivered, and which
    messages it had taken. Its log and wheel are not read: the topic is, once more. A minute is taken off, because it
    notes what it has begun to deliver."""
    data = read_all(disk, path, _APACHE.size)
    if data is None or len(data) < _APACHE.size:
        return None
    read_ms, _, queue_offset = _APACHE.unpack(data)
    return TimerCheckpoint(read_ms, 0, 0, known_below=queue_offset, known_ms=read_ms - _APACHE_DOUBT_MS)


def write_timer_checkpoint(disk: Disk, path: Path, checkpoint: TimerCheckpoint) -> None:
    """Blocks for a sync or two."""
    numbers = (checkpoint.delivered_ms, checkpoint.log_end, checkpoint.queue_offset)
    data = _LAYOUT.pack(_MAGIC, *numbers, checkpoint.known_below, checkpoint.known_ms, 0)[:-4]
    replace_all(disk, path, data + struct.pack(">I", crc32(data)))
