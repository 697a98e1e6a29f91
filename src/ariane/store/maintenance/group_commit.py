"""Who syncs the commit log, and when: the event loop or the flush thread, for all who wait or at intervals.

While syncs are short (sync_policy.py), the event loop syncs at the end of an iteration: a thread would have to be
woken, and the loop by it. Otherwise the flush thread does, so the loop never waits for a slow disk
(docs/decisions/flush.md). The thread also syncs at intervals, and computes checksums of what is durable.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf

from ariane.store.commit_log.waiters import Done
from ariane.store.maintenance.flush import Flusher
from ariane.store.settings import StoreSettings

_CHECKSUM_INTERVAL_S = 0.02
"""Time between two checksum steps: with thousands of syncs a second, one for each would cost as much as the syncs."""


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
