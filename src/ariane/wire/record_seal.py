"""A checksum over a whole record, as Apache 5 writes it with `enabledAppendPropCRC`: the last property of the record.

    ... other properties \\x02 | __CRC32# | \\x01 | ten decimal digits, the lowest first | \\x02
    |----- what it covers -----|------------------------ 20 bytes ------------------------|

The 4.x record has a checksum over its body alone: a flipped bit in a timestamp, a host or a property goes unseen. Older
readers take the seal for one more property.
"""

from ariane.wire.crc import crc32

SEAL_BYTES = 20
SEAL_NAME = b"__CRC32#\x01"
_END = b"\x02"
_ROOM = bytes(SEAL_BYTES)


def with_room(properties: bytes) -> bytes:
    """The properties with place for a seal behind them."""
    return properties + _ROOM if not properties or properties.endswith(_END) else properties + _END + _ROOM


def seal(record: bytes) -> bytes:
    """The record, packed with room for it, with its seal in place."""
    covered = record[:-SEAL_BYTES]
    return covered + SEAL_NAME + f"{crc32(covered):010d}".encode()[::-1] + _END


def is_sealed(property_text: bytes) -> bool:
    return len(property_text) >= SEAL_BYTES and property_text.startswith(SEAL_NAME, len(property_text) - SEAL_BYTES)


def seal_fault(record: memoryview, property_text: bytes) -> str | None:
    """Why a sealed record is not what was written; None when it is."""
    found = f"{crc32(record[:-SEAL_BYTES]):010d}".encode()[::-1]
    stored = property_text[len(property_text) - SEAL_BYTES + len(SEAL_NAME) : -1]
    if found == stored and property_text.endswith(_END):
        return None
    return f"a record whose checksum is {found.decode()}, not the stored {stored.decode('ascii', 'replace')}"
