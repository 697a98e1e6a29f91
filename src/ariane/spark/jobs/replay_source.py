"""What a replay sends: queues of a topic as lanes, and the messages of a lane, from brokers or from an archive."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa

from ariane.errors import SettingsError, StoreCorrupt, StoreError
from ariane.model.route import MessageQueue
from ariane.spark.archive.commits import ArchivedFile, ArchiveLayout, QueueSpan, read_commits
from ariane.spark.archive.read import ArchivePiece, archived_files, read_piece, wanted_queues
from ariane.spark.cluster import Cluster, cluster_for
from ariane.spark.offsets import QueueRange
from ariane.spark.options.jobs import ReplayOptions
from ariane.spark.read.broker import read_range
from ariane.spark.read.columns import Columns
from ariane.spark.read.output import selection_of
from ariane.spark.read.planning import Planner
from ariane.store.disk import RealDisk, replace_all

# --- replay_progress ---
#
# How far a replay has come, in a directory: which messages it has, pinned by its first run, and where each lane is.
#
#     progress/replay.json     which messages go where; a run with other options is refused
#     progress/lane-3.json     the next offset of lane 3 to send, and how many messages it has sent
#
# A lane's file is replaced after brokers have acknowledged what it counts, never before: a run that is killed sends
# some messages again, and loses none.

T = TypeVar("T", bound=msgspec.Struct)


class ReplayQueue(msgspec.Struct, frozen=True, array_like=True):
    """One queue's messages from `first` on and before `end`: they are sent in their order, by one task."""

    number: int
    broker: str | None
    queue_id: int
    first: int
    end: int


class Replay(msgspec.Struct, frozen=True):
    identity: dict[str, str | None]
    lanes: list[ReplayQueue]
    commits: int | None = None
    """Of the archive, that it had when the replay began."""


class QueueProgress(msgspec.Struct, frozen=True):
    next: int
    sent: int = 0


