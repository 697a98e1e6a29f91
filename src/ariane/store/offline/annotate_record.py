"""Annotates a record of the commit log field by field. The layout is drawn in ariane.wire.record.layout."""

import struct
from collections.abc import Iterator

from ariane.errors import RecordError, WireError
from ariane.store.offline.annotate import Field, Spec, annotate, show_time
from ariane.wire.compression import decompress
from ariane.wire.hashes import crc32
from ariane.wire.host import decode_host
from ariane.wire.properties import NAME_END, PAIR_END_BYTES
from ariane.wire.record.layout import MAGIC_V1, MAGIC_V2, head_of
from ariane.wire.record.read import RecordView
from ariane.wire.sys_flag import SysFlag, compression_of, transaction_type

_TEXT_SHOWN = 60
_UNPACKED_MAX = 16 * 1024 * 1024
_MAGICS = {MAGIC_V1: "V1", MAGIC_V2: "V2"}
_PROPERTY_FORMS = ("name 0x01 value; the last 0x02 may be missing", "name 0x01 value 0x02")
_TRANSACTIONS = {4: "prepared", 8: "commit", 12: "rollback"}


def annotate_record(record: bytes, view: RecordView, position: int) -> list[Field]:
    """Every byte of a valid record, which `view` describes and which is at `position` of its file."""
    body_at = head_of(view.sys_flag).size
    topic_at = body_at + view.body_length
    fields = annotate(record[:body_at], position, _head_specs(view, record[body_at:topic_at]))
    fields += _body(record[body_at:topic_at], view, position + body_at)
    return fields + list(_texts(record[topic_at:], view, position + topic_at))


def annotate_blank(raw: bytes, position: int) -> list[Field]:
    """The blank record at the end of a commit log file."""
    specs = (
        Spec("size", "i", "bytes left in the file, this field included"),
        Spec(
            "magic", "I", "a blank record: the next record begins the next file", lambda magic: f"{magic:#010x} blank"
        ),
    )
    return annotate(raw, position, specs)


def _head_specs(view: RecordView, body: bytes) -> tuple[Spec, ...]:
    actual = crc32(body)
    crc = "right" if actual == view.body_crc else f"wrong, the body has {actual:#010x}"
    born, stored = len(view.born_host), len(view.store_host)
    return (
        Spec("totalSize", "i", "of the whole record, this field included"),
        Spec("magic", "I", "a message; V2 has a topic length of two bytes", _show_magic),
        Spec("bodyCRC", "I", "CRC-32 of the body as stored, 31 bits", lambda value: f"{value:#010x}, {crc}"),
        Spec("queueId", "i", "the queue of its topic that it belongs to"),
        Spec("flag", "i", "the producer's own, any number"),
        Spec("queueOffset", "q", "its number in that queue: entry number of the consume queue"),
        Spec("physicalOffset", "q", "where this record begins in the commit log"),
        Spec("sysFlag", "i", "compression, transaction and the length of the two hosts", show_sys_flag),
        Spec("bornTimestamp", "q", "when it was sent, by the producer's clock", show_time),
        Spec("bornHost", f"{born}s", "the producer: address and port", _show_host),
        Spec("storeTimestamp", "q", "when it was stored, by the broker's clock", show_time),
        Spec("storeHost", f"{stored}s", "the broker: with physicalOffset it makes the message id", _show_host),
        Spec("reconsumeTimes", "i", "how often a consumer has sent it back"),
        Spec("preparedTransactionOffset", "q", "of a committed message: where its half message is"),
        Spec("bodyLength", "i", "bytes of the body as stored"),
    )  # fmt: skip


def _show_magic(magic: int) -> str:
    return f"{magic:#010x} {_MAGICS[magic]}"


def _show_host(raw: bytes) -> str:
    try:
        return str(decode_host(raw))
    except RecordError as error:
        return str(error)


def show_sys_flag(flag: int) -> str:
    """The names of the bits that are set."""
    try:
        compression = compression_of(flag)
    except RecordError:
        compression = None
    names = [compression.name.lower() if compression else "", _TRANSACTIONS.get(transaction_type(flag), "")]
    singles = (
        SysFlag.MULTI_TAGS,
        SysFlag.BORN_HOST_V6,
        SysFlag.STORE_HOST_V6,
        SysFlag.NEEDS_UNWRAP,
        SysFlag.INNER_BATCH,
    )
    names += [str(single.name).lower() for single in singles if flag & single]
    return f"{flag:#x} {' '.join(filter(None, names))}".strip()


def _body(raw: bytes, view: RecordView, position: int) -> list[Field]:
    if not raw:
        return []
    try:
        plain = decompress(raw, view.sys_flag, limit=_UNPACKED_MAX)
        packed = f" = {len(plain)} bytes unpacked" if plain != raw else ""
    except WireError as error:
        plain, packed = raw, f", {error}"
    return [Field(position, raw, "body", f"{_show_text(plain)}{packed}", "the message, as the producer sent it")]


def _show_text(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    shown = text[:_TEXT_SHOWN]
    return f"{shown!r}{'...' if len(text) > len(shown) else ''}"


def _texts(raw: bytes, view: RecordView, position: int) -> Iterator[Field]:
    """Topic and properties with their lengths: everything after the body."""
    code = "b" if view.magic == MAGIC_V1 else "h"
    size = struct.calcsize(code)
    topic_end = size + len(view.topic.encode())
    yield from annotate(raw[:size], position, [Spec("topicLength", code, "bytes of the topic")])
    if view.topic:
        yield Field(position + size, raw[size:topic_end], "topic", view.topic, "its name, in UTF-8")
    length = Spec("propertiesLength", "h", "bytes of the properties")
    yield from annotate(raw[topic_end : topic_end + 2], position + topic_end, [length])
    yield from _properties(raw[topic_end + 2 :], position + topic_end + 2)


def _properties(raw: bytes, position: int) -> Iterator[Field]:
    for piece in raw.split(PAIR_END_BYTES):
        ended = piece + raw[len(piece) : len(piece) + 1]
        raw = raw[len(ended) :]
        if ended:
            name, separator, value = piece.decode("utf-8", "replace").partition(NAME_END)
            is_read = bool(name and separator and value)
            meaning = _PROPERTY_FORMS[len(ended) - len(piece)] if is_read else "no name and value: readers skip it"
            yield Field(
                position, ended, f"property {name}" if is_read else "property", value if is_read else name, meaning
            )
        position += len(ended)
