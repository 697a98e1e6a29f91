"""Flushes the commit log: one fsync for all waiting appends (group commit), or one per interval.

`Flusher` knows how far the log is durable and which appends wait; `sync_now` is the step that the event loop, a thread
or a test calls. The first fsync error is final: the kernel drops what it could not write and the next fsync would
succeed without it (PostgreSQL's "fsyncgate"). So the store becomes read-only, and all waiting appends fail: their
result is unknown.

`GroupCommit` decides who syncs (docs/decisions/flush.md). While syncs are short (sync_policy.py), the event loop does,
at the end of an iteration: a thread would have to be woken, and the loop by it. Otherwise the flush thread does, so the
loop never waits for a slow disk. The thread also syncs at intervals, and computes checksums of what is durable.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf

from ariane.clock import Clock
from ariane.errors import StoreReadOnly
from ariane.store.commit_log.log import CommitLog
from ariane.store.maintenance.sync_policy import SyncPolicy
from ariane.store.settings import StoreSettings

log = logging.getLogger(__name__)

Done = Callable[[StoreReadOnly | TimeoutError | None], None]
"""Called once, on the event loop, with None when all is durable, with StoreReadOnly when a sync has failed, and with
TimeoutError when none came in time."""

_CHECKSUM_INTERVAL_S = 0.02
"""Time between two checksum steps: with thousands of syncs a second, one for each would cost as much as the syncs."""


class Flusher:
    def __init__(
        self, commit_log: CommitLog, flushed_to: int, on_error: Callable[[OSError], None], clock: Clock
    ) -> None:
        """`flushed_to` is from the checkpoint: what another process wrote after it may not be durable."""
        self._log = commit_log
        self._clock = clock
        self._on_error = on_error
        self._failure: StoreReadOnly | None = None
        self._sync_error: OSError | None = None
        self._lock = threading.Lock()
        self._waiters: deque[tuple[int, float, Done]] = deque()
        self.policy = SyncPolicy()
        self.flushed_to = min(flushed_to, commit_log.max_offset)

    @property
    def unflushed_bytes(self) -> int:
        """Bytes that are written and not yet durable."""
        return self._log.max_offset - self.flushed_to

    @property
    def is_in_one_file(self) -> bool:
        """Whether one sync of one file makes all durable, and no thread allocates the next file just now."""
        return self._log.active_base <= self.flushed_to and not self._log.is_preparing

    @property
    def deadline(self) -> float | None:
        """Of the first that waits."""
        return self._waiters[0][1] if self._waiters else None

    def when_durable(self, offset: int, done: Done, deadline: float = inf) -> None:
        """Calls `done`, perhaps now, when everything below `offset` is durable or will not be.

        First come, first served: each sync covers all that was written before it, so hardly any waits for less than
        those before it. No deadline may be before that of the last caller.
        """
        if self._failure is not None:
            done(self._failure)
        elif offset <= self.flushed_to:
            done(None)
        else:
            self._waiters.append((offset, deadline, done))

    def wait_durable(self, offset: int, deadline: float = inf) -> "asyncio.Future[None]":
        """The same as a future."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: StoreReadOnly | TimeoutError | None) -> None:
            if future.done():  # who waited was cancelled
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.when_durable(offset, done, deadline)
        return future

    def sync_now(self) -> int:
        """Syncs every file with new bytes; returns how far the log is durable then. Blocks, and may run in a thread.

        Never again after an error. And one thread at a time: of two that sync the same file at once, the kernel reports
        lost bytes only to one, and the other would see a success.
        """
        with self._lock:
            return self._sync(self.policy.synced_by_thread)

    def sync_on_loop(self) -> int | None:
        """The same, on the event loop; None, and nothing happened, when a thread syncs at the moment."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._sync(self.policy.synced_on_loop)
        finally:
            self._lock.release()

    def _sync(self, synced: Callable[[float, float], None]) -> int:
        if self._sync_error is not None:
            raise self._sync_error
        end = self._log.max_offset
        segments = self._log.segments.between(self.flushed_to, end)
        began = self._clock.monotonic()
        try:
            for segment in segments:
                segment.file.sync()
        except OSError as error:
            self._sync_error = error
            raise
        if segments:
            now = self._clock.monotonic()
            synced(now - began, now)
        return end

    def flushed(self, end: int) -> None:
        """Records a successful sync and completes waiters; on the event loop, which owns the waiters."""
        self.flushed_to = max(self.flushed_to, end)
        waiters = self._waiters
        while waiters and waiters[0][0] <= self.flushed_to:
            _call(waiters.popleft()[2], None)

    def expired(self, now: float) -> None:
        """Fails those who have waited until their deadline."""
        waiters = self._waiters
        while waiters and waiters[0][1] <= now:
            _call(waiters.popleft()[2], TimeoutError())

    def failed(self, error: OSError) -> None:
        """Records a failed sync, of queues and index as well; on the event loop. Only the first one counts."""
        if self._failure is not None:
            return
        self._sync_error = error
        self._failure = StoreReadOnly(
            f"a sync of the commit log failed ({error.strerror}): what is on disk is unknown, so the store takes no "
            "more writes. Check the disk and restart; messages not acknowledged may or may not be there"
        )
        self._on_error(error)
        waiters, self._waiters = self._waiters, deque()
        for _, _, done in waiters:
            _call(done, self._failure)


def _call(done: Done, outcome: StoreReadOnly | TimeoutError | None) -> None:
    """The others who wait must get their outcome, too."""
    try:
        done(outcome)
    except Exception:
        log.exception("an append that waited for a sync cannot be answered")


class GroupCommit:
    """Syncs for all who wait: on the event loop or in its thread. Created by `running`; for the event loop."""

    def __init__(self, flusher: Flusher, settings: StoreSettings, extend_checksums: Callable[[int], bool]) -> None:
        self._flusher = flusher
        self._extend_checksums = extend_checksums
        self._synced_to = self._checksummed_to = flusher.flushed_to
        self._checksummed_s = 0.0
        self._interval_s = settings.flush_interval_ms / 1000
        self._timeout_s = settings.sync_flush_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._is_scheduled = False
        self._others = 0
        self._is_requested = False
        self._is_idle = False
        self._due_at = time.monotonic() + self._interval_s
        self._stopped = False
        self._wake_up = threading.Lock()
        """Held by nobody in particular: the loop releases it to wake the thread. An Event does the same in Python."""
        self._wake_up.acquire()
        self._thread = threading.Thread(target=self._run, name="ariane-flush", daemon=True)

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        flusher: Flusher,
        settings: StoreSettings,
        extend_checksums: Callable[[int], bool] = lambda durable_to: False,
    ) -> AsyncIterator["GroupCommit"]:
        """`extend_checksums` gets the durable offset of the log, does some work and returns whether there is more."""
        commit = cls(flusher, settings, extend_checksums)
        commit._thread.start()
        try:
            yield commit
        finally:
            commit._stopped = True
            commit._request_of_thread()
            await asyncio.to_thread(commit._thread.join)
            if commit._deadline_timer is not None:
                commit._deadline_timer.cancel()

    # --- on the event loop ------------------------------------------------------------------------------------------

    def when_durable(self, offset: int, done: Done) -> None:
        """Calls `done` when everything below `offset` is durable, and requests the sync."""
        deadline = self._loop.time() + self._timeout_s
        self._flusher.when_durable(offset, done, deadline)
        self._request(deadline)

    def wait_durable(self, offset: int) -> "asyncio.Future[None]":
        """The same as a future."""
        deadline = self._loop.time() + self._timeout_s
        future = self._flusher.wait_durable(offset, deadline)
        self._request(deadline)
        return future

    def sync_here(self) -> bool:
        """Syncs now if that is short; whether all that was written is durable. For the end of a loop iteration."""
        if not self._may_sync_here():
            return False
        try:
            end = self._flusher.sync_on_loop()
        except OSError as error:
            self._flusher.failed(error)
            return False
        if end is None:
            return False
        self._due_at = time.monotonic() + self._interval_s
        self._flusher.flushed(end)
        if self._is_idle:  # for the checksums
            self._is_idle = False
            self._wake()
        return True

    @contextmanager
    def others_syncing(self) -> Iterator[None]:
        """While other files are synced or removed, a sync of the log may take long: the thread does it."""
        self._others += 1
        try:
            yield
        finally:
            self._others -= 1

    def _may_sync_here(self) -> bool:
        flusher = self._flusher
        return flusher.policy.allows(flusher.unflushed_bytes) and not self._others and flusher.is_in_one_file

    def _request(self, deadline: float) -> None:
        if self._flusher.deadline is None:
            return
        if self._deadline_timer is None:
            self._deadline_timer = self._loop.call_at(deadline, self._expire)
        if not self._may_sync_here():
            self._request_of_thread()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._sync_scheduled)

    def _sync_scheduled(self) -> None:
        self._is_scheduled = False
        if self._flusher.deadline is not None and not self.sync_here():
            self._request_of_thread()

    def _expire(self) -> None:
        self._deadline_timer = None
        self._flusher.expired(self._loop.time())
        deadline = self._flusher.deadline
        if deadline is not None and deadline < inf:
            self._deadline_timer = self._loop.call_at(deadline, self._expire)

    def _request_of_thread(self) -> None:
        self._is_requested = True
        self._wake()

    def _wake(self) -> None:
        if self._wake_up.locked():  # only the event loop releases it
            self._wake_up.release()

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Syncs when an append waits, and otherwise one interval after the last sync began: with ASYNC_FLUSH the oldest
        message that is not durable is no older than that, at any rate of messages."""
        while not self._stopped:
            self._wait()
            if not self._is_requested and time.monotonic() < self._due_at:
                continue
            self._is_requested = False
            self._due_at = time.monotonic() + self._interval_s
            if self._flusher.unflushed_bytes > 0 and not self._sync():
                return

    def _wait(self) -> None:
        """Until a sync is requested or due, or there is something to checksum."""
        self._is_idle = True  # before the look at what is durable: the loop changes that first, and then looks at this
        durable_to = max(self._synced_to, self._flusher.flushed_to)
        if self._checksummed_to < durable_to:
            self._is_idle = False
            if not self._is_requested and not self._woken(_CHECKSUM_INTERVAL_S):
                self._extend_checksums_to(durable_to)
        elif not self._is_requested:
            self._woken(self._due_at - time.monotonic())
        self._is_idle = False

    def _woken(self, timeout_s: float) -> bool:
        """Waits; False after the timeout."""
        return self._wake_up.acquire(timeout=max(timeout_s, 0))

    def _sync(self) -> bool:
        try:
            end = self._flusher.sync_now()
        except OSError as error:
            self._loop.call_soon_threadsafe(self._flusher.failed, error)
            return False
        self._loop.call_soon_threadsafe(self._flusher.flushed, end)
        self._synced_to = end
        if time.monotonic() >= self._checksummed_s + _CHECKSUM_INTERVAL_S:
            self._extend_checksums_to(end)
        return True

    def _extend_checksums_to(self, durable_to: int) -> None:
        """Stops as soon as a sync is requested or due: no message must wait for checksums."""
        self._checksummed_s = time.monotonic()
        while self._extend_checksums(durable_to):
            if self._is_requested or time.monotonic() >= self._due_at:
                return
        self._checksummed_to = durable_to
