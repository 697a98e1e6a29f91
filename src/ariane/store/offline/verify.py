"""Verifies a whole store, read-only: the commit log, the files derived from it, then the small files.

    commit log ── columns of facts, file by file ──┬── consume queues   every record has its entry, and vice versa
                                                   ├── index            every entry leads to a record with that key
                                                   └── block checksums  every block has the bytes that were written
    checkpoint and config/*.json                        readable, and not ahead of the log

One scan of the log feeds all checks, so it takes as long as reading the store once.
"""

from collections.abc import Callable
from pathlib import Path

from ariane.errors import StoreCorrupt, StoreMismatch
from ariane.store.checkpoint import CHECKPOINT_BYTES, decode_checkpoint, read_checkpoint
from ariane.store.commit_log.scan import DataFile, list_files
from ariane.store.config.deletions import Deletions
from ariane.store.config.journal import JOURNAL_BYTES, is_journal, read_journal
from ariane.store.config.known_topics import known_topics
from ariane.store.config.table_file import CopyState, TableCopy, backup_of, listed_tables, read_copy
from ariane.store.config.truncation_request import FILE_NAME as TRUNCATION
from ariane.store.config.truncation_request import read_request
from ariane.store.consume_queue.scan import list_queues
from ariane.store.disk import Disk, read_all
from ariane.store.layout import Layout
from ariane.store.lock import lock_holder
from ariane.store.offline.verify_index import IndexCheck
from ariane.store.offline.verify_log import ChecksumCheck, LogCheck
from ariane.store.offline.verify_queues import QueuesCheck
from ariane.store.offline.verify_report import Fix, Report, check_file_sequence, check_names

# --- checkpoint and config/*.json ---


def check_checkpoint(report: Report, disk: Disk, layout: Layout, log_end: int) -> None:
    """A checkpoint may lag behind the log, but must not be ahead of it."""
    data = read_all(disk, layout.checkpoint, CHECKPOINT_BYTES + 1)
    if data is None:
        report.note("there is no checkpoint: the next start scans the whole log")
        return
    if len(data) != CHECKPOINT_BYTES:
        report.fault(layout.checkpoint, 0, f"{len(data)} bytes, not {CHECKPOINT_BYTES}", Fix.CHECKPOINT)
    checkpoint = decode_checkpoint(data)
    if checkpoint.flushed_to > log_end:
        what = f"the log was durable up to {checkpoint.flushed_to}, its last record ends at {log_end}"
        report.fault(layout.checkpoint, 0, what, Fix.RESTORE)
    newest_ms = report.summary.newest_ms
    if newest_ms is not None and checkpoint.physic_timestamp_ms > newest_ms:
        what = f"a durable message of {checkpoint.physic_timestamp_ms}, the newest in the log is of {newest_ms}"
        report.fault(layout.checkpoint, 0, what, Fix.RESTORE)


def check_config(report: Report, disk: Disk, directory: Path) -> None:
    """Checks every table, its copy and its journals by their checksums, and that no table is missing."""
    for name in filter(is_journal, disk.names(directory)):
        for position in read_journal(read_all(disk, directory / name, JOURNAL_BYTES) or b"").damaged:
            report.fault(directory / name, position, "a line does not match its checksum", Fix.JOURNAL)
    listed = listed_tables(disk, directory)
    present = {name.removesuffix(".bak") for name in disk.names(directory)}
    try:
        request = read_request(disk, directory)
    except StoreCorrupt as error:
        report.fault(directory / TRUNCATION, 0, str(error), Fix.CONFIG)
    else:
        if request is not None:
            what = "removes the log" if request.wipe else f"cuts the log at {request.to}"
            report.note(f"the next start {what} ({TRUNCATION})")
    for name in sorted({*listed, *(name for name in present if name.endswith(".json"))} - {TRUNCATION}):
        _check_table(report, read_copy(disk, directory / name), read_copy(disk, backup_of(directory / name)))


def _check_table(report: Report, table: TableCopy, copy: TableCopy) -> None:
    if table.state is copy.state is CopyState.MISSING:
        report.fault(table.path, 0, f"it is missing, and so is {copy.path.name}", Fix.CONFIG)
    for one, other in ((table, copy), (copy, table)):
        fix = Fix.COPY if other.is_usable else Fix.CONFIG
        if one.state is CopyState.DAMAGED:
            report.fault(one.path, 0, one.problem, fix)
        elif one.state is CopyState.MISSING and other.state is CopyState.INTACT:
            report.fault(one.path, 0, "it is missing", fix)
    if table.state is copy.state is CopyState.INTACT and table.data != copy.data:
        report.lagging(copy.path, 0, f"it differs from {table.path.name}", Fix.COPY)


