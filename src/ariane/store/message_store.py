"""The message store: opens the commit log, the consume queues and the index, appends to them and checkpoints them.

Everything here runs on the event loop, or in a test, and does not block. Blocking work is separate: a thread may run
`CheckpointPass.run` and `flusher.sync_now`, as store/service.py does it.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from ariane.clock import Clock
from ariane.errors import StoreError, StoreFull, StoreReadOnly
from ariane.store.append.appender import Appender, AppendResult
from ariane.store.append.batch import AppendedBatch, DraftBatch, DraftBatchGroup
from ariane.store.append.draft import Draft
from ariane.store.blocking_io import IoSteps, run_sync
from ariane.store.checkpoint import (
    Checkpoint,
    LastExit,
    boot_id,
    mark_clean,
    mark_running,
    mark_sync_failed,
    write_checkpoint,
)
from ariane.store.commit_log.checksum_writer import drop_checksums_before
from ariane.store.config.truncation_request import TruncationRequest
from ariane.store.consume_queue.entry import QueueExtension
from ariane.store.consume_queue.gate import Gate
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.consume_queue.saved_state import StateToSave, encode_index_file
from ariane.store.disk import Disk, RealDisk
from ariane.store.layout import Layout
from ariane.store.maintenance import truncation
from ariane.store.maintenance.derived_writer import DerivedWriter
from ariane.store.maintenance.disk_space import WriteRefusal
from ariane.store.maintenance.flush import Flusher
from ariane.store.maintenance.recovery import StoreComponents, open_components
from ariane.store.maintenance.retention import CleanupResult, LogReader, Retention, RetentionHold
from ariane.store.read.lookup import Lookup
from ariane.store.read.reader import Reader
from ariane.store.settings import StoreSettings

log = logging.getLogger(__name__)

D = TypeVar("D")
T = TypeVar("T")

_BUSY_FOR_S = 1.0
_DELETION_RECORDS_MAX = 8


@dataclass(frozen=True, slots=True)
class CheckpointPass:
    """The blocking part of a checkpoint, for a thread: sync the log, the queues and the index, then write it."""

    sync_log: Callable[[], int]
    syncs: Sequence[Callable[[], None]]
    checksum_log: Callable[[int], None]
    """After all syncs and before the checkpoint is written: retention may delete what a checkpoint covers."""
    state: StateToSave
    checkpoint: Checkpoint

    def run(self, disk: Disk, layout: Layout) -> Checkpoint:
        flushed_to = self.sync_log()
        for sync in self.syncs:
            sync()
        self.checksum_log(flushed_to)
        self.state.write(disk, layout.queue_checksums, self.checkpoint.sequence + 1, flushed_to)
        return write_checkpoint(disk, layout.checkpoint, replace(self.checkpoint, flushed_to=flushed_to))


class MessageStore:
    """Created by `open`, ended by `close` (or by a crash)."""

    def __init__(self, components: StoreComponents, settings: StoreSettings, clock: Clock, store_host: bytes) -> None:
        self.settings = settings
        self.components = components
        self.store_host = store_host
        """This broker's address as a record holds it."""
        self._clock = clock
        self.gate = components.dispatcher.gate
        """Holds messages back until they are confirmed; None when they are visible at once."""
        self.refusal = WriteRefusal()
        self._append_ended = 0.0
        self.append_s = 0.0
        """Duration of the last append: a page cache under pressure shows here first."""
        self.is_following = False
        """Whether the log is a copy of a master's."""
        self._on_append: Callable[[], None] | None = None
        self._is_to_be_cut = False
        self._checkpoint = components.checkpoint
        self._entries_planned = self._entries_checkpointed = components.queues.entries_added
        self.derived = DerivedWriter(components, clock)
        self.flusher = Flusher(components.commit_log, components.checkpoint.flushed_to, self._sync_failed, clock)
        self.reader = Reader(
            components.commit_log,
            components.queues,
            self._extended_tags_code,
            _memory_bytes(settings.memory_ratio),
            settings,
            has_extensions=bool(components.disk.names(components.layout.consume_queue_extensions)),
        )
        self.lookup = Lookup(components.commit_log, components.queues, components.index, self.gate)
        self._appender = Appender(
            components.commit_log,
            components.queues,
            components.dispatcher,
            clock,
            store_host,
            settings.max_message_bytes,
            settings.seal_records,
        )
        self._appender.timestamp_ms = components.last_timestamp_ms
        self._retention = Retention(
            components.disk,
            components.commit_log,
            components.queues,
            components.index,
            settings,
            lambda ms: time.localtime(ms / 1000).tm_hour,
        )

    @classmethod
    def open(
        cls,
        settings: StoreSettings,
        clock: Clock,
        store_host: bytes,
        *,
        disk: Disk | None = None,
        executor: Executor | None = None,
        boot: str | None = None,
        gated: bool = False,
    ) -> "MessageStore":
        """Opens and recovers the store at `settings.root`. The caller holds the store's lock.

        `gated`: messages are visible when they are confirmed (`gate`), those that are there already as well."""
        boot = boot_id() if boot is None else boot
        gate = Gate() if gated else None
        components = open_components(disk or RealDisk(), settings, clock, executor, boot, gate)
        store = cls(components, settings, clock, store_host)
        if store._is_durable_now() or components.last_exit not in (LastExit.MACHINE_CRASH, LastExit.SYNC_FAILED):
            mark_running(components.disk, components.layout.abort, boot)
        return store

    def _is_durable_now(self) -> bool:
        """Runs a whole checkpoint, unless the disk is full: then the log has all that the next start needs."""
        try:
            self.make_durable()
        except StoreFull as error:
            log.warning("no checkpoint", extra={"reason": str(error)})
            return False
        return True

    def _extended_tags_code(self, queue: ConsumeQueue, offset: int) -> int:
        directory = self.components.layout.consume_queue_extensions / queue.topic / str(queue.queue_id)
        return QueueExtension(self.components.disk, directory).unit(offset).tags_code

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(self, drafts: Sequence[Draft]) -> list[AppendResult]:
        """One result per draft: visible at once, or when the gate shows it; durable when
        `flusher.wait_durable(appended.end)` is done."""
        if self.refusal.error is not None:
            return [self.refusal.error] * len(drafts)
        return self._timed(self._appender.append, drafts)

    def append_together(self, drafts: Sequence[Draft]) -> list[AppendResult]:
        """The same, but all or none."""
        if self.refusal.error is not None:
            return [self.refusal.error] * len(drafts)
        return self._timed(self._appender.append_together, drafts)

    def append_batch(self, batch: DraftBatch) -> AppendedBatch | StoreError:
        """A client's batch, of at least one message: all or none."""
        if self.refusal.error is not None:
            return self.refusal.error
        return self._timed(self._appender.append_batch, batch)

    def append_batches(self, drafts: DraftBatchGroup) -> list[AppendedBatch | StoreError]:
        """Several batches of one topic, each all or none."""
        if self.refusal.error is not None:
            return [self.refusal.error] * len(drafts.plans)
        return self._timed(self._appender.append_batches, drafts)

    def _timed(self, append: Callable[[D], T], drafts: D) -> T:
        if self.is_following:
            raise StoreReadOnly("this broker is a slave: it stores what its master sends, and nothing else")
        began = time.monotonic()
        outcome = append(drafts)
        self._append_ended = ended = time.monotonic()
        self.append_s = ended - began
        if self.components.commit_log.max_offset > self.derived.in_time_until:
            self.derived.write_overdue()
        if self._on_append is not None:
            self._on_append()
        return outcome

    def on_append(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each append, however many messages it had: the log has a new end."""
        self._on_append = listener

    # --- as a slave -------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """From now on the log is a copy of another, and store/following.py its only writer."""
        self.is_following = True
        self.components.commit_log.followed_to = self.components.commit_log.dispatched_to

    def followed(self, timestamp_ms: int) -> None:
        """After some records of the log were dispatched; `timestamp_ms` is the store time of the last."""
        self._appender.timestamp_ms = max(self._appender.timestamp_ms, timestamp_ms)
        if self.components.commit_log.dispatched_to > self.derived.in_time_until:
            self.derived.write_overdue()

    def delete_topics(self, *topics: str) -> None:
        """Deletes the queues of topics for good: neither recovery nor a rebuild brings their messages back.

        StoreError if the deletion cannot be recorded, and then nothing is deleted.
        """
        run_sync(self.delete_topics_steps(*topics))

    def delete_topics_steps(self, *topics: str) -> IoSteps[None]:
        """The same in steps, for topics that take no more messages; one deletion at a time.

        What was on its way is appended while the first record is saved. Then another one covers it, and the queues go
        in the step that finds nothing new.
        """
        deletions, queues, commit_log = self.components.deletions, self.components.queues, self.components.commit_log
        yield from deletions.add_steps(topics, commit_log.max_offset)
        for _ in range(_DELETION_RECORDS_MAX):
            grown = [topic for topic in topics if queues.end_of_topic(topic) > deletions.end_of(topic)]
            if not grown:
                break
            yield from deletions.add_steps(grown, commit_log.max_offset)
        else:
            deletions.add(topics, commit_log.max_offset)
        for topic in topics:
            queues.delete_topic(topic)

    def copy_deletions_steps(self, ends: Mapping[str, int]) -> IoSteps[None]:
        """At a slave: its master has deleted these topics, with their messages below these physical offsets."""
        for end in sorted(set(ends.values())):
            topics = [topic for topic, at in ends.items() if at == end]
            yield from self.components.deletions.add_steps(topics, end)
        self.components.queues.drop_deleted(self.components.deletions)

    @property
    def is_busy(self) -> bool:
        """Whether the last append, less than a second ago, was so slow that producers should slow down."""
        limit_s = self.settings.page_cache_busy_timeout_ms / 1000
        return self.append_s > limit_s and time.monotonic() - self._append_ended < _BUSY_FOR_S

    @property
    def write_error(self) -> StoreError | None:
        """Why appends fail at present; None when they are accepted."""
        return self.refusal.error

    def set_no_space(self, error: StoreFull | None) -> None:
        """Refuses appends with this error until it is called with None (store/maintenance/reserve.py)."""
        self.refusal.set_no_space(error)

    def suspend_writes(self, reason: str | None) -> None:
        """Refuses appends with WritesSuspended and this reason until it is called with None: in a group that has too
        few members in sync, or whose master this is not any more."""
        self.refusal.set_suspended(reason)

    def _sync_failed(self, error: OSError) -> None:
        self.refusal.set_sync_failed(error)
        log.critical("sync failed: the store is read-only now", extra={"error": str(error)})
        try:
            mark_sync_failed(self.components.disk, self.components.layout.abort)
        except OSError as mark_error:
            log.warning("the failed sync cannot be recorded", extra={"reason": mark_error.strerror})

    # --- a shorter log at the next start ----------------------------------------------------------------------------

    def request_truncation(self, to: int, *, epoch: int, confirmed: int = 0) -> None:
        """The next `open` cuts the log at `to`, since the log of this epoch's master parts from it there. Blocks.

        `close` this store then: it takes nothing more, and leaves its files as they are. StoreMismatch, and nothing
        has happened, if no record ends at `to`, or if it is below what is confirmed."""
        run_sync(self.request_truncation_steps(to, epoch=epoch, confirmed=confirmed))

    def request_truncation_steps(self, to: int, *, epoch: int, confirmed: int = 0) -> IoSteps[None]:
        """The same in steps."""
        confirmed = max(confirmed, 0 if self.gate is None else self.gate.confirmed_to)
        yield from self._request_steps(TruncationRequest(to, epoch, confirmed), f"its log will be cut at {to}")

    def request_wipe(self, begin: int, *, epoch: int) -> None:
        """The next `open` removes log, queues and index, and the log begins at `begin`, where a file must begin.

        Blocks, and as above. Nobody asks here whether something of it is confirmed."""
        run_sync(self.request_wipe_steps(begin, epoch=epoch))

    def request_wipe_steps(self, begin: int, *, epoch: int) -> IoSteps[None]:
        """The same in steps."""
        yield from self._request_steps(TruncationRequest(begin, epoch, wipe=True), "its log will be removed")

    def _request_steps(self, wanted: TruncationRequest, what: str) -> IoSteps[None]:
        components, commit_log = self.components, self.components.commit_log
        end = commit_log.max_offset
        yield self.flusher.sync_now
        yield partial(truncation.request, components.disk, components.layout, commit_log.segments, end, wanted)
        self._is_to_be_cut = True
        self.suspend_writes(f"this store is about to be opened again, and {what}")

    # --- maintenance ------------------------------------------------------------------------------------------------

    @contextmanager
    def checkpoint_pass(self) -> Iterator[CheckpointPass]:
        """Prepares a checkpoint on the event loop; a thread runs it while the context lasts."""
        self.derived.write()
        with self.components.index.syncing() if self.components.index is not None else nullcontext() as plan:
            yield self._plan_checkpoint([] if plan is None else [plan.run])

    def _plan_checkpoint(self, index_syncs: list[Callable[[], None]]) -> CheckpointPass:
        components = self.components
        stamp = self._appender.timestamp_ms
        syncs = [*components.queues.take_unsynced(), *index_syncs]
        self._entries_planned = components.queues.entries_added
        checkpoint = replace(
            self._checkpoint,
            sequence=self._checkpoint.sequence + self._keeps_older_state(),
            dispatched_to=components.commit_log.dispatched_to,
            store_timestamp_ms=stamp,
            physic_timestamp_ms=stamp,
            logics_timestamp_ms=stamp,
            index_timestamp_ms=stamp,
        )
        checksum_log = components.checksums.make_durable if components.checksums is not None else _no_checksums
        return CheckpointPass(self._sync_log, syncs, checksum_log, self._state_to_save(stamp), checkpoint)

    def _keeps_older_state(self) -> bool:
        """Whether the next saved state takes the place of the newest, by leaving out a number, and not of the older
        one: if the newest is not confirmed, a cut may leave only the older one to begin with."""
        return self.gate is not None and self._checkpoint.dispatched_to > self.gate.confirmed_to

    def _sync_log(self) -> int:
        """How far the log is durable, in whole records. Blocks."""
        return self.components.commit_log.whole_below(self.flusher.sync_now())

    def _state_to_save(self, timestamp_ms: int) -> StateToSave:
        components, index = self.components, self.components.index
        return StateToSave(
            components.commit_log.dispatched_to,
            timestamp_ms,
            components.queues.segment_bytes,
            (0, 0) if index is None else (index.capacity.slots, index.capacity.entries),
            components.queues.encoded_states(),
            [] if index is None else [*map(encode_index_file, index.saved_files())],
        )

    def finish_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._entries_checkpointed = self._entries_planned
        commit_log = self.components.commit_log
        commit_log.assume_cached_from = checkpoint.dispatched_to
        if commit_log.checks is not None:
            commit_log.checks.expire()
        self.derived.checkpointed()
        self.flusher.flushed(checkpoint.flushed_to)

    def extend_checksums(self, durable_to: int) -> bool:
        """Computes checksums of some durable blocks of the log; whether there are more. For the flush thread."""
        checksums, durable_to = self.components.checksums, self.components.commit_log.whole_below(durable_to)
        return checksums is not None and checksums.extend(durable_to)

    @property
    def bytes_since_checkpoint(self) -> int:
        """Bytes of log that recovery would have to scan after a crash."""
        return self.components.commit_log.dispatched_to - self._checkpoint.dispatched_to

    @property
    def entries_since_checkpoint(self) -> int:
        """Messages that recovery would have to dispatch again after any crash."""
        return self.components.queues.entries_added - self._entries_checkpointed

    def make_durable(self) -> None:
        """Runs a whole checkpoint. Blocks: at open, at close, in tests."""
        with self.checkpoint_pass() as work:
            self.finish_checkpoint(work.run(self.components.disk, self.components.layout))

    def add_retention_hold(self, hold: RetentionHold) -> None:
        """Adds a function that returns the oldest undelivered message: a nearly full disk must not delete it."""
        self._retention.add_retention_hold(hold)

    def add_log_reader(self, needed_from: LogReader) -> None:
        """Adds a function that returns from where on a slave still needs the log: its files are kept for it."""
        self._retention.add_log_reader(needed_from)

    def clean(self, *, manual: bool = False) -> CleanupResult:
        """Deletes what retention allows, and refuses or accepts writes by the disk's use."""
        return run_sync(self.clean_steps(manual=manual))

    def clean_steps(self, *, manual: bool = False) -> IoSteps[CleanupResult]:
        """As `clean`, without blocking; only one at a time."""
        done_to = self._checkpoint.dispatched_to
        if self.gate is not None:  # what is not confirmed may be needed by other members of the group
            done_to = min(done_to, self.gate.confirmed_to)
        cleaned = yield from self._retention.clean(self._clock.now_ms(), done_to, manual=manual)
        if cleaned.files:
            checksums = self.components.layout.commit_log_checksums
            yield partial(drop_checksums_before, self.components.disk, checksums, cleaned.min_offset)
        self.refusal.set_disk_use(cleaned.disk, self.settings.refuse_writes_ratio)
        return cleaned

    # --- closing ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Checkpoints and marks the stop as clean. After a failed sync, or without space, the abort marker stays, for
        recovery; also when the log is to be cut, since a checkpoint would say what will not be true."""
        components = self.components
        is_clean = (
            not self._is_to_be_cut and not isinstance(self.refusal.error, StoreReadOnly) and self._is_durable_now()
        )
        self.derived.close()
        if components.checksums is not None:
            components.checksums.close()
        components.commit_log.close()
        components.queues.close()
        if components.index is not None:
            components.index.close()
        if is_clean:
            mark_clean(components.disk, components.layout.abort)


def _no_checksums(flushed_to: int) -> None:
    """Used when block checksums are switched off."""


def _memory_bytes(ratio: float) -> int:
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * ratio)
