"""Opens the components of a store and recovers them to a consistent state.

The commit log is what counts; queues and index are derived from it. A checkpoint saves what they hold
(consume_queue/saved_state.py), and a start relies on their files only as far as that says:

    a file is missing or has another size, or its last block is damaged    built again from the log
    another block of a queue is damaged                                    the same, when it is first read
    they hold more than at the checkpoint                                  that is dropped, and added from the log
    the log ends in the middle of a record                                 it ends before that (commit_log/recovery.py)

So after a crash, of the process or of the machine, the log is read from the last checkpoint on, at most a minute old.
Without a saved state (a store of Apache or of an early version, or both copies are damaged) every entry is compared
with the whole log, once.
"""

import logging
import time
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial

from ariane.clock import Clock
from ariane.errors import StoreFull
from ariane.model.system_topics import parse_levels
from ariane.store.checkpoint import (
    CHECKPOINT_BYTES,
    Checkpoint,
    LastExit,
    last_exit,
    read_checkpoint,
    write_checkpoint,
)
from ariane.store.commit_log.checked_blocks import CheckedBlocks, checksummed_to, damaged_ranges
from ariane.store.commit_log.checksum_writer import ChecksumWriter, truncate_checksums
from ariane.store.commit_log.log import CommitLog, Segments
from ariane.store.commit_log.recovery import LogScan, end_log, rewrite_log, scan_start
from ariane.store.config.deletions import Deletions
from ariane.store.config.known_topics import known_topics
from ariane.store.config.truncation_request import read_request, remove_request
from ariane.store.consume_queue.files import affordable_open_files
from ariane.store.consume_queue.gate import Gate
from ariane.store.consume_queue.queues import ConsumeQueues, StateUnusable
from ariane.store.consume_queue.saved_state import SavedState
from ariane.store.disk import Disk
from ariane.store.dispatch import Dispatcher
from ariane.store.index.index import Index
from ariane.store.layout import Layout
from ariane.store.maintenance import truncation
from ariane.store.maintenance.queue_repair import QueueRepair
from ariane.store.maintenance.queue_state import finish_comparison, finish_repair, usable_state
from ariane.store.settings import StoreSettings
from ariane.wire.record.layout import RECORD_BYTES_MAX
from ariane.wire.record.read import RecordView

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
        return bool(self.boot) and self.last_exit not in (LastExit.MACHINE_CRASH, LastExit.SYNC_FAILED)


def open_components(
    disk: Disk, settings: StoreSettings, clock: Clock, executor: Executor | None, boot: str, gate: Gate | None = None
) -> StoreComponents:
    """`gate` makes the queues; it is opened when they hold what the log says."""
    layout = Layout.under(settings.root, settings.commit_log_path)
    for directory in (layout.root, layout.commit_log, layout.consume_queues, layout.index, layout.config):
        disk.make_directory(directory)
        disk.sync_directory(directory.parent)  # a killed run may have created it and not synced the name
    began = time.perf_counter()
    request = read_request(disk, layout.config)
    if request is not None:
        request = truncation.carry_out(disk, layout, settings.segment_bytes, request, boot)
    exit_ = last_exit(disk, layout.abort, boot)
    checkpoint = read_checkpoint(disk, layout.checkpoint)
    segments = Segments(disk, layout.commit_log, settings.segment_bytes, writable=True)
    levels_ms = parse_levels(settings.message_delay_levels)
    open_queues = partial(
        ConsumeQueues.open,
        disk,
        layout,
        settings,
        open_files_max=affordable_open_files(),
        repair=QueueRepair(disk, segments, levels_ms).block,
        gate=gate,
    )
    deletions = Deletions.load(disk, layout.config)
    state = usable_state(disk, layout, settings, segments, checkpoint)
    try:
        queues = open_queues(state=state, deletions=deletions, log_begin=segments.base)
    except StateUnusable as error:
        log.warning("the saved state of the queues does not fit them", extra={"reason": str(error)})
        state = None
        queues = open_queues()
    if request is not None:
        queues.truncate(request.to)
    if state is not None:
        checkpoint = _with_state(checkpoint, state)
    index = _open_index(disk, layout, settings, clock, state)
    queues.drop_deleted(deletions)
    dispatcher = Dispatcher(queues, index, levels_ms, deletions)
    known_to = scan_start(segments, checkpoint, exit_, queues.max_physical) if state is None else state.log_end
    if exit_ is LastExit.SYNC_FAILED:
        rewrite_log(segments, checkpoint.flushed_to)
    if exit_ is not LastExit.CLEAN:
        queues.mark_unsynced_from(checkpoint.dispatched_to)
    start = _prepare(queues, index, segments, state, checkpoint, exit_, known_to)
    summed_to, damaged = _checksum_facts(disk, layout, segments, start)
    scan = LogScan(
        disk=disk,
        segments=segments,
        start=start,
        durable_to=max(checkpoint.flushed_to, summed_to, known_to if state is None else 0),
        size_max=RECORD_BYTES_MAX,
        quarantine=layout.quarantine,
        is_in_order=exit_ is LastExit.PROCESS_CRASH,
        damaged=damaged,
        is_next=partial(_is_next, queues),
    )
    topics_before = set(queues.topics())
    records = dispatcher.replay(scan.whole_records(), is_plain=state is not None, keep_if_full=True)
    if state is None:
        finish_comparison(queues, topics_before, deletions, scan.end, known_topics(disk, layout.config))
    else:
        finish_repair(queues)
    queues.truncate(scan.end)
    if index is not None:
        index.truncate(scan.end)
        index.checksum_all()
    truncate_checksums(disk, layout.commit_log_checksums, segments, scan.end)
    end_log(segments, scan.end)
    deletions.fit(segments.base, scan.end)
    queues.drop_before(segments.base)
    commit_log = CommitLog(segments, executor)
    commit_log.set_end(scan.end)
    if gate is not None:
        gate.open(queues, segments.base, scan.end, dispatcher.notify)
        dispatcher.gate = gate
    if disk.size(layout.checkpoint) != CHECKPOINT_BYTES:
        if len(segments):
            log.warning("the checkpoint is missing or damaged: written again", extra={"file": str(layout.checkpoint)})
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
    if request is not None:
        remove_request(disk, layout.config)
    return StoreComponents(
        disk, layout, commit_log, queues, index, dispatcher, checkpoint, last_ms, checksums, deletions, boot, exit_
    )


