"""Consume queues and index of a whole store made anew from its commit log by many tasks: the bytes of a broker.

    log        │ stretch │ stretch │ stretch │ ...        tasks: records to entries and index rows, in scratch files
    scratch      └────────────┬─────────┘                  driver: do the stretches join? which queue is where?
    new ones     queue  queue  queue   index               tasks: a file, or some queues, each
    the store  <── exchanged for the old ones, in one step

`ariane store rebuild` does the same in one process. Neither runs on a store that is in use.
"""

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ariane.errors import StoreError, StoreMismatch
from ariane.model.ids import topic_name_problem
from ariane.model.system_topics import parse_levels
from ariane.spark.jobs.rebuild_tasks import (
    IndexWork,
    LogSpan,
    Place,
    QueueWork,
    ScanSettings,
    Target,
    index_works,
    scan_stretch,
    write_one,
)
from ariane.spark.jobs.tasks import Progress, cores, run_tasks
from ariane.spark.options.base import read_options
from ariane.spark.options.jobs import RebuildOptions
from ariane.store.commit_log.scan import DataFile
from ariane.store.consume_queue.entry import ENTRY_BYTES
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.lock import locked
from ariane.store.offline.rebuild import RebuildLayout, old_of
from ariane.store.offline.verify import log_files
from ariane.store.offline.verify_report import infer_file_sizes
from ariane.store.settings import StoreSettings

# --- rebuild_swap ---
#
# A new directory in the place of an old one, in one step: at no time is there none, whenever the process is killed.
#
# Linux can exchange two names. Two renames would leave a moment without queues, and a broker that starts then believes
# its checkpoint and gives no message.

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def put_in_place(new: Path, place: Path) -> bool:
    """Whether there was an old one, which then has the name of the new one."""
    if not place.exists():
        new.rename(place)
        RealDisk().sync_directory(place.parent)
        return False
    _exchange(new, place)
    RealDisk().sync_directory(place.parent)
    return True


def _exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise _cannot(one, errno.ENOSYS)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        raise _cannot(one, ctypes.get_errno())


def _cannot(path: Path, number: int) -> StoreError:
    return StoreError(
        f"{path.parent}: this file system cannot exchange two directories in one step ({os.strerror(number)}). Rebuild "
        "with targetPath into a new directory, and move it while no broker runs"
    )


# ---

_CONNECTION = frozenset({"nameserver", "namesrvaddr", "accesskey", "secretkey", "securitytoken", "usetls"})
"""A pipeline hands them to every job; this one asks nobody."""
_GROUPS_PER_CORE = 4


def run(spark: SparkSession, options: Mapping[str, str], progress: Progress) -> dict[str, object]:
    """`records` of the log, and `queues`, `queue_entries`, `index_files` and `index_entries` that came out."""
    wanted = read_options(RebuildOptions, options, other=_CONNECTION)
    layout = Layout.under(Path(wanted.store_path).absolute())
    log_files(RealDisk(), layout)  # no lock is left behind where there is no store
    with locked(layout.lock):
        return _Rebuild(spark, layout, wanted, progress).run()


@dataclass(frozen=True)
class _Found:
    """What all stretches gave."""

    records: int
    queues: list[QueueWork]
    index_rows: list[int]


