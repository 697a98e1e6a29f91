"""From where to where a log can be read, and how much of it the queues tell.

    begin                       queued_to                end
    │ record │ record │ ... │ record │ record │ record │ ... unfinished, or not dispatched yet
    └── in their queues ─────────────┘
    └── what may be read ──────────────────────────────┘

While a broker runs, both are the mark that it leaves in the checkpoint every second; Apache leaves none, so there it is
as far as its queues reach. When none runs, the log ends with the last whole record behind what is known to be safe.
"""

from dataclasses import dataclass

from ariane.arrow.checksums import checksum_faults
from ariane.arrow.log_files import LogFiles
from ariane.arrow.log_queues import open_queues, topics_with_queues
from ariane.store.checkpoint import Checkpoint, LastExit, boot_id, last_exit, read_checkpoint
from ariane.store.disk import Disk, RealDisk
from ariane.store.layout import Layout
from ariane.store.lock_holder import lock_holder
from ariane.store.scan import DataFile
from ariane.wire.record_view import RecordView, verify


@dataclass(frozen=True, slots=True)
class LogBounds:
    begin: int
    end: int
    """Where the next record will begin."""
    queued_to: int
    """Records below this are in their queues, if a queue shows them at all."""
    is_live: bool


def log_bounds(layout: Layout, files: LogFiles, live: bool | None = None, disk: Disk | None = None) -> LogBounds:
    """`live` says whether a broker runs on the store; None: find out by its lock, which is not taken."""
    disk = disk or RealDisk()
    is_live = lock_holder(layout.lock) is not None if live is None else live
    checkpoint = read_checkpoint(disk, layout.checkpoint)
    if is_live:
        end = checkpoint.written_to if _is_current(checkpoint) else _queues_reach(layout, disk)
        end = min(max(end, files.begin), files.end)
        return LogBounds(files.begin, end, end, is_live=True)
    exit_ = last_exit(disk, layout.abort, boot_id())
    safe_to = _safe_to(layout, disk, checkpoint, exit_)
    end = _end_of_records(files, safe_to, check_crc=exit_ is not LastExit.CLEAN)
    queued_to = end if exit_ is LastExit.CLEAN else min(safe_to, end)
    return LogBounds(files.begin, end, max(queued_to, files.begin), is_live=False)


def _is_current(checkpoint: Checkpoint) -> bool:
    """Whether a broker of ours wrote it last: Apache moves its own times on, and leaves our mark as it was."""
    return checkpoint.is_ours and checkpoint.physic_timestamp_ms == checkpoint.store_timestamp_ms


def _safe_to(layout: Layout, disk: Disk, checkpoint: Checkpoint, exit_: LastExit) -> int:
    """Up to where queues and log are known to be whole: 0 after a crash of Apache's, as its queues may have holes."""
    if checkpoint.is_ours:
        return checkpoint.dispatched_to if exit_ is LastExit.MACHINE_CRASH else checkpoint.written_to
    return _queues_reach(layout, disk) if exit_ is LastExit.CLEAN else 0


def _queues_reach(layout: Layout, disk: Disk) -> int:
    """The end of the last record that has an entry."""
    queues = (queue for queue in open_queues(layout, topics_with_queues(layout, disk), disk=disk) if len(queue))
    return max((queue.physical(queue.end - 1) + queue.size(queue.end - 1) for queue in queues), default=0)


def _end_of_records(files: LogFiles, safe_to: int, *, check_crc: bool) -> int:
    """Behind the last whole record, at `safe_to` or later; the files behind it hold none."""
    file = files.find(safe_to) if safe_to > files.begin else None
    file, start = (file, safe_to) if file is not None else _last_begun(files)
    end = start
    while file is not None:
        end, is_full = _end_in_file(files, file, end, check_crc)
        file = files.find(file.end) if is_full else None
    return end


def _last_begun(files: LogFiles) -> tuple[DataFile | None, int]:
    """The last file that begins with a record of its own."""
    for file in reversed(files.files):
        walk = files.walk(file, file.end)
        first = verify(walk.source.view, 0, check_body_crc=False)
        if isinstance(first, RecordView) and first.physical_offset == file.base:
            return file, file.base
    return None, files.begin


def _end_in_file(files: LogFiles, file: DataFile, start: int, check_crc: bool) -> tuple[int, bool]:
    """Where the records of a file end, and whether the next file goes on."""
    walk = files.walk(file, file.end)
    end = start
    for stretch in walk.stretches(max(start - file.base, 0), walk.limit):
        faults = checksum_faults(stretch.rows) if check_crc else []
        if faults:
            return file.base + int(stretch.rows.position[faults[0][0]]), False
        if len(stretch.rows):
            end = file.base + int(stretch.rows.position[-1]) + stretch.rows.size(len(stretch.rows) - 1)
        if stretch.bad:
            return min([end, *(bad.position for bad in stretch.bad)]), False
    return end, True
