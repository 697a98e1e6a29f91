"""Batch reads from archives that the job `archive` wrote, with the options and columns of any other read.

Which files and row groups a query needs, by topic, time and queue, is planned from the commits alone. Within a file,
Parquet's statistics skip row groups, and a filter skips rows.
"""

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
from ariane.spark.archive.columns import FILE_SCHEMA, message_columns, stored_for, unique_keys
from ariane.spark.archive.commits import ArchivedFile, ArchiveLayout, QueueSpan, read_commits
from ariane.spark.offsets import EARLIEST, LATEST, Position
from ariane.spark.options.read import ReadOptions
from ariane.spark.read.columns import Columns
from ariane.spark.read.output import Output, selection_of

BYTES_PER_PARTITION = 128 * 1024 * 1024
_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """Some row groups of one file, and the queues and offsets to read of them; None for all."""

    path: str
    staged: str
    topic: str
    first_group: int
    end_group: int
    queues: tuple[QueueSpan, ...] | None
    bytes: int


def archived_files(layout: ArchiveLayout, commits: int | None = None) -> list[ArchivedFile]:
    """The files of all commits, or of the first `commits`."""
    all_commits = read_commits(layout)
    if not all_commits:
        raise StoreMismatch(
            f"{layout.root} is not an archive, or an empty one: correct archivePath, or run the job archive"
        )
    return [file for commit in all_commits[:commits] for file in commit.files]


