"""Rows of `ariane store inspect`: records and entries, or with `--annotate` their fields.

Fields have the names of RocketMQ's tools and of docs/data_files.md.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

from ariane.cli.common.output import OutputFormat, Row, render
from ariane.errors import RecordError, StoreMismatch
from ariane.model.ids import topic_name_problem
from ariane.model.message import Property
from ariane.store.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
from ariane.store.commit_log.scan import LocatedRecord, LogItem, record_at, walk_files, walk_records
from ariane.store.consume_queue import entry
from ariane.store.consume_queue.entry import ENTRY as QUEUE
from ariane.store.consume_queue.scan import QueueScan, queue_at
from ariane.store.disk import RealDisk, read_all
from ariane.store.index import entries
from ariane.store.index.entries import ENTRY as INDEX
from ariane.store.index.entries import key_hash
from ariane.store.index.scan import IndexScan, list_index, open_index
from ariane.store.layout import Layout
from ariane.store.offline.annotate import (
    INDEX_ENTRY,
    INDEX_HEADER,
    QUEUE_ENTRY,
    Field,
    annotate,
    annotate_checkpoint,
    time_text,
)
from ariane.store.offline.annotate_record import annotate_blank, annotate_record
from ariane.store.offline.verify import log_files
from ariane.wire.host import decode_host
from ariane.wire.message_id import offset_message_id
from ariane.wire.record.read import BlankRecord, RecordView

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
    except RecordError:  # shown without properties; `verify` reports the problem
        return {}


def _host(raw: bytes) -> str:
    try:
        return str(decode_host(raw))
    except RecordError:
        return raw.hex()


def entry_row(number: int, raw: bytes, record: LocatedRecord | None) -> Row:
    """One entry of a consume queue, with fields of its record."""
    offset, size, tags_code = entry.ENTRY.unpack(raw)
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


def _entry_remark(raw: bytes, record: LocatedRecord | None) -> str | None:
    if raw == entry.FILLER:
        return "filler: the queue starts after it"
    return None if record is not None else "no complete record there"


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


def index_entry_row(file: Path, number: int, raw: bytes, record: LocatedRecord | None, key: str) -> Row:
    """One entry of the hash of a key. `hasKey`: whether its message really has that key."""
    key_hash, offset, seconds, previous = entries.ENTRY.unpack(raw)
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
    """Without Ariane's own fields if only Apache's broker has written the checkpoint."""
    ariane_fields = {"flushed_to", "dispatched_to", "written_to", "store_timestamp_ms", "sequence"}
    return [
        {"name": name, "value": value, "time": time_text(value) if name.endswith("_ms") else None}
        for name, value in asdict(checkpoint).items()
        if name != "has_ariane_slot" and (checkpoint.has_ariane_slot or name not in ariane_fields)
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
    """For a table: a line with the file's name, then 16 bytes a line; a long run of zeros is abbreviated."""
    yield {"name": f"file {file.name}"}
    for field in fields:
        is_gap = len(field.raw) > _BYTES_A_LINE and not any(field.raw)
        raw = field.raw[:1] if is_gap else field.raw
        named = {"name": field.name, "value": field.value, "meaning": field.meaning}
        for at in range(0, len(raw), _BYTES_A_LINE):
            shown = raw[at : at + _BYTES_A_LINE].hex(" ") + (f" ... {len(field.raw)} times" if is_gap else "")
            yield {"position": field.position + at, "bytes": shown, **(named if at == 0 else {})}


# --- listings ---

LIMIT = 20

T = TypeVar("T")


class Listing(NamedTuple):
    rows: Iterable[Row]
    columns: Sequence[str] | None = None
    """The columns of a table; None for all."""

    def show(self, output: OutputFormat) -> None:
        render(self.rows, output, self.columns)


class Annotated(NamedTuple):
    fields: Iterable[tuple[Path, list[Field]]]

    def show(self, output: OutputFormat) -> None:
        make_rows = wrapped_field_rows if output is OutputFormat.TABLE else field_rows
        render((row for path, fields in self.fields for row in make_rows(path, fields)), output, FIELD_COLUMNS)


def commit_log_listing(layout: Layout, start: int, topic: str | None, limit: int | None) -> Listing:
    records = walk_records(RealDisk(), log_files(RealDisk(), layout), start)
    selection = (record for record in records if topic in (None, record.view.topic))
    shown = _first(selection, limit, offset_of=lambda record: record.view.physical_offset)
    return Listing((record_row(record.view) for record in shown), RECORD_COLUMNS)