class _Rebuild:
    def __init__(self, spark: SparkSession, layout: Layout, options: RebuildOptions, progress: Progress) -> None:
        self._spark = spark
        self._layout = layout
        self._options = options
        self._progress = progress
        root = layout.root if options.target_path is None else Path(options.target_path).absolute()
        self._target = RebuildLayout(root, layout.commit_log)
        self._scratch = root / "rebuild.work"
        self._final = Layout.under(root)

    def run(self) -> dict[str, object]:
        self._check_target()
        settings = self._settings()
        self._clear()
        try:
            for directory in (self._scratch, self._target.consume_queues, self._target.index):
                directory.mkdir(parents=True)
            found = self._scan(settings)
            self._progress({"rows": found.records})
            written = self._write(settings, found)
            self._put_in_place()
        finally:
            self._clear()
        return {"rows": found.records, "records": found.records, **written}

    @property
    def _wanted(self) -> list[tuple[Path, Path]]:
        """Each new directory, and the place for it."""
        both = (
            (self._options.queues, self._target.consume_queues, self._final.consume_queues),
            (self._options.index, self._target.index, self._final.index),
        )
        return [(new, place) for is_wanted, new, place in both if is_wanted]

    def _check_target(self) -> None:
        for _, place in self._wanted:
            if self._options.target_path is not None and place.exists():
                raise StoreMismatch(f"{place} is there already: give a targetPath that has none")
            if old_of(place).exists() and not self._options.discard_old:
                raise StoreMismatch(f"{old_of(place)} is there from an earlier rebuild: remove it, or say discardOld")

    def _settings(self) -> StoreSettings:
        options = self._options
        settings = infer_file_sizes(RealDisk(), self._layout, index_slots=options.index_slots, with_index=options.index)
        whole = -(-settings.queue_segment_bytes // ENTRY_BYTES) * ENTRY_BYTES
        levels = options.delay_levels or settings.message_delay_levels
        return replace(settings, queue_segment_bytes=whole, message_delay_levels=levels)

    def _clear(self) -> None:
        for path in (self._scratch, self._target.consume_queues, self._target.index):
            shutil.rmtree(path, ignore_errors=True)

    # --- reading the log --------------------------------------------------------------------------------------------

    def _scan(self, settings: StoreSettings) -> _Found:
        levels = parse_levels(settings.message_delay_levels)
        work = partial(scan_stretch, ScanSettings(str(self._scratch), self._options.index, levels))
        stretches = list(_stretches(log_files(RealDisk(), self._layout), self._options.bytes_per_task))
        responses = run_tasks(self._spark, work, stretches)
        for again in _not_joined(stretches, responses):
            responses[again.number] = run_tasks(self._spark, work, [again])[0]
        queues = _queue_works(responses) if self._options.queues else []
        return _Found(sum(one["records"] for one in responses), queues, [one["index_rows"] for one in responses])

    # --- writing ----------------------------------------------------------------------------------------------------

    def _write(self, settings: StoreSettings, found: _Found) -> dict[str, object]:
        indexes: list[IndexWork] = []
        if self._options.index:
            shape = settings.index_slots, settings.index_entries
            indexes = list(index_works(found.index_rows, *shape, _index_names()))
        groups = _groups(found.queues, _GROUPS_PER_CORE * cores(self._spark))
        pieces: list[list[QueueWork] | IndexWork] = [*indexes, *groups]  # the index takes longest, so it begins first
        target = Target(
            str(self._target.root), str(self._target.commit_log), str(self._scratch), settings.queue_segment_bytes
        )
        counts = run_tasks(self._spark, partial(write_one, target), pieces)
        return {
            "queues": len(found.queues),
            "queue_entries": sum(counts[len(indexes) :]),
            "index_files": len(indexes),
            "index_entries": sum(counts[: len(indexes)]),
        }

    def _put_in_place(self) -> None:
        for new, place in self._wanted:
            RealDisk().sync_directory(new)
            old = old_of(place)
            if put_in_place(new, place):
                shutil.rmtree(old, ignore_errors=True)
                new.rename(old)
            if self._options.discard_old:
                shutil.rmtree(old, ignore_errors=True)


def _stretches(files: list[DataFile], bytes_each: int) -> Iterator[LogSpan]:
    numbers = count()
    for file in files:
        end = _data_end(file)
        for begin in range(0, end, bytes_each):
            stop = min(begin + bytes_each, end)
            yield LogSpan(next(numbers), str(file.path), file.base, begin, stop, is_aligned=begin == 0)


def _not_joined(stretches: list[LogSpan], responses: list[dict[str, Any]]) -> Iterator[LogSpan]:
    """The stretches that did not begin where the one before ended, to be read again from there.

    `answers` are looked at one by one: reading one again may move the end on which the next one depends.
    """
    for stretch in stretches:
        if not stretch.is_aligned:
            begin = responses[stretch.number - 1]["stop"]
            if responses[stretch.number]["first"] != begin:
                yield replace(stretch, begin=begin, end=max(begin, stretch.end), is_aligned=True)


def _data_end(file: DataFile) -> int:
    """Behind it there is only a hole: a file is made with its full size, and written bit by bit."""
    descriptor = os.open(file.path, os.O_RDONLY)
    end = 0
    try:
        while end < file.size:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError:  # no data behind `end`
        return end
    finally:
        os.close(descriptor)
    return min(end, file.size)


def _queue_works(responses: list[dict[str, Any]]) -> list[QueueWork]:
    """What each queue is made of, in the order of the log. Names that no broker makes a directory of are left out."""
    known: dict[tuple[str, int], QueueWork] = {}
    for stretch, response in enumerate(responses):
        for topic, queue_id, at, entries, first, in_order in response["queues"]:
            if topic_name_problem(topic) is not None or queue_id < 0:
                continue
            before = known.get((topic, queue_id)) or QueueWork(topic, queue_id, first, first >= 0, ())
            known[topic, queue_id] = replace(
                before,
                is_plain=before.is_plain and in_order and first == before.first + before.entries,
                places=(*before.places, Place(stretch, at, entries)),
            )
    return list(known.values())


def _groups(queues: list[QueueWork], number: int) -> list[list[QueueWork]]:
    """Queues dealt out by size, the largest first."""
    groups: list[list[QueueWork]] = [[] for _ in range(min(number, len(queues)))]
    sizes = [0] * len(groups)
    for queue in sorted(queues, key=lambda queue: -queue.entries):
        least = sizes.index(min(sizes))
        groups[least].append(queue)
        sizes[least] += queue.entries + 1000  # a queue costs something, however short it is
    return groups


def _index_names() -> Iterator[str]:
    """Local time, as a broker names them, each behind the one before."""
    first = int(datetime.now().strftime("%Y%m%d%H%M%S%f")[:17])
    return (f"{number:017d}" for number in count(first))
