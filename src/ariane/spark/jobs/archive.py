"""Topics, or a whole store, to Parquet files by topic and day: each message once, however often it is run or killed.

    driver   what is new since the last commit ──> parts          round by round        commit ──> files get their names
    tasks                                          read, encode, write, sync ──> what is in the files ─┘

A task that fails or is repeated leaves a file that no commit names. A driver that is killed leaves at most one round of
them, which the next run removes and makes again.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from zlib import crc32

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from ariane.arrow.log.split import LogSplit
from ariane.errors import SettingsError, StoreInUse
from ariane.model.route import MessageQueue
from ariane.spark.archive.columns import READ_TO_ARCHIVE
from ariane.spark.archive.commits import (
    ArchivedFile,
    ArchiveLayout,
    Commit,
    StoreReach,
    clear_staged,
    publish,
    read_commits,
    write_commit,
)
from ariane.spark.archive.write import ArchiveWriter
from ariane.spark.cluster import cluster_for
from ariane.spark.data_loss import report_loss
from ariane.spark.jobs.tasks import Progress, cores, run_tasks
from ariane.spark.offsets import QueueRange
from ariane.spark.options.base import read_options
from ariane.spark.options.jobs import ArchiveOptions
from ariane.spark.read.broker import read_range
from ariane.spark.read.columns import Columns
from ariane.spark.read.planning import Planner
from ariane.spark.read.store import StoreBatchReader
from ariane.store.lock import locked

# --- archive_parts ---
#
# What a run of the job `archive` has to read, in parts, and what the archive reaches when some of them are done.
#
# Parts are in such an order that any number of them from the start on can be committed: parts of one queue, or of one
# log, follow each other.

COLUMNS = Columns(READ_TO_ARCHIVE)


@dataclass(frozen=True, slots=True)
class Part:
    stem: str
    """Of the names of its files: which messages they hold."""
    source: QueueRange | LogSplit
    store: str = ""
    """The name under which the progress of its store is kept."""


def parts_of(options: ArchiveOptions, reached: Commit) -> list[Part]:
    return _of_stores(options, reached) if options.store_path is not None else _of_queues(options, reached)


# --- through the broker ----------------------------------------------------------------------------------------------


def _of_queues(options: ArchiveOptions, reached: Commit) -> list[Part]:
    cluster = cluster_for(options.client_settings())
    queues = Planner(cluster, options.reading()).queues()
    planner = Planner(cluster, options.reading(_starting(reached, queues)))
    by_queue: dict[MessageQueue, list[QueueRange]] = {}
    for one in planner.split(planner.batch_ranges()):
        by_queue.setdefault(one.queue, []).append(one)
    turns = zip_longest(*by_queue.values())
    return [Part(_queue_stem(one), one) for turn in turns for one in turn if one is not None]


def _starting(reached: Commit, queues: Iterable[MessageQueue]) -> str:
    """Where the archive ends now, for the queues that are still there."""
    wanted: dict[str, dict[str, dict[str, int]]] = {}
    for queue in queues:
        offset = reached.offsets.get(queue.topic, {}).get(queue.broker_name, {}).get(queue.queue_id)
        if offset is not None:
            wanted.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return json.dumps(wanted) if wanted else "earliest"


def _queue_stem(one: QueueRange) -> str:
    return f"{one.queue.broker_name}-{one.queue.queue_id}-{one.start:020d}-{one.end:020d}"


# --- past it ---------------------------------------------------------------------------------------------------------


def _of_stores(options: ArchiveOptions, reached: Commit) -> list[Part]:
    splits = [partition.value for partition in StoreBatchReader(options.reading(), COLUMNS).partitions()]
    by_root = _by_root(splits)
    if options.broker_name is not None and len(by_root) > 1:
        raise SettingsError("brokerName names one store, and storePath several: run the job once for each")
    parts = []
    for root, mine in by_root.items():
        name = options.broker_name or str(Path(root).resolve())
        parts += [_log_part(name, split) for split in _behind(mine, reached.stores.get(name), name, options)]
    return parts


def _by_root(splits: Iterable[LogSplit]) -> dict[str, list[LogSplit]]:
    found: dict[str, list[LogSplit]] = {}
    for split in splits:
        found.setdefault(split.store_root, []).append(split)
    return found


def _behind(splits: list[LogSplit], known: StoreReach | None, name: str, options: ArchiveOptions) -> Iterator[LogSplit]:
    """The splits from where the archive ends on. A record begins there: the log ended there when it was archived."""
    if known is None:
        yield from splits
        return
    _check_reach(splits, known, name, options)
    for split in splits:
        if split.begin >= known.end:
            yield split
        elif split.end > known.end:
            yield replace(split, begin=known.end, is_aligned=True, bytes_estimate=split.end - known.end)


def _check_reach(splits: list[LogSplit], known: StoreReach, name: str, options: ArchiveOptions) -> None:
    if known.topics != topics_of(options):
        was = "all topics" if known.topics is None else ", ".join(known.topics)
        raise SettingsError(
            f"the archive has {was} of the store {name} up to {known.end}, and now other topics are asked for, whose "
            "older messages would be missing: use another archivePath for these"
        )
    if splits[0].limit < known.end:
        raise SettingsError(
            f"the log of {name} ends at {splits[0].limit}, and the archive has it up to {known.end}: it is another "
            "store, or lost its end; give another archivePath"
        )
    if splits[0].begin > known.end:
        report_loss(
            f"the log of {name} begins at {splits[0].begin} now, and the archive ends at {known.end}",
            fail=options.fail_on_data_loss,
        )


def topics_of(options: ArchiveOptions) -> list[str] | None:
    """What of a store is archived: names, or the pattern in slashes."""
    if options.topic_pattern is not None:
        return [f"/{options.topic_pattern}/"]
    return sorted(options.reading().topics) or None


def _log_part(name: str, split: LogSplit) -> Part:
    short = name if "/" not in name else f"log{crc32(name.encode()):08x}"
    return Part(f"{short}-{split.begin:020d}-{split.end:020d}", split, name)


# --- when they are done ----------------------------------------------------------------------------------------------


def reach_after(reached: Commit, done: Iterable[Part], topics: list[str] | None) -> Commit:
    """The next commit, without files: how far the archive reaches when these parts are in it."""
    offsets = {
        topic: {broker: dict(ids) for broker, ids in brokers.items()} for topic, brokers in reached.offsets.items()
    }
    stores = dict(reached.stores)
    for part in done:
        if isinstance(part.source, QueueRange):
            queue = part.source.queue
            offsets.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[queue.queue_id] = part.source.end
        else:
            stores[part.store] = StoreReach(topics, part.source.end)
    return Commit(number=reached.number + 1, source=reached.source, offsets=offsets, stores=stores)


# ---

_PARTS_PER_CORE = 4
"""Of a round: what a killed run has to do again, against what a commit costs."""


def run(spark: SparkSession, options: Mapping[str, str], progress: Progress) -> dict[str, object]:
    """Archives what is there now. `rows`, `files` and `bytes` are those of this run; `commit` is the archive's."""
    wanted = read_options(ArchiveOptions, options)
    layout = ArchiveLayout(Path(wanted.archive_path).absolute())
    with _alone(layout):
        reached = _recovered(layout, wanted)
        done = Done(commit=reached.number)
        for round_ in _rounds(parts_of(wanted, reached), _PARTS_PER_CORE * cores(spark)):
            files = _archived(spark, layout, wanted, round_)
            following = reach_after(reached, round_, topics_of(wanted))
            reached = msgspec.structs.replace(following, files=files)
            write_commit(layout, reached)
            publish(layout, reached)
            done.add(reached)
            progress(done.as_dict())
        clear_staged(layout)
    return done.as_dict()


