"""The source of the Spark job `replay`: the queues of a topic, their messages from brokers or from an archive, and how
far each queue has been replayed.

Progress is kept in a directory. The first run fixes which messages the replay has:

    progress/replay.json     which messages go where; a run with other options is refused
    progress/lane-3.json     of queue number 3: the next offset to send, and how many messages were sent

The file of a queue is replaced after brokers have acknowledged what it counts, never before. So a run that is killed
sends some messages again, and loses none. The names `lane-N.json` and `lanes` are part of the format.
"""

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
from ariane.spark.archive.read import ArchivePart, archived_files, read_part, selected_queues
from ariane.spark.cluster import Cluster, cluster_for
from ariane.spark.offsets import QueueRange
from ariane.spark.options.jobs import ReplayOptions
from ariane.spark.read.broker import read_range
from ariane.spark.read.columns import Columns
from ariane.spark.read.output import selection_of
from ariane.spark.read.planning import Planner
from ariane.store.disk import RealDisk, replace_all

T = TypeVar("T", bound=msgspec.Struct)


class ReplayQueue(msgspec.Struct, frozen=True, array_like=True):
    """One queue of the source, and its messages from `first` to before `end`: one task sends them in their order."""

    number: int
    broker: str | None
    queue_id: int
    first: int
    end: int


class Replay(msgspec.Struct, frozen=True):
    identity: dict[str, str | None]
    queues: list[ReplayQueue] = msgspec.field(name="lanes")
    commits: int | None = None
    """How many commits the archive had when the replay began."""


class QueueProgress(msgspec.Struct, frozen=True):
    next: int
    sent: int = 0


class ReplayProgress:
    """Without a directory nothing is kept, and every run starts from the beginning."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path).absolute()

    def begun(self, options: ReplayOptions) -> Replay | None:
        """The replay that the first run planned, or None; SettingsError when its options were others."""
        if self._path is None:
            return None
        replay = _read(self._path / "replay.json", Replay)
        if replay is not None and replay.identity != options.identity():
            differs = [name for name, value in options.identity().items() if replay.identity.get(name) != value]
            raise SettingsError(
                f"{self._path} has the progress of another replay, with other {', '.join(differs)}: give another "
                "progressPath, or remove it"
            )
        return replay

    def begin(self, replay: Replay) -> None:
        if self._path is not None:
            self._path.mkdir(parents=True, exist_ok=True)
            replace_all(RealDisk(), self._path / "replay.json", msgspec.json.encode(replay))

    def of(self, queue: ReplayQueue) -> QueueProgress:
        progress = None if self._path is None else _read(self._path / f"lane-{queue.number}.json", QueueProgress)
        return progress or QueueProgress(queue.first)

    def save(self, queue: ReplayQueue, progress: QueueProgress) -> None:
        """Not synced: after a power cut, too, messages are only sent again."""
        if self._path is None:
            return
        path = self._path / f"lane-{queue.number}.json"
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(msgspec.json.encode(progress))
        temporary.replace(path)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise StoreCorrupt(
            f"{path} is not the progress of a replay ({error}): remove the directory to start again"
        ) from None


# --- queues and their messages ---

NEEDED = ("queueOffset", "storeTimestamp", "body", "properties")


def plan_replay(options: ReplayOptions) -> Replay:
    """The messages that exist now: a replay ends even if its topic goes on."""
    if options.archive_path is None:
        return Replay(options.identity(), list(_broker_queues(options)))
    layout = _layout(options)
    return Replay(options.identity(), list(_archive_queues(options, layout)), len(read_commits(layout)))


def _broker_queues(options: ReplayOptions) -> Iterator[ReplayQueue]:
    reading = options.reading()
    ranges = Planner(cluster_for(reading.client_settings()), reading).batch_ranges()
    for number, part in enumerate(ranges):
        yield ReplayQueue(number, part.queue.broker_name, part.queue.queue_id, part.start, part.end)


def _archive_queues(options: ReplayOptions, layout: ArchiveLayout) -> Iterator[ReplayQueue]:
    queues: dict[tuple[str, int], tuple[str | None, int, int]] = {}
    files = archived_files(layout)
    if options.topic not in {file.topic for file in files}:
        topics = ", ".join(sorted({file.topic for file in files}))
        raise SettingsError(f"topic {options.topic} is not in the archive, which has {topics}")
    for span in (span for file in files if file.topic == options.topic for span in _spans(file, options)):
        _, first, end = queues.get((span.broker or "", span.queue_id), (None, span.first, span.end))
        queues[span.broker or "", span.queue_id] = span.broker, min(first, span.first), max(end, span.end)
    for number, ((_, queue_id), (broker, first, end)) in enumerate(sorted(queues.items())):
        yield ReplayQueue(number, broker, queue_id, first, end)


def _spans(file: ArchivedFile, options: ReplayOptions) -> list[QueueSpan]:
    selected = selected_queues(file, options.reading())
    return file.queues if selected is None else list(selected)


@dataclass(frozen=True, slots=True)
class QueueSource:
    """A queue, and which parts of the archive have its messages; small, because it is sent to a task."""

    options: ReplayOptions
    queue: ReplayQueue
    parts: tuple[ArchivePart, ...] = ()

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        """The columns of NEEDED, in the order of the queue, from offset `start` on."""
        if self.options.archive_path is None:
            return self._from_broker(start)
        return self._from_archive(start)

    def _from_broker(self, start: int) -> Iterator[pa.RecordBatch]:
        """Over separate connections: on the sender's, the responses to pending pulls would be mixed with those to
        sends."""
        reading, queue = self.options.reading(), self.queue
        source = MessageQueue(topic=self.options.topic, broker_name=queue.broker or "", queue_id=queue.queue_id)
        cluster = Cluster(reading.client_settings())
        try:
            offsets = QueueRange(source, start, max(start, queue.end))
            yield from read_range(offsets, reading, Columns(NEEDED), with_times=True, cluster=cluster)
        finally:
            cluster.calls.close()

    def _from_archive(self, start: int) -> Iterator[pa.RecordBatch]:
        layout, selection = _layout(self.options), selection_of(self.options.reading(), with_times=True)
        queue = self.queue
        span = QueueSpan(queue.broker, queue.queue_id, max(start, queue.first), queue.end)
        for part in self.parts:
            of_queue = ArchivePart(
                part.path, part.staged, part.topic, part.first_group, part.end_group, (span,), part.bytes
            )
            yield from read_part(layout, of_queue, NEEDED, selection)


def queue_sources(options: ReplayOptions, replay: Replay) -> list[QueueSource]:
    if options.archive_path is None:
        return [QueueSource(options, queue) for queue in replay.queues]
    files = [file for file in archived_files(_layout(options), replay.commits) if file.topic == options.topic]
    return [QueueSource(options, queue, tuple(_parts(files, queue))) for queue in replay.queues]


def _parts(files: list[ArchivedFile], queue: ReplayQueue) -> Iterator[ArchivePart]:
    """The files that hold messages of a queue, in the order of its offsets."""
    of_queue = [
        (span.first, file)
        for file in files
        for span in file.queues
        if (span.broker, span.queue_id) == (queue.broker, queue.queue_id)
    ]
    for _, file in sorted(of_queue, key=lambda item: item[0]):
        yield ArchivePart(file.path, file.staged, file.topic, 0, file.row_groups, None, file.size)


def _layout(options: ReplayOptions) -> ArchiveLayout:
    assert options.archive_path is not None
    return ArchiveLayout(Path(options.archive_path).absolute())
