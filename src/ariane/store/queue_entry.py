"""One entry of a consume queue: where a message is, and what a tag filter needs to know of it.

    offset  bytes  field
         0      8  physicalOffset   of the record in the commit log
         8      4  size             of the record; 0 means: no entry was written here
        12      8  tagsCode         of the TAGS property, sign-extended; the delivery time for a delayed message;
                                    or, far below zero, the address of a unit in consumequeue_ext

A queue that starts past 0 has its first file filled up with (0, 0x7FFFFFFF, 0), so that every entry stands at its
offset times 20.
"""

import struct

ENTRY = struct.Struct(">qiq")
ENTRY_BYTES = ENTRY.size
FILLER = ENTRY.pack(0, 0x7FFFFFFF, 0)

# An extension's address is its offset plus the smallest long; no 32-bit hash reaches down there.
_EXTENSION_BASE = -(2**63)
_EXTENSION_MAX = -(2**31) - 1


def extension_offset(tags_code: int) -> int | None:
    """The offset in consumequeue_ext when the third field is an address, else None."""
    return tags_code - _EXTENSION_BASE if tags_code <= _EXTENSION_MAX else None