@dataclass
class Done:
    commit: int
    rows: int = 0
    files: int = 0
    bytes: int = 0

    def add(self, commit: Commit) -> None:
        self.commit = commit.number
        self.rows += sum(file.rows for file in commit.files)
        self.files += len(commit.files)
        self.bytes += sum(file.size for file in commit.files)

    def as_dict(self) -> dict[str, object]:
        return {"rows": self.rows, "files": self.files, "bytes": self.bytes, "commit": self.commit}


@contextmanager
def _alone(layout: ArchiveLayout) -> Iterator[None]:
    layout.commits.mkdir(parents=True, exist_ok=True)
    try:
        with locked(layout.lock):
            yield
    except StoreInUse:
        raise StoreInUse(f"another job writes the archive {layout.root}: let it end, or choose another one") from None


def _recovered(layout: ArchiveLayout, options: ArchiveOptions) -> Commit:
    """The last commit, with all of its files in place and nothing else lying around."""
    commits = read_commits(layout)
    source = "broker" if options.store_path is None else "store"
    if not commits:
        clear_staged(layout)
        return Commit(number=0, source=source)
    last = commits[-1]
    if last.source != source:
        raise SettingsError(
            f"the archive {layout.root} was made from a {last.source}, which counts otherwise than a {source}: go on "
            "as it was begun, or give another archivePath"
        )
    publish(layout, last)
    clear_staged(layout)
    return last


def _rounds(parts: Sequence[Part], size: int) -> Iterator[Sequence[Part]]:
    return (parts[start : start + size] for start in range(0, len(parts), size))


def _archived(
    spark: SparkSession, layout: ArchiveLayout, options: ArchiveOptions, parts: Sequence[Part]
) -> list[ArchivedFile]:
    work = partial(archive_part, str(layout.root), uuid.uuid4().hex, options)
    responses = run_tasks(spark, work, parts)
    return [msgspec.convert(file, ArchivedFile) for response in responses for file in response]


# --- in a task -------------------------------------------------------------------------------------------------------


def archive_part(root: str, run_id: str, options: ArchiveOptions, part: Part) -> object:
    """The files of one part: written and durable, and seen by nobody yet."""
    writer = ArchiveWriter(ArchiveLayout(Path(root)), run_id, part.stem, options.compression)
    for batch in _batches(options, part):
        writer.add(batch)
    return msgspec.to_builtins(writer.close())


def _batches(options: ArchiveOptions, part: Part) -> Iterable[pa.RecordBatch]:
    reading = options.reading()
    if isinstance(part.source, QueueRange):
        return read_range(part.source, reading, COLUMNS, with_times=False)
    return StoreBatchReader(reading, COLUMNS).read(InputPartition(part.source))
