"""One index file: a hash table on disk from `topic#key` to physical offsets, chained newest first.

    bytes 0 to 39: the header
         0      8  beginTimestamp    store time of the first message, ms
         8      8  endTimestamp      of the last
        16      8  beginPhysical     physical offset of the first message
        24      8  endPhysical       of the last
        32      4  slotCount         how many slots are in use
        36      4  entryCount        starts at 1: entry 0 is never used, so that 0 can mean "none"
    then `slots` times 4 bytes: the newest entry of each slot, 0 for none
    then `entries` times 20 bytes:
         0      4  keyHash           absolute value of Java's String.hashCode of `topic#key`; slot = keyHash % slots
         4      8  physicalOffset
        12      4  seconds           since beginTimestamp, 0 to 2^31 - 1
        16      4  previous          entry of the same slot, 0 for none

No key is stored: a reader has to compare the key of the message that it finds. A file is named by the local time of its
making, yyyyMMddHHmmssSSS.
"""

import struct

HEADER = struct.Struct(">qqqqii")
HEADER_BYTES = HEADER.size
SLOT_BYTES = 4
ENTRY = struct.Struct(">iqii")
ENTRY_BYTES = ENTRY.size


def file_bytes(slots: int, entries: int) -> int:
    return HEADER_BYTES + slots * SLOT_BYTES + entries * ENTRY_BYTES


def entries_position(slots: int) -> int:
    return HEADER_BYTES + slots * SLOT_BYTES