# --- the whole store ---

Progress = Callable[[int], None]
"""Called with the number of bytes of the log read since the last call."""


def log_files(disk: Disk, layout: Layout) -> list[DataFile]:
    """The files of the log, none for a new store. StoreMismatch when the directory is not a store."""
    if layout.commit_log.name not in disk.names(layout.commit_log.parent):
        raise StoreMismatch(
            f"{layout.commit_log} does not exist: name the directory that holds `commitlog`, or give the commit log's "
            "own with --commit-log"
        )
    return list_files(disk, layout.commit_log)


def verify_store(
    disk: Disk, layout: Layout, *, index_slots: int | None = None, progress: Progress = lambda count: None
) -> Report:
    """Checks everything and returns faults, notes and a summary. Writes nothing."""
    files = log_files(disk, layout)
    files_end = files[-1].end if files else 0
    report = Report(layout.root, is_unclean=disk.size(layout.abort) is not None)
    _note_unclean_stop(report, layout)
    _note_unknown_files(report, disk, layout)
    check_file_sequence(report, files)
    check_names(report, disk, layout.commit_log, files)
    log = LogCheck(report, disk, files, progress, _durable_to(report, disk, layout))
    queues = QueuesCheck(report, disk, layout, files, Deletions.read(disk, layout.config))
    checksums = ChecksumCheck(report, disk, layout)
    index = IndexCheck(report, disk, layout, index_slots)
    queues.survey()
    index.survey()
    for file, columns in zip(files, log.columns(), strict=True):
        queues.compare(columns)
        index.compare(file, columns)
        checksums.compare(file, columns)
    log.finish(queues.dispatched_to(files_end))
    queues.finish(log.begin, log.end, known_topics(disk, layout.config))
    index.finish(files_end, log.end)
    check_checkpoint(report, disk, layout, log.end)
    check_config(report, disk, layout.config)
    checksums.finish(log.begin, log.end)
    report.summary.files, report.summary.bytes = _size(disk, layout)
    return report


def _note_unclean_stop(report: Report, layout: Layout) -> None:
    holder = lock_holder(layout.lock)
    if holder is not None:
        report.is_unclean = True
        report.note(
            f"process {holder} runs on this store: files grow during the check, and derived files may lag behind"
        )
    elif report.is_unclean:
        report.note("the file `abort` is there: the last run ended in a crash, and the next start recovers")


def _note_unknown_files(report: Report, disk: Disk, layout: Layout) -> None:
    """Notes files of later releases of Apache, or left by a rebuild."""
    derived = (layout.consume_queues, layout.consume_queue_extensions, layout.index)
    checksums = (layout.commit_log_checksums, layout.queue_checksums)
    ariane = (*checksums, layout.quarantine, layout.reserve, layout.root / "timer")
    others = (layout.commit_log, layout.config, layout.checkpoint, layout.abort, layout.lock)
    known = {path.name for path in (*derived, *ariane, *others)}
    unknown = [name for name in disk.names(layout.root) if name not in known]
    if unknown:
        report.note(f"unknown files, not checked: {', '.join(unknown)}")


def _durable_to(report: Report, disk: Disk, layout: Layout) -> int | None:
    """After a crash, the durable offset by Ariane's checkpoint; None when the whole log should be durable."""
    checkpoint = read_checkpoint(disk, layout.checkpoint)
    return checkpoint.flushed_to if report.is_unclean and checkpoint.has_ariane_slot else None


def _size(disk: Disk, layout: Layout) -> tuple[int, int]:
    """Number and bytes of all files of a store."""
    queues = [queue.directory for queue in list_queues(disk, layout.consume_queues)]
    directories = [layout.commit_log, layout.commit_log_checksums, layout.index, layout.config, *queues]
    paths = [directory / name for directory in directories for name in disk.names(directory)]
    paths += [layout.checkpoint, layout.abort, layout.lock]
    sizes = [size for path in paths if (size := disk.size(path)) is not None]
    return len(sizes), sum(sizes)
