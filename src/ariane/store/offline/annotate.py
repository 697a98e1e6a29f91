"""Annotates bytes of store files field by field: position, bytes, name, value, meaning.

Every byte is in exactly one field, in order, so the bytes of all fields joined are the annotated bytes.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ariane.store.consume_queue.entry import extension_offset
from ariane.wire.hashes import crc32

_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Field:
    position: int
    raw: bytes
    name: str
    value: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Spec:
    """One field of fixed length: `code` is its struct format, `show` formats its value."""

    name: str
    code: str
    meaning: str
    show: Callable[..., str] = str


def time_text(ms: int) -> str:
    """2026-11-15T21:26:19.389Z; empty for 0, the number itself when it is out of range."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")[:-6] + "Z" if ms else ""
    except OverflowError:
        return str(ms)


def show_time(ms: int) -> str:
    return f"{ms} = {time_text(ms)}" if ms else "0"


def annotate(raw: bytes, position: int, specs: Iterable[Spec]) -> list[Field]:
    """The fields of `raw`, which is at `position` of its file; unused bytes are one more field."""
    fields, at = [], 0
    for spec in specs:
        (value,) = struct.unpack_from(f">{spec.code}", raw, at)
        size = struct.calcsize(f">{spec.code}")
        fields.append(Field(position + at, raw[at : at + size], spec.name, spec.show(value), spec.meaning))
        at += size
    return fields + gap(raw[at:], position + at)


def gap(raw: bytes, position: int) -> list[Field]:
    """Unused bytes as one field; none for no bytes."""
    if not raw:
        return []
    value = "zeros" if not any(raw) else "not zero"
    return [Field(position, raw, "(unused)", value, f"{len(raw)} bytes that no field takes")]


def _show_tags(tags: int) -> str:
    address = extension_offset(tags)
    return str(tags) if address is None else f"{tags} = unit at {address} of consumequeue_ext"


QUEUE_ENTRY: Sequence[Spec] = (
    Spec("physicalOffset", "q", "where the record is in the commit log"),
    Spec("size", "i", "how long the record is; 0 where no entry was written"),
    Spec("tagsCode", "q", "Java's hash of the TAGS property, or when a delayed message is due", _show_tags),
)

INDEX_HEADER: Sequence[Spec] = (
    Spec("beginTimestamp", "q", "store time of the first message", show_time),
    Spec("endTimestamp", "q", "store time of the last message", show_time),
    Spec("beginPhysical", "q", "physical offset of the first message"),
    Spec("endPhysical", "q", "physical offset of the last message"),
    Spec("slotCount", "i", "how many slots are in use"),
    Spec("entryCount", "i", "number of the next entry; they begin at 1"),
)

INDEX_ENTRY: Sequence[Spec] = (
    Spec("keyHash", "i", "absolute value of Java's hash of topic#key; modulo the slots it gives the slot"),
    Spec("physicalOffset", "q", "where the record is in the commit log"),
    Spec("seconds", "i", "store time, in seconds since the file's beginTimestamp"),
    Spec("previous", "i", "the next older entry of the same slot; 0 for none"),
)

_TIMESTAMPS: Sequence[Spec] = (
    Spec("physicTimestamp", "q", "store time of the last message that is durable in the commit log", show_time),
    Spec("logicsTimestamp", "q", "... in the consume queues", show_time),
    Spec("indexTimestamp", "q", "... in index files that are full", show_time),
)
_SLOT: Sequence[Spec] = (
    Spec("magic", "8s", "Ariane's own slot; two are written in turn", repr),
    Spec("sequence", "q", "the slot with the higher one counts"),
    Spec("flushedTo", "q", "the commit log is durable up to this physical offset"),
    Spec("dispatchedTo", "q", "queues and index are durable for all records below this physical offset"),
    Spec("storeTimestamp", "q", "of the last record below dispatchedTo", show_time),
)
_MARK: Sequence[Spec] = (
    Spec("magic", "8s", "Ariane's written mark", repr),
    Spec("writtenTo", "q", "queues and index are written for all records below this physical offset"),
)
_CHECKPOINT_PARTS = ((0, "", _TIMESTAMPS), (1024, "A.", _SLOT), (2048, "B.", _SLOT), (3072, "mark.", _MARK))
_CRC_BYTES = 4


def annotate_checkpoint(data: bytes) -> list[Field]:
    """Apache's three timestamps, then the slots and the mark of Ariane that exist."""
    fields: list[Field] = []
    at = 0
    for start, prefix, specs in _CHECKPOINT_PARTS:
        size = struct.calcsize(">" + "".join(spec.code for spec in specs))
        end = start + size + (_CRC_BYTES if prefix else 0)
        if len(data) >= end and (not prefix or any(data[start:end])):
            fields += gap(data[at:start], at)
            fields += [_prefixed(prefix, field) for field in annotate(data[start : start + size], start, specs)]
            fields += [_checksum(prefix, data[start:end], start)] if prefix else []
            at = end
    return fields + gap(data[at:], at)


def _prefixed(prefix: str, field: Field) -> Field:
    return Field(field.position, field.raw, prefix + field.name, field.value, field.meaning)


def _checksum(prefix: str, part: bytes, start: int) -> Field:
    covered, raw = part[:-_CRC_BYTES], part[-_CRC_BYTES:]
    stored = int.from_bytes(raw, "big")
    verdict = "right" if stored == crc32(covered) else "wrong, so this part does not count"
    meaning = "CRC-32 of the fields above, 31 bits"
    return Field(start + len(covered), raw, f"{prefix}crc", f"{stored:#010x}, {verdict}", meaning)