def _with_state(checkpoint: Checkpoint, state: SavedState) -> Checkpoint:
    """Both were written after the same syncs, the state first: whichever is intact, or newer, is right."""
    return replace(
        checkpoint,
        flushed_to=max(checkpoint.flushed_to, state.flushed_to),
        dispatched_to=state.log_end,
        store_timestamp_ms=max(checkpoint.store_timestamp_ms, state.store_timestamp_ms),
        sequence=max(checkpoint.sequence, state.sequence),
        has_ariane_slot=True,
    )


def _open_index(
    disk: Disk, layout: Layout, settings: StoreSettings, clock: Clock, state: SavedState | None
) -> Index | None:
    if not settings.index_enable:
        return None
    capacity = settings.index_slots, settings.index_entries
    is_known = state is not None and state.index_capacity == capacity
    return Index.open(disk, layout, settings, partial(_local_name, clock), is_capacity_known=is_known)


def _prepare(
    queues: ConsumeQueues,
    index: Index | None,
    segments: Segments,
    state: SavedState | None,
    checkpoint: Checkpoint,
    exit_: LastExit,
    known_to: int,
) -> int:
    """Makes queues and index ready for the records of the log; from where on it has to be read."""
    if state is None:
        for queue in queues:
            queue.compare()
        if index is not None and exit_ is LastExit.CLEAN:
            index.after_clean_stop()
        elif index is not None:
            slot = checkpoint.has_ariane_slot
            index.after_crash(known_to if slot else index.durable_at(checkpoint.index_timestamp_ms))
        if len(segments):
            log.warning("no saved state of the queues: they are compared with the whole log", extra={"to": known_to})
        return segments.base
    starts = [known_to, *(physical for physical, _ in queues.damaged.values())]
    if index is not None:
        is_indexed = state.index_capacity != (0, 0)
        missing_from = index.restore(state.index_files, known_to, crashed=exit_ is not LastExit.CLEAN)
        starts.append(known_to if missing_from is None and is_indexed else missing_from or segments.base)
    return max(segments.base, min(starts))


def _checksum_facts(disk: Disk, layout: Layout, segments: Segments, start: int) -> tuple[int, list[tuple[int, int]]]:
    """Up to where there are block checksums, and which ranges from `start` on do not match them."""
    directory = layout.commit_log_checksums
    try:
        return checksummed_to(disk, directory, segments), damaged_ranges(disk, directory, segments, start)
    except OSError as error:  # checksums must not prevent a start
        log.warning("block checksums cannot be read", extra={"directory": str(directory), "reason": str(error)})
        return 0, []


def _is_next(queues: ConsumeQueues, view: RecordView) -> bool:
    """Whether its queue has this record already, or ends before it."""
    queue = queues.get(view.topic, view.queue_id)
    if queue is None or queue.max_offset == view.queue_offset:
        return queue is not None
    return queue.has_entry(view.queue_offset, view.physical_offset)


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


def _local_name(clock: Clock) -> str:
    """Name of an index file created now: local time, yyyyMMddHHmmssSSS."""
    now_ms = clock.now_ms()
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms / 1000)) + f"{now_ms % 1000:03d}"
