"""One pending message in the timer's log. Units of one slot of time are linked, the newest first.

    offset  bytes  field
         0      8  previous         position of the unit before it in its slot, -1 when it is the first
         8      8  wakeMs           when to look at the message: due, or to be moved on before retention reaches it
        16      8  physicalOffset   of its record in the commit log
        24      4  size             of its record
        28      4  check            over the seven words before it

The check is a sum of words times odd numbers: each single word that changes shows, and numpy computes a million of
them in a few milliseconds, which is what a start after a crash waits for.
"""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ariane.errors import StoreCorrupt

_UNIT = struct.Struct(">qqqiI")
_WORDS = struct.Struct(">7I")
UNIT_BYTES = _UNIT.size
NO_UNIT = -1

_FACTORS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0xD6E8FEB9, 0xA0761D65)
_SEED = 0x5F356495  # zeros are no unit
_FACTOR_ROW = np.array(_FACTORS, dtype=np.uint32)
_MASK = 0xFFFFFFFF

UNITS = np.dtype([("previous", ">i8"), ("wake_ms", ">i8"), ("physical", ">i8"), ("size", ">i4"), ("check", ">u4")])


class TimerUnit(NamedTuple):
    previous: int
    wake_ms: int
    physical_offset: int
    size: int


def pack_unit(unit: TimerUnit) -> bytes:
    fields = _UNIT.pack(*unit, 0)[:-4]
    return fields + _check(fields).to_bytes(4, "big")


def unpack_unit(data: bytes, position: int) -> TimerUnit:
    """The unit that was read at `position`; StoreCorrupt when it is none, or its link does not lead back."""
    if len(data) == UNIT_BYTES:
        previous, wake_ms, physical, size, check = _UNIT.unpack(data)
        if check == _check(data[:-4]) and NO_UNIT <= previous < position:
            return TimerUnit(previous, wake_ms, physical, size)
    raise StoreCorrupt(f"the timer's log is damaged at {position}")


def unpack_units(data: bytes) -> npt.NDArray[np.void]:
    """Many units, back to back; StoreCorrupt when one of them is none."""
    words = np.frombuffer(data, dtype=">u4").astype(np.uint32).reshape(-1, UNIT_BYTES // 4)
    checks = (words[:, :-1] * _FACTOR_ROW).sum(axis=1, dtype=np.uint32) + np.uint32(_SEED)
    if not np.array_equal(checks, words[:, -1]):
        raise StoreCorrupt(f"the timer's log is damaged in unit {int(np.argmax(checks != words[:, -1]))} of a chunk")
    return np.frombuffer(data, dtype=UNITS)


def _check(fields: bytes) -> int:
    words: tuple[int, ...] = _WORDS.unpack(fields)
    return (sum(word * factor for word, factor in zip(words, _FACTORS, strict=True)) + _SEED) & _MASK
