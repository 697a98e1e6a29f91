"""Flushes the commit log: one fsync for all waiting appends (group commit), or one per interval.

`Flusher` knows how far the log is durable and which appends wait; `sync_now` is the step that a thread or a test calls.
The first fsync error is final: the kernel drops what it could not write and the next fsync would succeed without it
(PostgreSQL's "fsyncgate"). So the store becomes read-only, and all waiting appends fail: their result is unknown.
"""

import asyncio
import heapq
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

from ariane.errors import StoreReadOnly
from ariane.store.commit_log.log import CommitLog
from ariane.store.settings import StoreSettings

log = logging.getLogger(__name__)

_CHECKSUM_INTERVAL_S = 0.02
"""Time between two checksum steps: with thousands of syncs a second, one for each would cost as much as the syncs."""


class Flusher:
    def __init__(self, commit_log: CommitLog, flushed_to: int, on_error: Callable[[OSError], None]) -> None:
        """`flushed_to` is from the checkpoint: what another process wrote after it may not be durable."""
        self._log = commit_log
        self._on_error = on_error
        self._failure: StoreReadOnly | None = None
        self._sync_error: OSError | None = None
        self._lock = threading.Lock()
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._ticket = count()
        self.flushed_to = min(flushed_to, commit_log.max_offset)

    @property
    def unflushed_bytes(self) -> int:
        """Bytes that are written and not yet durable."""
        return self._log.max_offset - self.flushed_to

    def wait_durable(self, offset: int) -> "asyncio.Future[None]":
        """Done when everything below `offset` is durable; StoreReadOnly when a sync has failed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            future.set_exception(self._failure)
        elif offset <= self.flushed_to:
            future.set_result(None)
        else:
            heapq.heappush(self._waiters, (offset, next(self._ticket), future))
        return future

    def sync_now(self) -> int:
        """Syncs every file with new bytes; returns how far the log is durable then. Blocks, and may run in a thread.

        Never again after an error. And one thread at a time: of two that sync the same file at once, the kernel reports
        lost bytes only to one, and the other would see a success.
        """
        with self._lock:
            if self._sync_error is not None:
                raise self._sync_error
            try:
                return self._sync_files()
            except OSError as error:
                self._sync_error = error
                raise

    def _sync_files(self) -> int:
        end = self._log.max_offset
        for segment in tuple(self._log.segments):
            if segment.end > self.flushed_to and segment.base < end:
                segment.file.sync()
        return end

    def flushed(self, end: int) -> None:
        """Records a successful sync and completes waiters; on the event loop, which owns the waiters."""
        self.flushed_to = max(self.flushed_to, end)
        while self._waiters and self._waiters[0][0] <= self.flushed_to:
            _, _, future = heapq.heappop(self._waiters)
            if not future.done():
                future.set_result(None)

    def failed(self, error: OSError) -> None:
        """Records a failed sync, of queues and index as well; on the event loop. Only the first one counts."""
        if self._failure is not None:
            return
        self._sync_error = error
        self._failure = StoreReadOnly(
            f"a sync of the commit log failed ({error.strerror}): what is on disk is unknown, so the store takes no "
            "more writes. Check the disk and restart; messages not acknowledged may or may not be there"
        )
        waiters, self._waiters = self._waiters, []
        for _, _, future in waiters:
            if not future.done():
                future.set_exception(self._failure)
        self._on_error(error)


class FlushThread:
    """Runs a Flusher's syncs in one thread: at once when an append waits, else at intervals."""

    def __init__(self, flusher: Flusher, settings: StoreSettings, extend_checksums: Callable[[int], bool]) -> None:
        self._flusher = flusher
        self._extend_checksums = extend_checksums
        self._durable_to = self._checksummed_to = flusher.flushed_to
        self._checksummed_s = 0.0
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._sync_requested = threading.Event()
        self._due_at = time.monotonic() + settings.flush_interval_ms / 1000
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="ariane-flush", daemon=True)

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        flusher: Flusher,
        settings: StoreSettings,
        extend_checksums: Callable[[int], bool] = lambda durable_to: False,
    ) -> AsyncIterator["FlushThread"]:
        """`extend_checksums` gets the durable offset of the log, does some work and returns whether there is more."""
        thread = cls(flusher, settings, extend_checksums)
        thread._thread.start()
        try:
            yield thread
        finally:
            thread._stopped = True
            thread._sync_requested.set()
            await asyncio.to_thread(thread._thread.join)

    def wake(self) -> None:
        """Requests a sync, because an append waits for it."""
        self._sync_requested.set()

    def _run(self) -> None:
        """Syncs when an append waits, and otherwise one interval after the last sync began: with ASYNC_FLUSH the oldest
        message that is not durable is no older than that, at any rate of messages."""
        while not self._stopped:
            if self._checksummed_to < self._durable_to and not self._sync_requested.wait(_CHECKSUM_INTERVAL_S):
                self._extend_checksums_to(self._durable_to)
            self._sync_requested.wait(max(self._due_at - time.monotonic(), 0))
            self._sync_requested.clear()
            self._due_at = time.monotonic() + self._settings.flush_interval_ms / 1000
            if self._flusher.unflushed_bytes > 0 and not self._sync():
                return

    def _sync(self) -> bool:
        try:
            end = self._flusher.sync_now()
        except OSError as error:
            self._loop.call_soon_threadsafe(self._flusher.failed, error)
            return False
        self._loop.call_soon_threadsafe(self._flusher.flushed, end)
        self._durable_to = end
        if time.monotonic() >= self._checksummed_s + _CHECKSUM_INTERVAL_S:
            self._extend_checksums_to(end)
        return True

    def _extend_checksums_to(self, durable_to: int) -> None:
        """Stops as soon as a sync is requested or due: no message must wait for checksums."""
        self._checksummed_s = time.monotonic()
        while self._extend_checksums(durable_to):
            if self._sync_requested.is_set() or time.monotonic() >= self._due_at:
                return
        self._checksummed_to = durable_to
