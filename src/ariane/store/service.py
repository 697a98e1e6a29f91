"""A running message store: its threads, its periodic maintenance, and appends that wait until they are durable."""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from ariane.clock import Clock
from ariane.errors import StoreFull, StoreReadOnly
from ariane.lifecycle import Job, background, every
from ariane.store.append.appender import AppendResult
from ariane.store.append.draft import Appended, Draft
from ariane.store.blocking_io import IoSteps, run_in_executor
from ariane.store.commit_log.waiters import Done, wait
from ariane.store.disk import mount_of
from ariane.store.layout import Layout
from ariane.store.lock import locked
from ariane.store.maintenance.group_commit import GroupCommit
from ariane.store.maintenance.reserve import Reserve
from ariane.store.maintenance.retention import CleanupResult
from ariane.store.message_store import MessageStore
from ariane.store.read.lookup import QUERY_MAX
from ariane.store.read.reader import BYTES_ANY, TagMatch
from ariane.store.read.result import ReadResult
from ariane.store.settings import FlushDiskType, StoreSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

_INDEX_INTERVAL_MS = 50  # how long after its append a key may still be missing from the index
_INDEX_CHECK_INTERVAL_MS = 31_000
_EARLY_CHECKPOINT_INTERVAL_MS = 1000
EARLY_CHECKPOINT_BYTES = 128 * 1024 * 1024
EARLY_CHECKPOINT_ENTRIES = 250_000
"""With so much log or so many messages since the last checkpoint the next one comes early: recovery reads that much in
two seconds."""