class ReplayProgress:
    """Without a directory nothing is kept, and every run begins anew."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path).absolute()

    def begun(self, options: ReplayOptions) -> Replay | None:
        """What the first run has pinned; SettingsError when it was another replay."""
        if self._path is None:
            return None
        known = _read(self._path / "replay.json", Replay)
        if known is not None and known.identity != options.identity():
            differs = [name for name, value in options.identity().items() if known.identity.get(name) != value]
            raise SettingsError(
                f"{self._path} has the progress of another replay, with other {', '.join(differs)}: give another "
                "progressPath, or remove it"
            )
        return known

    def begin(self, replay: Replay) -> None:
        if self._path is not None:
            self._path.mkdir(parents=True, exist_ok=True)
            replace_all(RealDisk(), self._path / "replay.json", msgspec.json.encode(replay))

    def of(self, lane: ReplayQueue) -> QueueProgress:
        known = None if self._path is None else _read(self._path / f"lane-{lane.number}.json", QueueProgress)
        return known or QueueProgress(lane.first)

    def note(self, lane: ReplayQueue, reached: QueueProgress) -> None:
        """Not synced: after a power cut, too, messages are only sent again."""
        if self._path is None:
            return
        path = self._path / f"lane-{lane.number}.json"
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_bytes(msgspec.json.encode(reached))
        beside.replace(path)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"{path} is no progress of a replay ({error}): remove the directory to begin anew") from None


# ---

NEEDED = ("queueOffset", "storeTimestamp", "body", "properties")


def plan_replay(options: ReplayOptions) -> Replay:
    """The messages that are there now: a replay ends, even when its topic goes on."""
    if options.archive_path is None:
        return Replay(options.identity(), list(_broker_lanes(options)))
    layout = _layout(options)
    return Replay(options.identity(), list(_archive_lanes(options, layout)), len(read_commits(layout)))


def _broker_lanes(options: ReplayOptions) -> Iterator[ReplayQueue]:
    reading = options.reading()
    ranges = Planner(cluster_for(reading.client_settings()), reading).batch_ranges()
    for number, one in enumerate(ranges):
        yield ReplayQueue(number, one.queue.broker_name, one.queue.queue_id, one.start, one.end)


def _archive_lanes(options: ReplayOptions, layout: ArchiveLayout) -> Iterator[ReplayQueue]:
    found: dict[tuple[str, int], tuple[str | None, int, int]] = {}
    files = archived_files(layout)
    if options.topic not in {file.topic for file in files}:
        known = ", ".join(sorted({file.topic for file in files}))
        raise SettingsError(f"topic {options.topic} is not in the archive, which has {known}")
    for span in (span for file in files if file.topic == options.topic for span in _spans(file, options)):
        _, first, end = found.get((span.broker or "", span.queue_id), (None, span.first, span.end))
        found[span.broker or "", span.queue_id] = span.broker, min(first, span.first), max(end, span.end)
    for number, ((_, queue_id), (broker, first, end)) in enumerate(sorted(found.items())):
        yield ReplayQueue(number, broker, queue_id, first, end)


def _spans(file: ArchivedFile, options: ReplayOptions) -> list[QueueSpan]:
    chosen = wanted_queues(file, options.reading())
    return file.queues if chosen is None else list(chosen)


@dataclass(frozen=True, slots=True)
class QueueSource:
    """A lane, and where in the archive its messages are; small, for a task."""

    options: ReplayOptions
    lane: ReplayQueue
    pieces: tuple[ArchivePiece, ...] = ()

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        """The columns of NEEDED, in the order of the queue, from offset `start` on."""
        if self.options.archive_path is None:
            return self._from_broker(start)
        return self._from_archive(start)

    def _from_broker(self, start: int) -> Iterator[pa.RecordBatch]:
        """Over connections of its own: answers to pulls that are under way would be lost among those of the sender."""
        reading, lane = self.options.reading(), self.lane
        queue = MessageQueue(topic=self.options.topic, broker_name=lane.broker or "", queue_id=lane.queue_id)
        cluster = Cluster(reading.client_settings())
        try:
            wanted = QueueRange(queue, start, max(start, lane.end))
            yield from read_range(wanted, reading, Columns(NEEDED), with_times=True, cluster=cluster)
        finally:
            cluster.calls.close()

    def _from_archive(self, start: int) -> Iterator[pa.RecordBatch]:
        layout, selection = _layout(self.options), selection_of(self.options.reading(), with_times=True)
        lane = self.lane
        span = QueueSpan(lane.broker, lane.queue_id, max(start, lane.first), lane.end)
        for piece in self.pieces:
            mine = ArchivePiece(
                piece.path, piece.staged, piece.topic, piece.first_group, piece.end_group, (span,), piece.bytes
            )
            yield from read_piece(layout, mine, NEEDED, selection)


def queue_sources(options: ReplayOptions, replay: Replay) -> list[QueueSource]:
    if options.archive_path is None:
        return [QueueSource(options, lane) for lane in replay.lanes]
    files = [file for file in archived_files(_layout(options), replay.commits) if file.topic == options.topic]
    return [QueueSource(options, lane, tuple(_pieces(files, lane))) for lane in replay.lanes]


def _pieces(files: list[ArchivedFile], lane: ReplayQueue) -> Iterator[ArchivePiece]:
    """The files that hold messages of a lane, in the order of its offsets."""
    mine = [
        (span.first, file)
        for file in files
        for span in file.queues
        if (span.broker, span.queue_id) == (lane.broker, lane.queue_id)
    ]
    for _, file in sorted(mine, key=lambda one: one[0]):
        yield ArchivePiece(file.path, file.staged, file.topic, 0, file.row_groups, None, file.size)


def _layout(options: ReplayOptions) -> ArchiveLayout:
    assert options.archive_path is not None
    return ArchiveLayout(Path(options.archive_path).absolute())
