"""The messages in a piece of an archive. Parquet's statistics leave out row groups, conditions leave out rows."""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_, or_
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from ariane.arrow.selection import Selection
from ariane.errors import StoreError
from ariane.spark.archive_columns import FILE_SCHEMA, as_wanted, stored_for, unique_keys
from ariane.spark.archive_commits import QueueSpan
from ariane.spark.archive_layout import ArchiveLayout
from ariane.spark.archive_plan import ArchivePiece

_BATCH_ROWS = 8192
_EPOCH_UNIT = pa.timestamp("us", tz="UTC")


def read_piece(
    layout: ArchiveLayout, piece: ArchivePiece, columns: Sequence[str], wanted: Selection
) -> Iterator[pa.RecordBatch]:
    """In the order of the file; no batch is empty. StoreError when the file is gone or is no Parquet file."""
    needed = stored_for(columns)
    more = ["keys", "properties"] if wanted.keys is not None else []
    try:
        scanner = ds.Scanner.from_fragment(
            _fragment(_where(layout, piece), piece),
            schema=FILE_SCHEMA,
            columns=list(dict.fromkeys([*needed, *more])) or ["queueOffset"],
            filter=_condition(piece.queues, wanted),
            batch_size=_BATCH_ROWS,
            use_threads=False,  # Spark has a task for each core already
        )
        for batch in scanner.to_batches():
            kept = batch if wanted.keys is None else batch.filter(_has_key(batch, wanted.keys))
            if kept.num_rows:
                yield as_wanted(kept, piece.topic, columns)
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{piece.path} of the archive {layout.root} cannot be read: {error}") from error


def _where(layout: ArchiveLayout, piece: ArchivePiece) -> Path:
    """Its place, or where it is while the job that committed it is about to move it there."""
    path, staged = layout.inside(piece.path), layout.inside(piece.staged)
    return staged if not path.exists() and staged.exists() else path


def _fragment(path: Path, piece: ArchivePiece) -> ds.ParquetFileFragment:
    groups = range(piece.first_group, piece.end_group)
    return ds.ParquetFileFormat().make_fragment(str(path), LocalFileSystem(), row_groups=list(groups))


def _condition(queues: tuple[QueueSpan, ...] | None, wanted: Selection) -> pc.Expression | None:
    parts = []
    if wanted.stored_from_ms is not None:
        parts.append(pc.field("storeTimestamp") >= _moment(wanted.stored_from_ms))
    if wanted.stored_before_ms is not None:
        parts.append(pc.field("storeTimestamp") < _moment(wanted.stored_before_ms))
    if wanted.tags is not None:
        parts.append(pc.field("tags").isin(sorted(wanted.tags)))
    if queues is not None:
        parts.append(reduce(or_, [_of_queue(span) for span in queues]))
    return reduce(and_, parts) if parts else None


def _of_queue(span: QueueSpan) -> pc.Expression:
    offset = pc.field("queueOffset")
    return (pc.field("queueId") == span.queue_id) & (offset >= span.first) & (offset < span.end)


def _moment(time_ms: int) -> pa.Scalar:
    return pa.scalar(time_ms * 1000, pa.int64()).cast(_EPOCH_UNIT)


def _has_key(batch: pa.RecordBatch, keys: frozenset[str]) -> pa.Array:
    words = pa.array(sorted(keys), pa.string())
    lists = batch.column("keys")
    found = np.zeros(batch.num_rows, np.bool_)
    matches = np.flatnonzero(pc.is_in(lists.values, words))
    rows = np.searchsorted(lists.offsets.to_numpy(), matches, side="right") - 1
    found[rows[(rows >= 0) & (rows < len(found))]] = True
    found |= np.asarray(pc.is_in(unique_keys(batch), words), np.bool_)
    return pa.array(found)
