"""The Spark job `archive`: copies topics, or a whole store, to Parquet files by topic and day.

Each message is archived once, however often the job is run or killed.

    driver   what is new since the last commit ──> parts        round by round          commit ──> files get their names
    tasks                                          read, encode, write, sync ──> file descriptions ─┘

A task that fails or is repeated leaves a file that no commit names. A driver that is killed leaves at most one round of
them, which the next run removes and writes again.
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
    StorePosition,
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

COLUMNS = Columns(READ_TO_ARCHIVE)


@dataclass(frozen=True, slots=True)
class Part:
    """What one task archives."""

    stem: str
    """Of the names of its files: which messages they hold."""
    source: QueueRange | LogSplit
    store: str = ""
    """The name under which the progress of its store is kept."""


def parts_of(options: ArchiveOptions, last: Commit) -> list[Part]:
    """What is new since the last commit. Parts of one queue, or of one log, are in its order, so that any number of
    parts from the start on can be committed."""
    return _of_stores(options, last) if options.store_path is not None else _of_queues(options, last)


# --- parts of queues, read from brokers ---


def _of_queues(options: ArchiveOptions, last: Commit) -> list[Part]:
    cluster = cluster_for(options.client_settings())
    queues = Planner(cluster, options.reading()).queues()
    planner = Planner(cluster, options.reading(_starting(last, queues)))
    by_queue: dict[MessageQueue, list[QueueRange]] = {}
    for part in planner.split(planner.batch_ranges()):
        by_queue.setdefault(part.queue, []).append(part)
    rounds = zip_longest(*by_queue.values())
    return [Part(_queue_stem(part), part) for parts in rounds for part in parts if part is not None]


def _starting(last: Commit, queues: Iterable[MessageQueue]) -> str:
    """Where the archive ends now, for the queues that still exist."""
    starting: dict[str, dict[str, dict[str, int]]] = {}
    for queue in queues:
        offset = last.offsets.get(queue.topic, {}).get(queue.broker_name, {}).get(queue.queue_id)
        if offset is not None:
            starting.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return json.dumps(starting) if starting else "earliest"


def _queue_stem(part: QueueRange) -> str:
    return f"{part.queue.broker_name}-{part.queue.queue_id}-{part.start:020d}-{part.end:020d}"


# --- parts of logs, read from store directories ---


def _of_stores(options: ArchiveOptions, last: Commit) -> list[Part]:
    splits = [partition.value for partition in StoreBatchReader(options.reading(), COLUMNS).partitions()]
    by_root = _by_root(splits)
    if options.broker_name is not None and len(by_root) > 1:
        raise SettingsError("brokerName names one store, and storePath several: run the job once for each")
    parts = []
    for root, of_root in by_root.items():
        name = options.broker_name or str(Path(root).resolve())
        parts += [_log_part(name, split) for split in _new_splits(of_root, last.stores.get(name), name, options)]
    return parts


def _by_root(splits: Iterable[LogSplit]) -> dict[str, list[LogSplit]]:
    by_root: dict[str, list[LogSplit]] = {}
    for split in splits:
        by_root.setdefault(split.store_root, []).append(split)
    return by_root


def _new_splits(
    splits: list[LogSplit], known: StorePosition | None, name: str, options: ArchiveOptions
) -> Iterator[LogSplit]:
    """The splits from where the archive ends. A record begins there, because the log ended there when it was
    archived."""
    if known is None:
        yield from splits
        return
    _check_position(splits, known, name, options)
    for split in splits:
        if split.begin >= known.end:
            yield split
        elif split.end > known.end:
            yield replace(split, begin=known.end, is_aligned=True, bytes_estimate=split.end - known.end)


def _check_position(splits: list[LogSplit], known: StorePosition, name: str, options: ArchiveOptions) -> None:
    if known.topics != topics_of(options):
        was = "all topics" if known.topics is None else ", ".join(known.topics)
        raise SettingsError(
            f"the archive has {was} of the store {name} up to {known.end}, and now other topics are selected, whose "
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
    """Which topics of a store are archived: names, or the pattern in slashes; None for all."""
    if options.topic_pattern is not None:
        return [f"/{options.topic_pattern}/"]
    return sorted(options.reading().topics) or None


def _log_part(name: str, split: LogSplit) -> Part:
    short = name if "/" not in name else f"log{crc32(name.encode()):08x}"
    return Part(f"{short}-{split.begin:020d}-{split.end:020d}", split, name)


# --- rounds and commits ---


def next_commit(last: Commit, done: Iterable[Part], topics: list[str] | None) -> Commit:
    """The next commit, without its files: the positions up to which the archive goes with these parts."""
    offsets = {topic: {broker: dict(ids) for broker, ids in brokers.items()} for topic, brokers in last.offsets.items()}
    stores = dict(last.stores)
    for part in done:
        if isinstance(part.source, QueueRange):
            queue = part.source.queue
            offsets.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[queue.queue_id] = part.source.end
        else:
            stores[part.store] = StorePosition(topics, part.source.end)
    return Commit(number=last.number + 1, source=last.source, offsets=offsets, stores=stores)


_PARTS_PER_CORE = 4
"""In one round: more cost a killed run more work to repeat, fewer cost more commits."""


def run(spark: SparkSession, options: Mapping[str, str], progress: Progress) -> dict[str, object]:
    """Archives the messages that exist now. `rows`, `files` and `bytes` are those of this run; `commit` is the number
    of the last commit."""
    config = read_options(ArchiveOptions, options)
    layout = ArchiveLayout(Path(config.archive_path).absolute())
    with _exclusive(layout):
        last = _recovered(layout, config)
        summary = Summary(commit=last.number)
        for round_ in _rounds(parts_of(config, last), _PARTS_PER_CORE * cores(spark)):
            files = _archived(spark, layout, config, round_)
            last = msgspec.structs.replace(next_commit(last, round_, topics_of(config)), files=files)
            write_commit(layout, last)
            publish(layout, last)
            summary.add(last)
            progress(summary.as_dict())
        clear_staged(layout)
    return summary.as_dict()


@dataclass
class Summary:
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
def _exclusive(layout: ArchiveLayout) -> Iterator[None]:
    layout.commits.mkdir(parents=True, exist_ok=True)
    try:
        with locked(layout.lock):
            yield
    except StoreInUse:
        raise StoreInUse(
            f"another job writes the archive {layout.root}: wait for it, or choose another archive"
        ) from None


def _recovered(layout: ArchiveLayout, options: ArchiveOptions) -> Commit:
    """The last commit, with all of its files in place; staged files that no commit names are removed."""
    commits = read_commits(layout)
    source = "broker" if options.store_path is None else "store"
    if not commits:
        clear_staged(layout)
        return Commit(number=0, source=source)
    last = commits[-1]
    if last.source != source:
        raise SettingsError(
            f"the archive {layout.root} was made from a {last.source}, and a {source} counts progress differently: "
            "continue as it was begun, or give another archivePath"
        )
    publish(layout, last)
    clear_staged(layout)
    return last


def _rounds(parts: Sequence[Part], size: int) -> Iterator[Sequence[Part]]:
    return (parts[start : start + size] for start in range(0, len(parts), size))


def _archived(
    spark: SparkSession, layout: ArchiveLayout, options: ArchiveOptions, parts: Sequence[Part]
) -> list[ArchivedFile]:
    responses = run_tasks(spark, partial(archive_part, str(layout.root), uuid.uuid4().hex, options), parts)
    return [msgspec.convert(file, ArchivedFile) for response in responses for file in response]


# --- in a task -------------------------------------------------------------------------------------------------------


def archive_part(root: str, run_id: str, options: ArchiveOptions, part: Part) -> object:
    """Writes and syncs the files of one part. They become visible with the commit."""
    writer = ArchiveWriter(ArchiveLayout(Path(root)), run_id, part.stem, options.compression)
    for batch in _batches(options, part):
        writer.add(batch)
    return msgspec.to_builtins(writer.close())


def _batches(options: ArchiveOptions, part: Part) -> Iterable[pa.RecordBatch]:
    reading = options.reading()
    if isinstance(part.source, QueueRange):
        return read_range(part.source, reading, COLUMNS, with_times=False)
    return StoreBatchReader(reading, COLUMNS).read(InputPartition(part.source))
