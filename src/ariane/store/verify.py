"""A whole store checked, read-only: the log, then what was made from it, then the small files.

    commit log ── columns of facts, file by file ──┬── consume queues   every record has its entry, and the other way
                                                   ├── index            every entry leads to a record with that key
                                                   └── block sums       every block has the bytes that were written
    checkpoint and config/*.json                        readable, and not ahead of the log

One walk over the log feeds everything, so the time is that of reading the store once.
"""

from collections.abc import Callable

from ariane.errors import StoreMismatch
from ariane.store.checkpoint import read_checkpoint
from ariane.store.disk import Disk
from ariane.store.layout import Layout
from ariane.store.lock_holder import lock_holder
from ariane.store.scan import DataFile, list_files
from ariane.store.scan_queue import list_queues
from ariane.store.verify_files import check_names, check_run
from ariane.store.verify_index import IndexCheck
from ariane.store.verify_log import LogCheck
from ariane.store.verify_queues import QueuesCheck
from ariane.store.verify_report import Report
from ariane.store.verify_sums import SumsCheck
from ariane.store.verify_tables import check_checkpoint, check_config, known_topics

Progress = Callable[[int], None]
"""Told how many more bytes of the log have been read."""


def log_files(disk: Disk, layout: Layout) -> list[DataFile]:
    """StoreMismatch when the directory is no store at all; a new one has no files yet."""
    if layout.commit_log.name not in disk.names(layout.commit_log.parent):
        raise StoreMismatch(
            f"{layout.commit_log} is not there: name the directory that holds `commitlog`, or give the commit log's "
            "own with --commit-log"
        )
    return list_files(disk, layout.commit_log)


def verify_store(
    disk: Disk, layout: Layout, *, index_slots: int | None = None, progress: Progress = lambda count: None
) -> Report:
    """Everything that is wrong, and what there is. Nothing is written."""
    files = log_files(disk, layout)
    files_end = files[-1].end if files else 0
    report = Report(layout.root, is_unclean=disk.size(layout.abort) is not None)
    _explain_end(report, layout)
    _name_the_unknown(report, disk, layout)
    check_run(report, files)
    check_names(report, disk, layout.commit_log, files)
    log = LogCheck(report, disk, files, progress, _durable_to(report, disk, layout))
    queues = QueuesCheck(report, disk, layout, files)
    sums = SumsCheck(report, disk, layout)
    index = IndexCheck(report, disk, layout, index_slots)
    queues.survey()
    index.survey()
    for file, columns in zip(files, log.columns(), strict=True):
        queues.compare(columns)
        index.compare(file, columns)
        sums.compare(file, columns)
    log.finish(queues.dispatched_to(files_end))
    queues.finish(log.begin, log.end, known_topics(disk, layout.config))
    index.finish(files_end, log.end)
    check_checkpoint(report, disk, layout, log.end)
    check_config(report, disk, layout.config)
    sums.finish(log.begin, log.end)
    report.summary.files, report.summary.bytes = _size(disk, layout)
    return report


def _explain_end(report: Report, layout: Layout) -> None:
    holder = lock_holder(layout.lock)
    if holder is not None:
        report.is_unclean = True
        report.note(f"process {holder} runs on this store: its end is moving, and what lags behind is being written")
    elif report.is_unclean:
        report.note("the file `abort` is there: the last run ended in a crash, and the next start recovers")


def _name_the_unknown(report: Report, disk: Disk, layout: Layout) -> None:
    """What later releases of Apache keep here, or a rebuild has left."""
    derived = (layout.consume_queues, layout.consume_queue_extensions, layout.index)
    ours = (layout.commit_log_sums, layout.quarantine)
    others = (layout.commit_log, layout.config, layout.checkpoint, layout.abort, layout.lock)
    known = {path.name for path in (*derived, *ours, *others)}
    unknown = [name for name in disk.names(layout.root) if name not in known]
    if unknown:
        report.note(f"not checked, because no check knows it: {', '.join(unknown)}")


def _durable_to(report: Report, disk: Disk, layout: Layout) -> int | None:
    """After a crash, how far our checkpoint says that the log is safe; None when all of it should be."""
    checkpoint = read_checkpoint(disk, layout.checkpoint)
    return checkpoint.flushed_to if report.is_unclean and checkpoint.is_ours else None


def _size(disk: Disk, layout: Layout) -> tuple[int, int]:
    """Number and bytes of all the files that a store has."""
    queues = [queue.directory for queue in list_queues(disk, layout.consume_queues)]
    directories = [layout.commit_log, layout.commit_log_sums, layout.index, layout.config, *queues]
    paths = [directory / name for directory in directories for name in disk.names(directory)]
    paths += [layout.checkpoint, layout.abort, layout.lock]
    sizes = [size for path in paths if (size := disk.size(path)) is not None]
    return len(sizes), sum(sizes)
