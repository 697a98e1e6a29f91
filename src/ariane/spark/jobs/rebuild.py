"""The Spark job `rebuild`: writes the consume queues and the index of a store again, from its commit log.

    log        │ span │ span │ span │ ...        tasks: records to queue entries and index rows, in scratch files
    scratch      └────────┬──────┘               driver: are the spans contiguous? where are the entries of each queue?
    new files    queue  queue  queue   index     tasks: each writes an index file, or some queues
    the store  <── exchanged for the old directories, each in one step

The files are byte for byte those that a broker writes. `ariane store rebuild` does the same in one process. Neither
runs on a store that is in use.
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
    IndexFileTask,
    LogSpan,
    QueueTask,
    ScanSettings,
    ScratchRange,
    Target,
    plan_index_files,
    run_write_task,
    scan_span,
)
from ariane.spark.jobs.tasks import Progress, cores, run_tasks
from ariane.spark.options.base import read_options
from ariane.spark.options.jobs import RebuildOptions
from ariane.store.commit_log.scan import DataFile
from ariane.store.config.deletions import Deletions
from ariane.store.consume_queue.entry import ENTRY_BYTES
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.lock import locked
from ariane.store.offline.rebuild import RebuildLayout, old_of
from ariane.store.offline.verify import log_files
from ariane.store.offline.verify_report import infer_file_sizes
from ariane.store.settings import StoreSettings

_CONNECTION = frozenset({"nameserver", "namesrvaddr", "accesskey", "secretkey", "securitytoken", "usetls"})
"""A pipeline passes these options to every job. This job uses no connection and ignores them."""
_GROUPS_PER_CORE = 4


_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def run(spark: SparkSession, options: Mapping[str, str], progress: Progress) -> dict[str, object]:
    """Returns the number of `records` in the log, and of the `queues`, `queue_entries`, `index_files` and
    `index_entries` that were written."""
    rebuild = read_options(RebuildOptions, options, other=_CONNECTION)
    layout = Layout.under(Path(rebuild.store_path).absolute())
    log_files(RealDisk(), layout)  # raises if there is no store, before a lock file is made
    with locked(layout.lock):
        return _Rebuild(spark, layout, rebuild, progress).run()


@dataclass(frozen=True)
class _ScanResult:
    """The result of the scan of all log spans."""

    records: int
    queues: list[QueueTask]
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
            scan = self._scan(settings)
            self._progress({"rows": scan.records})
            written = self._write(settings, scan)
            self._put_in_place()
        finally:
            self._clear()
        return {"rows": scan.records, "records": scan.records, **written}

    @property
    def _directories(self) -> list[tuple[Path, Path]]:
        """Each directory to rebuild: where it is written, and its final path."""
        both = (
            (self._options.queues, self._target.consume_queues, self._final.consume_queues),
            (self._options.index, self._target.index, self._final.index),
        )
        return [(new, final) for is_selected, new, final in both if is_selected]

    def _check_target(self) -> None:
        for _, final in self._directories:
            if self._options.target_path is not None and final.exists():
                raise StoreMismatch(f"{final} already exists: give a targetPath without it")
            if old_of(final).exists() and not self._options.discard_old:
                raise StoreMismatch(
                    f"{old_of(final)} is left from an earlier rebuild: remove it, or set discardOld=true"
                )

    def _settings(self) -> StoreSettings:
        options = self._options
        settings = infer_file_sizes(RealDisk(), self._layout, index_slots=options.index_slots, with_index=options.index)
        whole_entries = -(-settings.queue_segment_bytes // ENTRY_BYTES) * ENTRY_BYTES
        levels = options.delay_levels or settings.message_delay_levels
        return replace(settings, queue_segment_bytes=whole_entries, message_delay_levels=levels)

    def _clear(self) -> None:
        for path in (self._scratch, self._target.consume_queues, self._target.index):
            shutil.rmtree(path, ignore_errors=True)

    # --- reading the log --------------------------------------------------------------------------------------------

    def _scan(self, settings: StoreSettings) -> _ScanResult:
        levels = parse_levels(settings.message_delay_levels)
        deleted = dict(Deletions.read(RealDisk(), self._layout.config).ends)
        task = partial(scan_span, ScanSettings(str(self._scratch), self._options.index, levels, deleted))
        spans = list(_log_spans(log_files(RealDisk(), self._layout), self._options.bytes_per_task))
        responses = run_tasks(self._spark, task, spans)
        for misaligned in _misaligned(spans, responses):
            responses[misaligned.number] = run_tasks(self._spark, task, [misaligned])[0]
        queues = _queue_tasks(responses) if self._options.queues else []
        records = sum(response["records"] for response in responses)
        return _ScanResult(records, queues, [response["index_rows"] for response in responses])

    # --- writing ----------------------------------------------------------------------------------------------------

    def _write(self, settings: StoreSettings, scan: _ScanResult) -> dict[str, object]:
        index_files: list[IndexFileTask] = []
        if self._options.index:
            capacity = settings.index_slots, settings.index_entries
            index_files = list(plan_index_files(scan.index_rows, *capacity, _index_names()))
        groups = _groups(scan.queues, _GROUPS_PER_CORE * cores(self._spark))
        tasks: list[list[QueueTask] | IndexFileTask] = [
            *index_files,
            *groups,
        ]  # the index takes longest: start it first
        target = Target(
            str(self._target.root), str(self._target.commit_log), str(self._scratch), settings.queue_segment_bytes
        )
        counts = run_tasks(self._spark, partial(run_write_task, target), tasks)
        return {
            "queues": len(scan.queues),
            "queue_entries": sum(counts[len(index_files) :]),
            "index_files": len(index_files),
            "index_entries": sum(counts[: len(index_files)]),
        }

    def _put_in_place(self) -> None:
        for new, final in self._directories:
            RealDisk().sync_directory(new)
            old = old_of(final)
            if replace_directory(new, final):
                shutil.rmtree(old, ignore_errors=True)
                new.rename(old)
            if self._options.discard_old:
                shutil.rmtree(old, ignore_errors=True)


def _log_spans(files: list[DataFile], bytes_each: int) -> Iterator[LogSpan]:
    numbers = count()
    for file in files:
        end = _data_end(file)
        for begin in range(0, end, bytes_each):
            stop = min(begin + bytes_each, end)
            yield LogSpan(next(numbers), str(file.path), file.base, begin, stop, is_aligned=begin == 0)


def _misaligned(spans: list[LogSpan], responses: list[dict[str, Any]]) -> Iterator[LogSpan]:
    """The spans that did not begin where the one before ended, to be read again from there.

    Lazily, because the caller replaces responses in between: reading a span again may move its end, where the next
    one has to begin.
    """
    for span in spans:
        if not span.is_aligned:
            begin = responses[span.number - 1]["stop"]
            if responses[span.number]["first"] != begin:
                yield replace(span, begin=begin, end=max(begin, span.end), is_aligned=True)


def _data_end(file: DataFile) -> int:
    """Where the data of the file ends. A file is created with its full size as a hole, and then filled."""
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


def _queue_tasks(responses: list[dict[str, Any]]) -> list[QueueTask]:
    """The scratch ranges of each queue, in the order of the log. Topics whose names a broker does not accept are left
    out."""
    tasks: dict[tuple[str, int], QueueTask] = {}
    for span, response in enumerate(responses):
        for topic, queue_id, at, entries, first, in_order in response["queues"]:
            if topic_name_problem(topic) is not None or queue_id < 0:
                continue
            before = tasks.get((topic, queue_id)) or QueueTask(topic, queue_id, first, first >= 0, ())
            tasks[topic, queue_id] = replace(
                before,
                is_consecutive=before.is_consecutive and in_order and first == before.first + before.entries,
                ranges=(*before.ranges, ScratchRange(span, at, entries)),
            )
    return list(tasks.values())


def _groups(queues: list[QueueTask], number: int) -> list[list[QueueTask]]:
    """Queues distributed by size, the largest first."""
    groups: list[list[QueueTask]] = [[] for _ in range(min(number, len(queues)))]
    sizes = [0] * len(groups)
    for queue in sorted(queues, key=lambda queue: -queue.entries):
        least = sizes.index(min(sizes))
        groups[least].append(queue)
        sizes[least] += queue.entries + 1000  # a queue costs something, however short it is
    return groups


def _index_names() -> Iterator[str]:
    """Local time, as in a broker, counted up by 1 ms for each file."""
    first = int(datetime.now().strftime("%Y%m%d%H%M%S%f")[:17])
    return (f"{number:017d}" for number in count(first))


# --- putting the new directories in place ---


def replace_directory(new: Path, target: Path) -> bool:
    """Puts `new` in the place of `target`, atomically; if there was a `target`, it gets the name of `new`. Returns
    whether there was one.

    Two renames would leave a moment without queues, and a broker that starts then would trust its checkpoint and
    deliver no message. Linux can exchange two names in one step, so a kill at any time leaves one of the two there.
    """
    has_old = target.exists()
    if has_old:
        _exchange(new, target)
    else:
        new.rename(target)
    RealDisk().sync_directory(target.parent)
    return has_old


def _exchange(new: Path, target: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise _cannot_exchange(new, errno.ENOSYS)
    if libc.renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE):
        raise _cannot_exchange(new, ctypes.get_errno())


def _cannot_exchange(path: Path, number: int) -> StoreError:
    return StoreError(
        f"{path.parent}: this file system cannot exchange two directories in one step ({os.strerror(number)}). Rebuild "
        "with targetPath into a new directory, and move it while no broker runs"
    )
