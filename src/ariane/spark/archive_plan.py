"""Which files of an archive have to be read, and what of them: by topic, time and queue, from its commits alone."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ariane.errors import SettingsError, StoreMismatch
from ariane.spark.archive_commits import ArchivedFile, QueueSpan, read_commits
from ariane.spark.archive_layout import ArchiveLayout
from ariane.spark.offsets import EARLIEST, LATEST, Position
from ariane.spark.read_options import ReadOptions

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