def plan_archive(layout: ArchiveLayout, options: ReadOptions) -> list[list[ArchivePart]]:
    """For each partition what it reads."""
    files = archived_files(layout)
    _check_topics(files, options)
    parts = [part for file in files if _is_selected(file, options) for part in _parts(file, options)]
    size = options.bytes_per_partition or BYTES_PER_PARTITION
    if options.partitions_min is not None:
        size = min(size, max(1, sum(part.bytes for part in parts) // options.partitions_min))
    return list(_partitions(parts, size))


def _check_topics(files: Iterable[ArchivedFile], options: ReadOptions) -> None:
    archived = {file.topic for file in files}
    for topic in options.topics:
        if topic not in archived:
            raise SettingsError(f"topic {topic} is not in the archive, which has {', '.join(sorted(archived))}")


def _is_selected(file: ArchivedFile, options: ReadOptions) -> bool:
    from_ms, before_ms = options.time_range()
    if options.topics and file.topic not in options.topics:
        return False
    if options.topic_pattern is not None and not re.fullmatch(options.topic_pattern, file.topic):
        return False
    if from_ms is not None and (file.stored_max_us is None or file.stored_max_us < from_ms * 1000):
        return False
    return before_ms is None or (file.stored_min_us is not None and file.stored_min_us < before_ms * 1000)


def _parts(file: ArchivedFile, options: ReadOptions) -> Iterator[ArchivePart]:
    """One for each row group; they are joined again where they fit into one partition."""
    queues = selected_queues(file, options)
    if queues is not None and not queues:
        return
    for group in range(file.row_groups):
        each = max(1, file.size // file.row_groups)
        yield ArchivePart(file.path, file.staged, file.topic, group, group + 1, queues, each)


def selected_queues(file: ArchivedFile, options: ReadOptions) -> tuple[QueueSpan, ...] | None:
    """The queues of a file that the options select, with the selected offsets; None for all."""
    start, end = options.start_position("earliest"), options.end_position()
    assigned = None if options.queues is None else Position(None, options.assigned())
    if start.word == EARLIEST and end.word == LATEST and assigned is None:
        return None
    selected = []
    for span in file.queues:
        first = max(span.first, _offset(start, file.topic, span, EARLIEST))
        last = min(span.end, _offset(end, file.topic, span, LATEST))
        if first < last and (assigned is None or _offset(assigned, file.topic, span, LATEST) == 0):
            selected.append(QueueSpan(span.broker, span.queue_id, first, last))
    return tuple(selected)


def _offset(position: Position, topic: str, span: QueueSpan, default: int) -> int:
    """The broker's name is compared only where the archive knows it."""
    offset = position.word
    if offset is None:
        of_topic = ((queue, number) for queue, number in position.numbers.items() if queue.topic == topic)
        of_queue = [
            number
            for queue, number in of_topic
            if queue.queue_id == span.queue_id and span.broker in (None, queue.broker_name)
        ]
        offset = of_queue[0] if of_queue else default
    return {EARLIEST: 0, LATEST: _END}.get(offset, offset)


def _partitions(parts: Iterable[ArchivePart], size: int) -> Iterator[list[ArchivePart]]:
    """Small files share a partition: an archive that is written every hour has many."""
    partition: list[ArchivePart] = []
    total = 0
    for part in parts:
        if partition and total + part.bytes > size:
            yield partition
            partition, total = [], 0
        partition = _joined(partition, part)
        total += part.bytes
    if partition:
        yield partition


def _joined(parts: list[ArchivePart], part: ArchivePart) -> list[ArchivePart]:
    last = parts[-1] if parts else None
    if last is None or (last.path, last.end_group) != (part.path, part.first_group):
        return [*parts, part]
    both = ArchivePart(
        last.path,
        last.staged,
        last.topic,
        last.first_group,
        part.end_group,
        last.queues,
        last.bytes + part.bytes,
    )
    return [*parts[:-1], both]


# --- reading ---

_BATCH_ROWS = 8192
_EPOCH_UNIT = pa.timestamp("us", tz="UTC")


def read_part(
    layout: ArchiveLayout, part: ArchivePart, columns: Sequence[str], selection: Selection
) -> Iterator[pa.RecordBatch]:
    """In the order of the file; no batch is empty. StoreError when the file is missing or not a Parquet file."""
    needed = stored_for(columns)
    for_keys = ["keys", "properties"] if selection.keys is not None else []
    try:
        scanner = ds.Scanner.from_fragment(
            _fragment(_current_path(layout, part), part),
            schema=FILE_SCHEMA,
            columns=list(dict.fromkeys([*needed, *for_keys])) or ["queueOffset"],
            filter=_condition(part.queues, selection),
            batch_size=_BATCH_ROWS,
            use_threads=False,  # Spark has a task for each core already
        )
        for batch in scanner.to_batches():
            rows = batch if selection.keys is None else batch.filter(_has_key(batch, selection.keys))
            if rows.num_rows:
                yield message_columns(rows, part.topic, columns)
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{part.path} of the archive {layout.root} cannot be read: {error}") from error


def _current_path(layout: ArchiveLayout, part: ArchivePart) -> Path:
    """The final path, or the staged one if the job that committed the file has not moved it yet."""
    path, staged = layout.inside(part.path), layout.inside(part.staged)
    return staged if not path.exists() and staged.exists() else path


def _fragment(path: Path, part: ArchivePart) -> ds.ParquetFileFragment:
    groups = range(part.first_group, part.end_group)
    return ds.ParquetFileFormat().make_fragment(str(path), LocalFileSystem(), row_groups=list(groups))


def _condition(queues: tuple[QueueSpan, ...] | None, selection: Selection) -> pc.Expression | None:
    conditions = []
    if selection.stored_from_ms is not None:
        conditions.append(pc.field("storeTimestamp") >= _moment(selection.stored_from_ms))
    if selection.stored_before_ms is not None:
        conditions.append(pc.field("storeTimestamp") < _moment(selection.stored_before_ms))
    if selection.tags is not None:
        conditions.append(pc.field("tags").isin(sorted(selection.tags)))
    if queues is not None:
        conditions.append(reduce(or_, [_of_queue(span) for span in queues]))
    return reduce(and_, conditions) if conditions else None


def _of_queue(span: QueueSpan) -> pc.Expression:
    offset = pc.field("queueOffset")
    return (pc.field("queueId") == span.queue_id) & (offset >= span.first) & (offset < span.end)


def _moment(time_ms: int) -> pa.Scalar:
    return pa.scalar(time_ms * 1000, pa.int64()).cast(_EPOCH_UNIT)


def _has_key(batch: pa.RecordBatch, keys: frozenset[str]) -> pa.Array:
    words = pa.array(sorted(keys), pa.string())
    lists = batch.column("keys")
    has_key = np.zeros(batch.num_rows, np.bool_)
    matches = np.flatnonzero(pc.is_in(lists.values, words))
    rows = np.searchsorted(lists.offsets.to_numpy(), matches, side="right") - 1
    has_key[rows[(rows >= 0) & (rows < len(has_key))]] = True
    has_key |= np.asarray(pc.is_in(unique_keys(batch), words), np.bool_)
    return pa.array(has_key)


class ArchiveBatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    @property
    def _layout(self) -> ArchiveLayout:
        assert self._options.archive_path is not None
        return ArchiveLayout(Path(self._options.archive_path).absolute())

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(parts) for parts in plan_archive(self._layout, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # made by Spark when there is nothing to read
            return
        selection = selection_of(self._options, with_times=True)
        with Output(self._options, self._columns, _description(partition.value)) as output:
            for part in partition.value:
                for batch in read_part(self._layout, part, output.needed, selection):
                    yield from output.shaped(batch)


def _description(parts: list[ArchivePart]) -> str:
    return f"{parts[0].path} of the archive, from row group {parts[0].first_group} on"
