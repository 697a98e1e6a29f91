"""The first half of a rebuild: one stretch of the log to queue entries and index rows, in scratch files.

A stretch may begin anywhere. It reports where its first record was and where its last one ended, and the driver
believes it only if the stretch before ended just there: so a body that looks like records misleads nobody.

    NUMBER.queues    entries as they will stand in the queues, those of one queue together
    NUMBER.numbers   their queue offsets, 8 bytes each: only needed for queues that are not in order
    NUMBER.index     rows of ROW_TYPE, in the order of the log
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ariane.arrow.bad_records import next_record
from ariane.arrow.checksums import checksum_faults
from ariane.arrow.log_files import map_file
from ariane.arrow.property_columns import PropertyColumns
from ariane.arrow.rows import Rows
from ariane.arrow.source import Int64s, Source, data_of
from ariane.arrow.walk import Walk
from ariane.spark.jobs.rebuild_keys import ROW_TYPE, IndexRows, index_rows
from ariane.spark.jobs.rebuild_tags import tags_codes
from ariane.store.disk import RealDisk
from ariane.store.scan_queue import ENTRY_TYPE, Entries
from ariane.wire.sys_flag import SysFlag

log = logging.getLogger(__name__)

_PREPARED = int(SysFlag.TRANSACTION_PREPARED)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Of one file of the log, from `begin` on and before `end`; both are positions in the file."""

    number: int
    path: str
    base: int
    begin: int
    end: int
    is_aligned: bool
    """Whether a record is known to begin at `begin`."""


@dataclass(frozen=True, slots=True)
class ScanSettings:
    scratch: str
    with_index: bool
    delay_levels_ms: tuple[int, ...]


class Found(NamedTuple):
    """What one piece of a stretch gave."""

    topics: list[str]
    codes: Int64s
    queue_ids: Int64s
    numbers: Int64s
    entries: Entries
    keyed: IndexRows


def scan_stretch(settings: ScanSettings, stretch: Stretch) -> dict[str, object]:
    walk = _walk(stretch)
    first = stretch.begin
    if not stretch.is_aligned:
        first = next_record(walk.source, first, walk.limit, walk.base)
    stop, records, bad, found = first, 0, 0, list[Found]()
    for piece in walk.stretches(first, stretch.end):
        stop = piece.end
        bad += sum(one.size for one in piece.bad)
        rows = _sound(piece.rows)
        records += len(rows)
        if len(rows):
            found.append(_found(rows, settings))
    table = _save(settings, stretch.number, found)
    return {"first": first, "stop": stop, "records": records, "bad_bytes": bad, **table}


def _walk(stretch: Stretch) -> Walk:
    source = Source(map_file(RealDisk(), Path(stretch.path)))
    return Walk(source, len(source), stretch.base)


def _sound(rows: Rows) -> Rows:
    """Without the records whose checksum is wrong: recovery passes over them, too."""
    faults = [number for number, _ in checksum_faults(rows)] if len(rows) else []
    return rows.take(np.setdiff1d(np.arange(len(rows)), faults)) if faults else rows


def _found(rows: Rows, settings: ScanSettings) -> Found:
    topics, codes = _topics(rows)
    readable = _readable(rows)
    text = _Text.of(rows, PropertyColumns(rows), codes, readable)
    tags = np.zeros(len(rows), np.int64)
    tags[readable] = tags_codes(text.rows, text.properties, topics, text.codes, settings.delay_levels_ms)
    index = _index(text, topics) if settings.with_index else np.empty(0, ROW_TYPE)
    queued = np.flatnonzero(rows.sys_flag & _PREPARED == 0)
    entries = np.empty(len(queued), ENTRY_TYPE)
    entries["offset"] = rows.physical[queued]
    entries["size"] = rows.field("size", np.int32)[queued]
    entries["tags"] = tags[queued]
    queue_ids, numbers = rows.field("queueId", np.int64), rows.field("queueOffset", np.int64)
    return Found(topics, codes[queued], queue_ids[queued], numbers[queued], entries, index)


