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
from ariane.errors import StoreFull
from ariane.model.system_topics import parse_levels
from ariane.store.checkpoint import Checkpoint, LastExit, last_exit, read_checkpoint, write_checkpoint
from ariane.store.commit_log.checked_blocks import CheckedBlocks, checksummed_to, damaged_ranges
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
    start = scan_start(segments, checkpoint, exit_, queues.max_physical)
    summed_to, damaged = _checksum_facts(disk, layout, segments, start)
    scan = LogScan(
        disk=disk,
        segments=segments,
        start=start,
        durable_to=max(checkpoint.flushed_to, summed_to),
        size_max=RECORD_BYTES_MAX,
        quarantine=layout.quarantine,
        is_in_order=exit_ is LastExit.PROCESS_CRASH,
        damaged=damaged,
        is_next=partial(_is_next, queues),
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
    records = dispatcher.replay(scan.whole_records(), keep_if_full=True)
    queues.truncate(scan.end)
    if index is not None:
        index.truncate(scan.end)
    truncate_checksums(disk, layout.commit_log_checksums, segments, scan.end)
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
    if checksums is not None:
        commit_log.checks = CheckedBlocks(disk, layout.commit_log_checksums, segments)
        _leave_damaged_end(commit_log, disk, layout, segments)
    return StoreComponents(
        disk, layout, commit_log, queues, index, dispatcher, checkpoint, last_ms, checksums, deletions, boot, exit_
    )


def _checksum_facts(disk: Disk, layout: Layout, segments: Segments, start: int) -> tuple[int, list[tuple[int, int]]]:
    """Up to where there are block checksums, and which ranges from `start` on do not match them."""
    directory = layout.commit_log_checksums
    try:
        return checksummed_to(disk, directory, segments), damaged_ranges(disk, directory, segments, start)
    except OSError as error:  # checksums must not prevent a start
        log.warning("block checksums cannot be read", extra={"directory": str(directory), "reason": str(error)})
        return 0, []


def _is_next(queues: ConsumeQueues, topic: str, queue_id: int, queue_offset: int) -> bool:
    queue = queues.get(topic, queue_id)
    return queue is not None and queue.max_offset == queue_offset


def _leave_damaged_end(commit_log: CommitLog, disk: Disk, layout: Layout, segments: Segments) -> None:
    """Begins a new file if the last block is damaged: its checksum cannot tell new records from the damaged ones."""
    _, damaged = _checksum_facts(disk, layout, segments, commit_log.max_offset)
    if not damaged or commit_log.room() <= 0:
        return
    log.error(
        "the last block of the commit log is damaged: new messages go to a new file. `ariane store verify` lists the "
        "damage",
        extra={"from": damaged[0][0], "to": damaged[0][1]},
    )
    try:
        commit_log.roll()
    except StoreFull as error:
        log.warning("no new file: new messages share a block with damaged ones", extra={"reason": str(error)})


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
