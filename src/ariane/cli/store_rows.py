"""What lies in store files, as rows. Fields have the names that RocketMQ's tools and our layouts give them."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from ariane.cli.render import Row
from ariane.errors import RecordError
from ariane.model.message import Property
from ariane.store import index_layout, queue_entry
from ariane.store.annotate import Field, time_text
from ariane.store.checkpoint import Checkpoint
from ariane.store.scan import FoundRecord
from ariane.store.scan_index import IndexScan
from ariane.wire.host import decode_host
from ariane.wire.message_id import offset_message_id
from ariane.wire.record_view import RecordView

RECORD_COLUMNS = (
    "physicalOffset", "storeSize", "storeTime", "topic", "queueId", "queueOffset",
    "tags", "keys", "msgId", "bodyLength",
)  # fmt: skip
ENTRY_COLUMNS = ("queueOffset", "physicalOffset", "size", "tagsCode", "storeTime", "tags", "keys", "msgId", "remark")
_BYTES_A_LINE = 16
FIELD_COLUMNS = ("position", "bytes", "name", "value", "meaning")


def record_row(view: RecordView) -> Row:
    properties = _properties(view)
    return {
        "physicalOffset": view.physical_offset,
        "storeSize": view.size,
        "storeTime": time_text(view.store_timestamp_ms),
        "topic": view.topic,
        "queueId": view.queue_id,
        "queueOffset": view.queue_offset,
        "tags": properties.get(Property.TAGS),
        "keys": properties.get(Property.KEYS),
        "msgId": properties.get(Property.UNIQUE_KEY),
        "offsetMsgId": offset_message_id(view.store_host, view.physical_offset),
        "bornTimestamp": view.born_timestamp_ms,
        "bornHost": _host(view.born_host),
        "storeTimestamp": view.store_timestamp_ms,
        "storeHost": _host(view.store_host),
        "sysFlag": view.sys_flag,
        "flag": view.flag,
        "bodyCRC": view.body_crc,
        "reconsumeTimes": view.reconsume_times,
        "preparedTransactionOffset": view.prepared_transaction_offset,
        "bodyLength": view.body_length,
        "properties": properties,
    }


def _properties(view: RecordView) -> dict[str, str]:
    try:
        return view.properties()
    except RecordError:  # shown as if there were none; `verify` tells about it
        return {}


def _host(raw: bytes) -> str:
    try:
        return str(decode_host(raw))
    except RecordError:
        return raw.hex()


def entry_row(number: int, raw: bytes, record: FoundRecord | None) -> Row:
    """One entry of a queue, with what its record says."""
    offset, size, tags_code = queue_entry.ENTRY.unpack(raw)
    properties = _properties(record.view) if record is not None else {}
    return {
        "queueOffset": number,
        "physicalOffset": offset,
        "size": size,
        "tagsCode": tags_code,
        "storeTime": time_text(record.view.store_timestamp_ms) if record is not None else None,
        "tags": properties.get(Property.TAGS),
        "keys": properties.get(Property.KEYS),
        "msgId": properties.get(Property.UNIQUE_KEY),
        "remark": _entry_remark(raw, record),
    }


def _entry_remark(raw: bytes, record: FoundRecord | None) -> str | None:
    if raw == queue_entry.FILLER:
        return "filler: the queue starts behind it"
    return None if record is not None else "no whole record there"


def index_file_row(scan: IndexScan) -> Row:
    header = scan.header
    return {
        "file": scan.path.name,
        "entries": scan.end - 1,
        "capacity": scan.capacity,
        "slotsInUse": header.slot_count,
        "slots": scan.slots,
        "beginPhysical": header.begin_physical,
        "endPhysical": header.end_physical,
        "beginTime": time_text(header.begin_timestamp_ms),
        "endTime": time_text(header.end_timestamp_ms),
    }


def index_entry_row(file: Path, number: int, raw: bytes, record: FoundRecord | None, key: str) -> Row:
    """One entry that a key leads to. The hash alone does not tell whether its message has that key."""
    key_hash, offset, seconds, previous = index_layout.ENTRY.unpack(raw)
    view = record.view if record is not None else None
    return {
        "file": file.name,
        "entry": number,
        "keyHash": key_hash,
        "physicalOffset": offset,
        "seconds": seconds,
        "previous": previous,
        "hasKey": view is not None and key in _index_keys(view),
        "topic": view.topic if view is not None else None,
        "queueId": view.queue_id if view is not None else None,
        "queueOffset": view.queue_offset if view is not None else None,
        "msgId": _properties(view).get(Property.UNIQUE_KEY) if view is not None else None,
    }


def _index_keys(view: RecordView) -> set[str]:
    properties = _properties(view)
    keys = [properties.get(Property.UNIQUE_KEY, ""), *properties.get(Property.KEYS, "").split()]
    return {f"{view.topic}#{key}" for key in keys}


def checkpoint_rows(checkpoint: Checkpoint) -> list[Row]:
    """Without the numbers of ours when only Apache has written it."""
    ours = {"flushed_to", "dispatched_to", "written_to", "store_timestamp_ms", "sequence"}
    return [
        {"name": name, "value": value, "time": time_text(value) if name.endswith("_ms") else None}
        for name, value in asdict(checkpoint).items()
        if name != "is_ours" and (checkpoint.is_ours or name not in ours)
    ]


def field_rows(file: Path, fields: Iterable[Field]) -> Iterator[Row]:
    for field in fields:
        yield {
            "file": file.name,
            "position": field.position,
            "bytes": field.raw.hex(" "),
            "name": field.name,
            "value": field.value,
            "meaning": field.meaning,
        }


def wrapped_field_rows(file: Path, fields: Iterable[Field]) -> Iterator[Row]:
    """For a table: a line with the file's name, then 16 bytes a line; only a long run of zeros is cut short."""
    yield {"name": f"file {file.name}"}
    for field in fields:
        is_gap = len(field.raw) > _BYTES_A_LINE and not any(field.raw)
        raw = field.raw[:1] if is_gap else field.raw
        named = {"name": field.name, "value": field.value, "meaning": field.meaning}
        for at in range(0, len(raw), _BYTES_A_LINE):
            shown = raw[at : at + _BYTES_A_LINE].hex(" ") + (f" ... {len(field.raw)} times" if is_gap else "")
            yield {"position": field.position + at, "bytes": shown, **(named if at == 0 else {})}
