"""How far the commit log is durable, and which appends wait for it: group commit, one fsync for all that wait.

`sync_now` is the step that the event loop, a thread or a test calls; group_commit.py decides who does, and when. The
first fsync error is final: the kernel drops what it could not write and the next fsync would succeed without it
(PostgreSQL's "fsyncgate"). So the store becomes read-only, and all waiting appends fail: their result is unknown.
"""

import asyncio
import threading
from collections.abc import Callable
from math import inf

from ariane.clock import Clock
from ariane.errors import StoreReadOnly
from ariane.store.commit_log.log import CommitLog
from ariane.store.commit_log.waiters import Done, OffsetWaiters, wait
from ariane.store.maintenance.sync_policy import SyncPolicy


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
        self._waiters = OffsetWaiters()
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
        return self._waiters.deadline

    def when_durable(self, offset: int, done: Done, deadline: float = inf) -> None:
        """Calls `done`, perhaps now, when everything below `offset` is durable; with StoreReadOnly if a sync failed.
        No deadline may be before that of the last caller."""
        if self._failure is not None:
            done(self._failure)
        elif offset <= self.flushed_to:
            done(None)
        else:
            self._waiters.add(offset, done, deadline)

    def wait_durable(self, offset: int, deadline: float = inf) -> "asyncio.Future[None]":
        """The same as a future."""
        return wait(lambda done: self.when_durable(offset, done, deadline))

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
        self._waiters.reached(self.flushed_to)

    def expired(self, now: float) -> None:
        """Fails those who have waited until their deadline."""
        self._waiters.expired(now)

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
        self._waiters.fail(self._failure)