def annotated_commit_log(layout: Layout, start: int, topic: str | None, limit: int | None) -> Annotated:
    """Records; without a topic also the blanks at the ends of files."""
    items = walk_files(RealDisk(), log_files(RealDisk(), layout), start)
    selection = (item for item in items if _is_selected(item, topic))
    shown = _first(selection, 1 if limit is None else limit, offset_of=lambda item: item.offset)
    return Annotated((item.file.path, _item_fields(item)) for item in shown)


def _is_selected(item: LogItem, topic: str | None) -> bool:
    if isinstance(item.verdict, RecordView):
        return topic in (None, item.verdict.topic)
    return isinstance(item.verdict, BlankRecord) and topic is None


def _item_fields(item: LogItem) -> list[Field]:
    raw = item.buffer[item.verdict.position : item.verdict.position + item.size]
    position = item.offset - item.file.base
    if isinstance(item.verdict, RecordView):
        return annotate_record(raw, item.verdict, position)
    return annotate_blank(raw, position)


def queue_listing(
    layout: Layout, topic: str, queue_id: int, start: int, limit: int | None, *, annotated: bool
) -> Listing | Annotated:
    scan = _queue(layout, topic, queue_id)
    limit = 1 if annotated and limit is None else limit
    shown = _first(scan.written(start), limit, offset_of=lambda numbered: numbered[0])
    if annotated:
        return Annotated(_entry_fields(scan, number, raw) for number, raw in shown)
    disk, files = RealDisk(), log_files(RealDisk(), layout)
    rows = (entry_row(number, raw, record_at(disk, files, QUEUE.unpack(raw)[0])) for number, raw in shown)
    return Listing(rows, ENTRY_COLUMNS)


def _queue(layout: Layout, topic: str, queue_id: int) -> QueueScan:
    problem = topic_name_problem(topic.replace("|", "_"))  # Apache allows "|" in names
    if problem is not None:
        raise StoreMismatch(problem)
    scan = queue_at(RealDisk(), layout.queue(topic, queue_id), topic, queue_id)
    if not scan.files:
        raise StoreMismatch(f"{scan.directory} has no files: the queue does not exist, or never had a message")
    return scan


def _entry_fields(scan: QueueScan, number: int, raw: bytes) -> tuple[Path, list[Field]]:
    location = scan.find(number)
    assert location is not None, "it was read from there"
    return location[0].path, annotate(raw, location[1], QUEUE_ENTRY)


def index_listing(layout: Layout, slots: int | None, *, annotated: bool) -> Listing | Annotated:
    scans = _index(layout, slots)
    if annotated:
        return Annotated((scan.path, annotate(scan.header_bytes(), 0, INDEX_HEADER)) for scan in scans)
    return Listing(index_file_row(scan) for scan in scans)


def key_listing(layout: Layout, key: str, slots: int | None, *, annotated: bool) -> Listing | Annotated:
    """The entries under the hash of `topic#key`, newest first."""
    topic, separator, text = key.partition("#")
    if not separator or not text:
        raise StoreMismatch(f"{key!r} is not an index key: TOPIC#KEY expected, for example orders#order-1001")
    hash_of_key = key_hash(topic, text)
    hits = [
        (scan, number, raw)
        for scan in reversed(_index(layout, slots))
        for number, raw in scan.chain(hash_of_key)
        if INDEX.unpack(raw)[0] == hash_of_key
    ]
    if annotated:
        return Annotated((scan.path, annotate(raw, scan.position(number), INDEX_ENTRY)) for scan, number, raw in hits)
    disk, files = RealDisk(), log_files(RealDisk(), layout)
    return Listing(
        index_entry_row(scan.path, number, raw, record_at(disk, files, INDEX.unpack(raw)[1]), key)
        for scan, number, raw in hits
    )


def _index(layout: Layout, slots: int | None) -> list[IndexScan]:
    return [open_index(RealDisk(), path, slots) for path in list_index(RealDisk(), layout.index)]


def checkpoint_listing(layout: Layout, *, annotated: bool) -> Listing | Annotated:
    data = read_all(RealDisk(), layout.checkpoint, CHECKPOINT_BYTES)
    if data is None:
        raise StoreMismatch(
            f"{layout.checkpoint} does not exist: this is not a store, or no broker has stopped cleanly on it"
        )
    if annotated:
        return Annotated([(layout.checkpoint, annotate_checkpoint(data))])
    return Listing(checkpoint_rows(decode_checkpoint(data)))


def _first(items: Iterator[T], limit: int | None, offset_of: Callable[[T], int]) -> Iterator[T]:
    """The first `limit` items, or all if it is 0. Without a limit the first 20, and a note if there are more."""
    yield from items if limit == 0 else islice(items, LIMIT if limit is None else limit)
    following = next(items, None) if limit is None else None
    if following is not None:
        click.echo(f"there is more: continue with --from {offset_of(following)}, or show all with --limit 0", err=True)
