"""Which files of an archive have to be read, and what of them: by topic, time and queue, from its commits alone."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ariane.arrow.filter import Selection
from ariane.errors import SettingsError, StoreError, StoreMismatch
from ariane.spark.archive.columns import FILE_SCHEMA, as_wanted, stored_for, unique_keys
from ariane.spark.archive.commits import ArchivedFile, ArchiveLayout, QueueSpan, read_commits
from ariane.spark.offsets import EARLIEST, LATEST, Position
from ariane.spark.options.read import ReadOptions
from ariane.spark.read.columns import Columns
from ariane.spark.read.output import Output, selection_of

BYTES_PER_PARTITION = 128 * 1024 * 1024
_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ArchivePiece:
    """Some row groups of one file, and of them only these queues and offsets; None: all."""

    path: str
    staged: str
    topic: str
    first_group: int
    end_group: int
    queues: tuple[QueueSpan, ...] | None
    bytes: int


def archived_files(layout: ArchiveLayout, commits: int | None = None) -> list[ArchivedFile]:
    """Of all commits, or of the first so many."""
    found = read_commits(layout)
    if not found:
        raise StoreMismatch(
            f"{layout.root} is no archive, or an empty one: correct archivePath, or run the job archive"
        )
    return [file for commit in found[:commits] for file in commit.files]


def plan_archive(layout: ArchiveLayout, options: ReadOptions) -> list[list[ArchivePiece]]:
    """For each partition what it reads."""
    files = archived_files(layout)
    _check_topics(files, options)
    pieces = [piece for file in files if _wants(file, options) for piece in _pieces(file, options)]
    size = options.bytes_per_partition or BYTES_PER_PARTITION
    if options.partitions_min is not None:
        size = min(size, max(1, sum(piece.bytes for piece in pieces) // options.partitions_min))
    return list(_packed(pieces, size))


def _check_topics(files: Iterable[ArchivedFile], options: ReadOptions) -> None:
    known = {file.topic for file in files}
    for topic in options.topics:
        if topic not in known:
            raise SettingsError(f"topic {topic} is not in the archive, which has {', '.join(sorted(known))}")


def _wants(file: ArchivedFile, options: ReadOptions) -> bool:
    from_ms, before_ms = options.time_range()
    if options.topics and file.topic not in options.topics:
        return False
    if options.topic_pattern is not None and not re.fullmatch(options.topic_pattern, file.topic):
        return False
    if from_ms is not None and (file.stored_max_us is None or file.stored_max_us < from_ms * 1000):
        return False
    return before_ms is None or (file.stored_min_us is not None and file.stored_min_us < before_ms * 1000)


def _pieces(file: ArchivedFile, options: ReadOptions) -> Iterator[ArchivePiece]:
    """A piece for each row group; they are joined again where they fit one partition."""
    queues = wanted_queues(file, options)
    if queues is not None and not queues:
        return
    for group in range(file.row_groups):
        each = max(1, file.size // file.row_groups)
        yield ArchivePiece(file.path, file.staged, file.topic, group, group + 1, queues, each)


def wanted_queues(file: ArchivedFile, options: ReadOptions) -> tuple[QueueSpan, ...] | None:
    """The queues of a file that the options choose, cut to the offsets that they choose; None when they choose all."""
    start, end = options.start_position("earliest"), options.end_position()
    assigned = None if options.queues is None else Position(None, options.assigned())
    if start.word == EARLIEST and end.word == LATEST and assigned is None:
        return None
    chosen = []
    for span in file.queues:
        first = max(span.first, _offset(start, file.topic, span, EARLIEST))
        last = min(span.end, _offset(end, file.topic, span, LATEST))
        if first < last and (assigned is None or _offset(assigned, file.topic, span, LATEST) == 0):
            chosen.append(QueueSpan(span.broker, span.queue_id, first, last))
    return tuple(chosen)


def _offset(position: Position, topic: str, span: QueueSpan, default: int) -> int:
    """The broker's name is compared only where the archive knows it."""
    told = position.word
    if told is None:
        queue_of = ((queue, offset) for queue, offset in position.numbers.items() if queue.topic == topic)
        mine = [
            offset
            for queue, offset in queue_of
            if queue.queue_id == span.queue_id and span.broker in (None, queue.broker_name)
        ]
        told = mine[0] if mine else default
    return {EARLIEST: 0, LATEST: _END}.get(told, told)


def _packed(pieces: Iterable[ArchivePiece], size: int) -> Iterator[list[ArchivePiece]]:
    """Small files share a partition: an archive that is written every hour has many."""
    open_: list[ArchivePiece] = []
    total = 0
    for piece in pieces:
        if open_ and total + piece.bytes > size:
            yield open_
            open_, total = [], 0
        open_ = _joined(open_, piece)
        total += piece.bytes
    if open_:
        yield open_


def _joined(pieces: list[ArchivePiece], piece: ArchivePiece) -> list[ArchivePiece]:
    last = pieces[-1] if pieces else None
    if last is None or (last.path, last.end_group) != (piece.path, piece.first_group):
        return [*pieces, piece]
    both = ArchivePiece(
        last.path,
        last.staged,
        last.topic,
        last.first_group,
        piece.end_group,
        last.queues,
        last.bytes + piece.bytes,
    )
    return [*pieces[:-1], both]


# --- archive_read ---
#
# The messages in a piece of an archive. Parquet's statistics leave out row groups, conditions leave out rows.

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


# --- archive_batch ---
#
# Batch reads from archives that the job `archive` made, with the options and the columns of any other read.


class ArchiveBatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    @property
    def _layout(self) -> ArchiveLayout:
        assert self._options.archive_path is not None
        return ArchiveLayout(Path(self._options.archive_path).absolute())

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(pieces) for pieces in plan_archive(self._layout, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's own, when there is nothing to read
            return
        selection = selection_of(self._options, with_times=True)
        with Output(self._options, self._columns, _place(partition.value)) as output:
            for piece in partition.value:
                for batch in read_piece(self._layout, piece, output.needed, selection):
                    yield from output.shaped(batch)


def _place(pieces: list[ArchivePiece]) -> str:
    return f"{pieces[0].path} of the archive, from row group {pieces[0].first_group} on"