class _Text(NamedTuple):
    """Rows whose properties can be read, with what was read of them."""

    rows: Rows
    properties: PropertyColumns
    codes: Int64s

    @classmethod
    def of(cls, rows: Rows, properties: PropertyColumns, codes: Int64s, kept: Int64s) -> "_Text":
        if len(kept) == len(rows):
            return cls(rows, properties, codes)
        some = rows.take(kept)
        return cls(some, PropertyColumns(some), codes[kept])


def _index(text: _Text, topics: list[str]) -> IndexRows:
    """Rolled back messages are in no index."""
    kept = np.flatnonzero(text.rows.sys_flag & _ROLLBACK != _ROLLBACK)
    some = _Text.of(*text, kept)
    return index_rows(some.rows, some.properties, topics, some.codes) if len(kept) else np.empty(0, ROW_TYPE)


def _topics(rows: Rows) -> tuple[list[str], Int64s]:
    if rows.one_topic is not None:
        return [rows.one_topic.decode()], np.zeros(len(rows), np.int64)
    coded = rows.topics.dictionary_encode()
    return [topic.decode() for topic in coded.dictionary.to_pylist()], coded.indices.to_numpy().astype(np.int64)


def _readable(rows: Rows) -> Int64s:
    """Numbers of the rows whose properties are text; the others have no tags and no keys, as at the broker."""
    texts = rows.source.spans(rows.text_position, rows.text_length, pa.binary())
    data = data_of(texts)
    if not len(data) or data.max() < 0x80:
        return np.arange(len(rows))
    is_text = np.fromiter((_is_utf8(text.as_py()) for text in texts), np.bool_, len(rows))
    for number in np.flatnonzero(~is_text).tolist():
        log.warning("record without tags and keys", extra={"offset": int(rows.physical[number])})
    return np.flatnonzero(is_text)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- scratch files ---------------------------------------------------------------------------------------------------


def _save(settings: ScanSettings, number: int, found: list[Found]) -> dict[str, object]:
    """Entries of one queue brought together. The table says: topic, queue, place, count, first number, in order."""
    names = sorted({topic for piece in found for topic in piece.topics})
    code_of = {name: code for code, name in enumerate(names)}
    if not found:
        return {"queues": [], "index_rows": 0}
    codes = np.concatenate([np.array([code_of[t] for t in one.topics], np.int64)[one.codes] for one in found])
    queue_ids, numbers = (np.concatenate(part) for part in zip(*(one[2:4] for one in found), strict=True))
    entries = np.concatenate([one.entries for one in found], dtype=ENTRY_TYPE)  # else the bytes would be turned around
    index = np.concatenate([one.keyed for one in found])
    keys = codes << 32 | (queue_ids & 0xFFFFFFFF)
    order = np.argsort(keys, kind="stable")
    keys, numbers, entries = keys[order], numbers[order], entries[order]
    scratch = Path(settings.scratch)
    entries.tofile(scratch / f"{number}.queues")
    numbers.tofile(scratch / f"{number}.numbers")
    index.tofile(scratch / f"{number}.index")
    return {"queues": list(_table(names, keys, numbers)), "index_rows": len(index)}


def _table(names: list[str], keys: Int64s, numbers: Int64s) -> Iterator[tuple[str, int, int, int, int, bool]]:
    if not len(keys):
        return
    starts = np.append(np.flatnonzero(np.append(True, keys[1:] != keys[:-1])), len(keys)).tolist()
    for begin, end in pairwise(starts):
        key, mine = int(keys[begin]), numbers[begin:end]
        queue_id = (key & 0xFFFFFFFF) - (1 << 32 if key & 0x80000000 else 0)
        in_order = bool((np.diff(mine) == 1).all())
        yield names[key >> 32], queue_id, begin, end - begin, int(mine[0]), in_order
