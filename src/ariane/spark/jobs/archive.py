"""Topics, or a whole store, to Parquet files by topic and day: each message once, however often it is run or killed.

    driver   what is new since the last commit ──> parts          round by round        commit ──> files get their names
    tasks                                          read, encode, write, sync ──> what is in the files ─┘

A task that fails or is repeated leaves a file that no commit names. A driver that is killed leaves at most one round of
them, which the next run removes and makes again.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from ariane.errors import SettingsError, StoreInUse
from ariane.spark.archive_commits import ArchivedFile, Commit, clear_staged, publish, read_commits, write_commit
from ariane.spark.archive_encode import ArchiveWriter
from ariane.spark.archive_layout import ArchiveLayout
from ariane.spark.batch import read_range
from ariane.spark.jobs.archive_options import ArchiveOptions
from ariane.spark.jobs.archive_parts import COLUMNS, Part, parts_of, reach_after, topics_of
from ariane.spark.jobs.tasks import Progress, cores, run_tasks
from ariane.spark.option_values import read_options
from ariane.spark.ranges import QueueRange
from ariane.spark.store_batch import StoreBatchReader
from ariane.store.lock import locked

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
    answers = run_tasks(spark, work, parts)
    return [msgspec.convert(file, ArchivedFile) for answer in answers for file in answer]


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
