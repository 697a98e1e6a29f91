"""Opens the components of a store and recovers them to a consistent state.

Three ways in which files can disagree after a stop:

    the log is ahead of queues or index       its records are dispatched again
    queues or index are ahead of the log      they are truncated
    a file ends in the middle of a record     the log ends before it (commit_log/recovery.py)

Where to start: after a crash of the process at the written mark (at most a second old), after a crash of the machine at
the checkpoint (a minute), after a clean stop at the end. Only for a store that Apache wrote last is it found by the
files' times, as Apache does it.
"""

import logging
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from ariane.clock import Clock
from ariane.model.system_topics import parse_levels
from ariane.store.checkpoint import Checkpoint, LastExit, last_exit, read_checkpoint, write_checkpoint
from ariane.store.commit_log.checksum_writer import ChecksumWriter, truncate_checksums
from ariane.store.commit_log.log import CommitLog, Segments
from ariane.store.commit_log.recovery import LogScan, end_log, scan_start
from ariane.store.config.deletions import Deletions
from ariane.store.consume_queue.files import affordable_open_files
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.disk import Disk
from ariane.store.dispatch import Dispatcher
from ariane.store.index.index import Index
from ariane.store.layout import Layout
from ariane.store.settings import StoreSettings
from ariane.wire.record.layout import RECORD_BYTES_MAX

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StoreComponents:
    disk: Disk
    layout: Layout
    commit_log: CommitLog
    queues: ConsumeQueues
    index: Index | None
    dispatcher: Dispatcher
    checkpoint: Checkpoint
    last_timestamp_ms: int
    checksums: ChecksumWriter | None
    deletions: Deletions
    boot: str
    """Id of the machine's boot; empty when it is not known."""
    last_exit: LastExit

    @property
    def has_page_cache_of_last_run(self) -> bool:
        """Whether every write of the last run can be read, synced or not."""
        return bool(self.boot) and self.last_exit is not LastExit.MACHINE_CRASH


def open_components(
    disk: Disk, settings: StoreSettings, clock: Clock, executor: Executor | None, boot: str
) -> StoreComponents:
    layout = Layout.under(settings.root, settings.commit_log_path)
    for directory in (layout.root, layout.commit_log, layout.consume_queues, layout.index, layout.config):
        disk.make_directory(directory)
        disk.sync_directory(directory.parent)  # a killed run may have created it and not synced the name
    exit_ = last_exit(disk, layout.abort, boot)
    checkpoint = read_checkpoint(disk, layout.checkpoint)
    segments = Segments(disk, layout.commit_log, settings.segment_bytes, writable=True)
    queues = ConsumeQueues.open(disk, layout, settings, open_files_max=affordable_open_files())
    index = Index.open(disk, layout, settings, partial(_local_name, clock)) if settings.index_enable else None
    deletions = Deletions.load(disk, layout.config)
    queues.drop_deleted(deletions)
    dispatcher = Dispatcher(queues, index, parse_levels(settings.message_delay_levels), deletions)
    scan = LogScan(
        disk=disk,
        segments=segments,
        start=scan_start(segments, checkpoint, exit_, queues.max_physical),
        durable_to=checkpoint.flushed_to,
        size_max=RECORD_BYTES_MAX,
        quarantine=layout.quarantine,
    )
    began = time.perf_counter()
    if exit_ is LastExit.CLEAN:
        if index is not None:
            index.after_clean_stop()
    else:
        queues.truncate(scan.start)
        queues.mark_unsynced_from(checkpoint.dispatched_to)
        if index is not None:
            index.after_crash(
                scan.start if checkpoint.has_ariane_slot else index.durable_at(checkpoint.index_timestamp_ms)
            )
    if index is not None:
        _warn_missing_keys(index, segments.base, scan.start, layout)
    records = dispatcher.replay(scan.whole_records())
    queues.truncate(scan.end)
    if index is not None:
        index.truncate(scan.end)
    truncate_checksums(
        disk, layout.commit_log_checksums, segments, min(scan.end, _checksummed_to(checkpoint, exit_, scan.end))
    )
    end_log(segments, scan.end)
    deletions.fit(segments.base, scan.end)
    queues.drop_before(segments.base)
    commit_log = CommitLog(segments, executor)
    commit_log.set_end(scan.end)
    if disk.size(layout.checkpoint) is None:
        checkpoint = write_checkpoint(disk, layout.checkpoint, checkpoint)
    log.info(
        "store opened",
        extra={
            "last_exit": exit_.value, "from": scan.start, "end": scan.end, "dispatched": records,
            "quarantined": len(scan.quarantined), "ms": round((time.perf_counter() - began) * 1000),
        },
    )  # fmt: skip
    last_ms = max(scan.last_timestamp_ms, checkpoint.store_timestamp_ms)
    unchecked_from = min(scan.start, checkpoint.dispatched_to) if checkpoint.has_ariane_slot else scan.start
    checksums = _open_checksums(disk, layout, segments, settings.sum_block_bytes, unchecked_from, scan.end)
    return StoreComponents(
        disk, layout, commit_log, queues, index, dispatcher, checkpoint, last_ms, checksums, deletions, boot, exit_
    )


def _checksummed_to(checkpoint: Checkpoint, exit_: LastExit, end: int) -> int:
    """Up to where block checksums have no gaps: a power cut may keep an unsynced one and lose one before it.

    What follows was scanned just now, and is checksummed again.
    """
    return checkpoint.flushed_to if exit_ is LastExit.MACHINE_CRASH and checkpoint.has_ariane_slot else end


def _open_checksums(
    disk: Disk, layout: Layout, segments: Segments, block_bytes: int, begin: int, end: int
) -> ChecksumWriter | None:
    if not block_bytes:
        return None
    disk.make_directory(layout.commit_log_checksums)
    return ChecksumWriter(disk, layout.commit_log_checksums, segments, block_bytes, begin, end)


def _warn_missing_keys(index: Index, begin: int, start: int, layout: Layout) -> None:
    """Warns if the index lacks messages before the start of the scan.

    It is not rebuilt here: that needs a scan of the whole log, and a broker that is down for minutes is worse than one
    that does not find some old messages by key.
    """
    missing_from = begin if index.end_physical < 0 else index.damaged_from
    if missing_from is not None and missing_from < start:
        log.warning(
            "the index lacks old messages: they are not found by key until you stop the broker and run "
            f"`ariane store rebuild {layout.root} --index`",
            extra={"from": missing_from, "to": start},
        )


def _local_name(clock: Clock) -> str:
    """Name of an index file created now: local time, yyyyMMddHHmmssSSS."""
    now_ms = clock.now_ms()
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms / 1000)) + f"{now_ms % 1000:03d}"
