"""Listings of store files: which rows, in which columns. With `annotate`, each thing becomes a row for each field."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

from ariane.cli.render import Form, Row, render
from ariane.cli.store_rows import (
    ENTRY_COLUMNS,
    FIELD_COLUMNS,
    RECORD_COLUMNS,
    checkpoint_rows,
    entry_row,
    field_rows,
    index_entry_row,
    index_file_row,
    record_row,
    wrapped_field_rows,
)
from ariane.errors import StoreMismatch
from ariane.model.ids import topic_fault
from ariane.store.annotate import INDEX_ENTRY, INDEX_HEADER, QUEUE_ENTRY, Field, annotate, annotate_checkpoint
from ariane.store.annotate_record import annotate_blank, annotate_record
from ariane.store.checkpoint import CHECKPOINT_BYTES, decode_checkpoint
from ariane.store.disk import RealDisk, read_all
from ariane.store.index_layout import ENTRY as INDEX
from ariane.store.key_hash import key_hash
from ariane.store.layout import Layout
from ariane.store.queue_entry import ENTRY as QUEUE
from ariane.store.scan import LogItem, record_at, walk_files, walk_records
from ariane.store.scan_index import IndexScan, list_index, open_index
from ariane.store.scan_queue import QueueScan, queue_at
from ariane.store.verify import log_files
from ariane.wire.record_view import BlankRecord, RecordView

LIMIT = 20

T = TypeVar("T")


class Listing(NamedTuple):
    rows: Iterable[Row]
    columns: Sequence[str] | None = None
    """What a table shows of the rows; None for all of it."""

    def show(self, form: Form) -> None:
        render(self.rows, form, self.columns)


class Annotated(NamedTuple):
    fields: Iterable[tuple[Path, list[Field]]]

    def show(self, form: Form) -> None:
        make_rows = wrapped_field_rows if form is Form.TABLE else field_rows
        render((row for path, fields in self.fields for row in make_rows(path, fields)), form, FIELD_COLUMNS)


def commit_log_listing(layout: Layout, start: int, topic: str | None, limit: int | None) -> Listing:
    found = walk_records(RealDisk(), log_files(RealDisk(), layout), start)
    wanted = (record for record in found if topic in (None, record.view.topic))
    shown = _first(wanted, limit, place=lambda record: record.view.physical_offset)
    return Listing((record_row(record.view) for record in shown), RECORD_COLUMNS)


def annotated_commit_log(layout: Layout, start: int, topic: str | None, limit: int | None) -> Annotated:
    """Records, and the blanks between them when all topics are wanted."""
    found = walk_files(RealDisk(), log_files(RealDisk(), layout), start)
    wanted = (item for item in found if _is_wanted(item, topic))
    shown = _first(wanted, 1 if limit is None else limit, place=lambda item: item.offset)
    return Annotated((item.file.path, _item_fields(item)) for item in shown)


def _is_wanted(item: LogItem, topic: str | None) -> bool:
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
    shown = _first(scan.written(start), 1 if annotated and limit is None else limit, place=lambda numbered: numbered[0])
    if annotated:
        return Annotated(_entry_fields(scan, number, raw) for number, raw in shown)
    disk, files = RealDisk(), log_files(RealDisk(), layout)
    rows = (entry_row(number, raw, record_at(disk, files, QUEUE.unpack(raw)[0])) for number, raw in shown)
    return Listing(rows, ENTRY_COLUMNS)


def _queue(layout: Layout, topic: str, queue_id: int) -> QueueScan:
    fault = topic_fault(topic.replace("|", "_"))  # Apache allows "|" in names
    if fault is not None:
        raise StoreMismatch(fault)
    scan = queue_at(RealDisk(), layout.queue(topic, queue_id), topic, queue_id)
    if not scan.files:
        raise StoreMismatch(f"{scan.directory} has no files: there is no such queue, or nothing was ever sent to it")
    return scan


def _entry_fields(scan: QueueScan, number: int, raw: bytes) -> tuple[Path, list[Field]]:
    place = scan.find(number)
    assert place is not None, "it was read from there"
    return place[0].path, annotate(raw, place[1], QUEUE_ENTRY)


def index_listing(layout: Layout, slots: int | None, *, annotated: bool) -> Listing | Annotated:
    scans = _index(layout, slots)
    if annotated:
        return Annotated((scan.path, annotate(scan.header_bytes(), 0, INDEX_HEADER)) for scan in scans)
    return Listing(index_file_row(scan) for scan in scans)


def key_listing(layout: Layout, key: str, slots: int | None, *, annotated: bool) -> Listing | Annotated:
    """The entries under the hash of `topic#key`, newest first."""
    topic, separator, text = key.partition("#")
    if not separator or not text:
        raise StoreMismatch(f"{key!r} is no key of the index: TOPIC#KEY expected, for example orders#order-1001")
    wanted = key_hash(topic, text)
    hits = [
        (scan, number, raw)
        for scan in reversed(_index(layout, slots))
        for number, raw in scan.chain(wanted)
        if INDEX.unpack(raw)[0] == wanted
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
            f"{layout.checkpoint} is not there: this is no store, or no broker has stopped cleanly on it"
        )
    if annotated:
        return Annotated([(layout.checkpoint, annotate_checkpoint(data))])
    return Listing(checkpoint_rows(decode_checkpoint(data)))


def _first(found: Iterator[T], limit: int | None, place: Callable[[T], int]) -> Iterator[T]:
    """As many as were asked for, 0 being all; without a limit some, and a word on stderr when there are more."""
    yield from found if limit == 0 else islice(found, LIMIT if limit is None else limit)
    following = next(found, None) if limit is None else None
    if following is not None:
        click.echo(f"there is more: --from {place(following)} goes on, --limit 0 shows all", err=True)