class StoreService:
    """Created by `StoreService.open`, a context for its whole life: lock, recovery, threads, periodic maintenance."""

    def __init__(
        self,
        store: MessageStore,
        group_commit: GroupCommit,
        executor: ThreadPoolExecutor,
        reserve: Reserve | None = None,
    ) -> None:
        self.store = store
        self._reserve = reserve
        self.group_commit = group_commit
        self._executor = executor
        self._is_sync = store.settings.flush_disk_type is FlushDiskType.SYNC
        self._checkpoint_lock = asyncio.Lock()
        self._clean_lock = asyncio.Lock()
        self._early_checkpoint_from = 0.0
        self._timeout_s = store.settings.sync_flush_timeout_ms / 1000
        self._confirm_timer: asyncio.TimerHandle | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: StoreSettings, clock: Clock, store_host: bytes, *, gated: bool = False
    ) -> AsyncIterator["StoreService"]:
        """`gated`: messages are visible when they are confirmed (consume_queue/gate.py)."""
        layout = Layout.under(settings.root, settings.commit_log_path)
        layout.root.mkdir(parents=True, exist_ok=True)
        # The lock is released last: no thread may still remove files when the next process lists them.
        with locked(layout.lock), ThreadPoolExecutor(max_workers=4, thread_name_prefix="ariane-store") as executor:
            reserve = Reserve(layout.reserve, settings.reserve_bytes)
            no_space = await asyncio.to_thread(reserve.update)
            try:
                open_store = partial(MessageStore.open, executor=executor, gated=gated)
                store = await asyncio.to_thread(open_store, settings, clock, store_host)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    where = mount_of(layout.root)
                    raise StoreFull(f"the file system {where} is full, even without the reserve: free some") from error
                raise
            store.set_no_space(no_space)
            try:
                async with GroupCommit.running(store.flusher, settings, store.extend_checksums) as group_commit:
                    service = cls(store, group_commit, executor, reserve)
                    try:
                        async with background(*service._maintenance_jobs(settings, clock)):
                            yield service
                    finally:
                        service._end_waiting()
            finally:
                store.close()

    def _maintenance_jobs(self, settings: StoreSettings, clock: Clock) -> list[Job]:
        jobs: list[tuple[float, Callable[[], Awaitable[None] | None]]] = [
            (_INDEX_INTERVAL_MS, self._write_index),
            (settings.queue_flush_interval_ms, self._write_derived),
            (settings.queue_flush_thorough_interval_ms, self._make_durable),
            (_EARLY_CHECKPOINT_INTERVAL_MS, self._make_durable_early),
            (settings.clean_interval_ms, self._clean),
            (_INDEX_CHECK_INTERVAL_MS, self._check_index),
        ]
        return [partial(every, clock, ms / 1000, action, ms / 1000) for ms, action in jobs]

    # --- maintenance ------------------------------------------------------------------------------------------------

    async def _write_index(self) -> None:
        if self.store.components.dispatcher.pending_key_count:
            await self._unless_full(self.store.derived.write_index_steps())

    async def _write_derived(self) -> None:
        if self.store.derived.is_due:
            await self._unless_full(self.store.derived.write_steps())

    async def _unless_full(self, writing: IoSteps[None]) -> None:
        try:
            await self.run(writing)
        except StoreFull as error:  # entries and keys stay in memory, the next pass tries again
            log.warning("queues or index not written", extra={"reason": str(error)})

    async def _make_durable_early(self) -> None:
        """Under load, a minute of traffic would take a minute to recover after a crash.

        At most a tenth of the time is spent here: a checkpoint syncs every queue that changed, which may take a while.
        """
        loop = asyncio.get_running_loop()
        is_little = (
            self.store.bytes_since_checkpoint < EARLY_CHECKPOINT_BYTES
            and self.store.entries_since_checkpoint < EARLY_CHECKPOINT_ENTRIES
        )
        if is_little or loop.time() < self._early_checkpoint_from or self.store.write_error:
            return
        began = loop.time()
        await self._make_durable()
        self._early_checkpoint_from = loop.time() + 9 * (loop.time() - began)

    async def _make_durable(self) -> None:
        async with self._checkpoint_lock:
            with self.group_commit.others_syncing():
                await self._checkpoint()

    async def _checkpoint(self) -> None:
        store = self.store
        loop = asyncio.get_running_loop()
        try:
            await self.run(store.derived.write_steps())  # so that the checkpoint has little to write at once
            with store.checkpoint_pass() as work:
                run = partial(work.run, store.components.disk, store.components.layout)
                store.finish_checkpoint(await loop.run_in_executor(self._executor, run))
        except StoreFull as error:
            log.warning("no checkpoint", extra={"reason": str(error)})
        except (OSError, StoreReadOnly) as error:  # the index raises StoreReadOnly when its sync fails
            store.flusher.failed(error if isinstance(error, OSError) else OSError(errno.EIO, str(error)))

    async def _check_index(self) -> None:
        """Checks one of the index files that were too large for the start."""
        index = self.store.components.index
        check = index.next_check() if index is not None else None
        if index is not None and check is not None:
            with index.lease():
                await asyncio.get_running_loop().run_in_executor(self._executor, check)

    async def _clean(self) -> None:
        await self.clean()

    # --- for the broker ---------------------------------------------------------------------------------------------

    async def append(self, drafts: Sequence[Draft]) -> list[AppendResult]:
        """Appends and, with SYNC_FLUSH, waits until all of it is durable. TimeoutError: the result is unknown."""
        results = self.store.append(drafts)
        if self._is_sync:
            await self.wait_durable(results)
        return results

    async def wait_safe(self, results: Sequence[AppendResult]) -> None:
        """Waits until they are durable, and confirmed where that is asked for. TimeoutError or a StoreError if not."""
        await self.wait_durable(results)
        end = max((result.end for result in results if isinstance(result, Appended)), default=0)
        if self.store.gate is not None and end > self.store.gate.confirmed_to:
            await wait(partial(self.when_confirmed, end))

    async def wait_durable(self, results: Sequence[AppendResult]) -> None:
        end = max((result.end for result in results if isinstance(result, Appended)), default=0)
        if end > self.store.flusher.flushed_to:
            await self.group_commit.wait_durable(end)

    def when_durable(self, end: int, done: Done) -> None:
        """The same for callers that do not wait: `done` gets the outcome. A sync is requested."""
        self.group_commit.when_durable(end, done)

    def when_confirmed(self, end: int, done: Done) -> None:
        """`done` gets the outcome: None, perhaps now; a TimeoutError after syncFlushTimeout; OutcomeUnknown."""
        gate, loop = self.store.gate, asyncio.get_running_loop()
        if gate is None:
            done(None)
            return
        gate.when_confirmed(end, done, loop.time() + self._timeout_s)
        if self._confirm_timer is None and gate.deadline is not None:
            self._confirm_timer = loop.call_at(gate.deadline, self._expire_waiting)

    def _expire_waiting(self) -> None:
        self._confirm_timer = None
        gate, loop = self.store.gate, asyncio.get_running_loop()
        if gate is not None:
            gate.expired(loop.time())
            if gate.deadline is not None:
                self._confirm_timer = loop.call_at(gate.deadline, self._expire_waiting)

    def _end_waiting(self) -> None:
        if self.store.gate is not None:
            self.store.gate.end_epoch()
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()

    def after_confirmed(self, action: Callable[[], None]) -> None:
        """Calls `action` when all that was appended until now is confirmed: at once without a gate, and never if the
        role of the broker ends before."""
        if self.store.gate is None:
            action()
        else:
            self.store.gate.after_confirmed(self.store.components.commit_log.max_offset, action)

    def sync_here(self) -> bool:
        """Syncs on the event loop if that is short; whether all that was written is durable now.

        For the end of an event-loop iteration, when all that came with it is written."""
        return self.group_commit.sync_here()

    async def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int = BYTES_ANY,
        tag_match: TagMatch | None = None,
    ) -> ReadResult:
        """As `Reader.read`; a thread first fetches what is not in the page cache, so the event loop never blocks."""
        return await self.run(self.store.reader.read_steps(topic, queue_id, offset, count_max, bytes_max, tag_match))

    async def by_key(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[memoryview]:
        """As `Lookup.by_key`, including keys just appended; threads read the index and the records."""
        index = self.store.components.index
        if index is None:
            return []
        await self._write_index()
        loop = asyncio.get_running_loop()
        with index.lease():
            hits = await loop.run_in_executor(self._executor, index.query, topic, key, QUERY_MAX, begin_ms, end_ms)
        await self.run(self.store.components.commit_log.warm_records(hits.offsets))
        return self.store.lookup.with_key(hits.offsets, topic, key, count_max)

    async def clean(self, *, manual: bool = False) -> CleanupResult:
        """As `MessageStore.clean`; threads look up old entries and remove files."""
        async with self._clean_lock:
            with self.group_commit.others_syncing():
                cleaned = await self.run(self.store.clean_steps(manual=manual))
            if self._reserve is not None:
                loop = asyncio.get_running_loop()
                self.store.set_no_space(await loop.run_in_executor(self._executor, self._reserve.update))
            return cleaned

    async def run(self, steps: IoSteps[T]) -> T:
        """Runs the steps; the store's threads execute their blocking calls."""
        return await run_in_executor(steps, self._executor)
