"""Writes new entries of consume queues and index from memory to their files (derived from the log, so never awaited).

What a kill loses is read again from the log. A pass runs every second, less often with thousands of queues, and always
before so much of the log is unwritten that recovery would take long. How far the files reach is recorded in the
checkpoint's written mark (store/checkpoint.py).
"""

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from ariane.clock import Clock
from ariane.errors import StoreFull
from ariane.store.blocking_io import BlockingCall, IoSteps, fetch_entries, run_sync, until_cached
from ariane.store.checkpoint import write_mark
from ariane.store.consume_queue.entry import ENTRY_BYTES
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.disk import Disk, File
from ariane.store.maintenance.recovery import StoreComponents
from ariane.wire.record.layout import RECORD_BYTES_MIN

_PROBED_MAX = 64
"""The pages of more queues are not probed in the page cache: a thread reads them all."""


class QueueEndPages:
    """Caches the last page of queue files, by a thread, before the event loop writes to them.

    A write that changes only part of a page needs the rest of it, and blocks if that is cold: as with a queue that got
    nothing for an hour. What was written since the checkpoint before the last one counts as cached without a system
    call: thousands of busy queues need no probe at all.
    """

    def __init__(self, disk: Disk, queues: ConsumeQueues) -> None:
        self._disk = disk
        self._queues = queues
        self._warm: set[ConsumeQueue] = set()
        self._warm_before: set[ConsumeQueue] = set()  # the last checkpoint

    def cold_fetch(self) -> BlockingCall | None:
        """The blocking call that caches the pages which `write_dirty` changes; None if cached, then call it now."""
        unknown: Collection[ConsumeQueue] = self._queues.dirty - self._warm - self._warm_before
        if len(unknown) <= _PROBED_MAX:
            unknown = [queue for queue in unknown if not queue.is_write_position_cached]
        if unknown:
            return partial(self._fetch, unknown)
        self._warm |= self._queues.dirty
        return None

    def checkpointed(self) -> None:
        """The kernel may now evict what was written before the previous checkpoint."""
        self._warm, self._warm_before = set(), self._warm

    def _fetch(self, queues: Collection[ConsumeQueue]) -> None:
        for queue in queues:
            position = queue.write_position()
            if position is not None:
                fetch_entries(self._disk, *position, ENTRY_BYTES)
        self._warm.update(queues)


log = logging.getLogger(__name__)

_PAUSE_S, _PAUSE_S_MAX = 0.0005, 10.0  # for each queue that was written, a hundred times what its write takes
_UNWRITTEN_BYTES_MAX = 256 * 1024 * 1024
_UNWRITTEN_ENTRIES_MAX = 250_000
"""Recovery dispatches so many again in little more than a second (commit_log/recovery.py): their number costs more than
their size. With thousands of queues, more at once is cheaper for each."""


class DerivedWriter:
    """The writer of one store, for the event loop."""

    def __init__(self, components: StoreComponents, clock: Clock) -> None:
        self._components = components
        self._clock = clock
        self.written_to = components.commit_log.dispatched_to
        """The files have the entries of all records below this physical offset."""
        self._entries_written = components.queues.entries_added
        self.in_time_until = self.written_to
        """Up to this end of the log nothing is overdue: one comparison for each append. Then `write_overdue`."""
        self._due_from = 0.0
        self._queue_end_pages = QueueEndPages(components.disk, components.queues)
        self._mark: File = components.disk.open(components.layout.checkpoint, writable=True)

    def warm_index_steps(self) -> IoSteps[None]:
        """Caches the pages that `dispatcher.write_index` touches (store/blocking_io.py). StoreFull as there."""
        return _warm_steps(self._components.dispatcher.cold_index_fetch)

    def write_index_steps(self) -> IoSteps[None]:
        """Adds the pending keys to the index without blocking."""
        yield from self.warm_index_steps()
        self._components.dispatcher.write_index()

    def warm_steps(self) -> IoSteps[None]:
        """Caches the pages that `write` touches, and that of the next append, which may come after an idle hour."""
        with suppress(OSError):  # the append reports it
            yield from self._components.commit_log.warm_end()
        yield from _warm_steps(self._cold_fetch)

    def _cold_fetch(self) -> BlockingCall | None:
        return self._queue_end_pages.cold_fetch() or self._components.dispatcher.cold_index_fetch()

    @property
    def is_due(self) -> bool:
        """Whether the entries of the last second should be written. With thousands of queues the writes would take
        several percent of the time, so they come less often; the limits of `write_overdue` still hold."""
        return self._clock.monotonic() >= self._due_from

    def write(self) -> None:
        """Writes new entries of queues and index to their files, and records in the checkpoint how far they reach."""
        run_sync(self._write_steps())

    def write_steps(self) -> IoSteps[None]:
        """As `write`, without blocking: cold pages are read first, and thousands of queues are written in steps."""
        yield from self.warm_steps()
        yield from self._write_steps()

    def write_overdue(self) -> None:
        """Under heavy load, recovery would need seconds for the messages of one pass, so an append writes them."""
        log_end = self._components.commit_log.dispatched_to
        bytes_left = self.written_to + _UNWRITTEN_BYTES_MAX - log_end
        entries_left = self._entries_written + _UNWRITTEN_ENTRIES_MAX - self._components.queues.entries_added
        if bytes_left >= 0 and entries_left >= 0:
            self.in_time_until = log_end + min(bytes_left, entries_left * RECORD_BYTES_MIN)
            return
        try:
            self.write()
        except StoreFull as error:  # the next pass tries again, and logs it
            log.debug("queues or index not written", extra={"reason": str(error)})
            self._note_written(log_end, self._components.queues.entries_added)

    def _note_written(self, log_offset: int, entries: int) -> None:
        self.written_to, self._entries_written = log_offset, entries
        self.in_time_until = log_offset

    def _write_steps(self) -> IoSteps[None]:
        components, written_to = self._components, self._components.commit_log.dispatched_to
        entries = components.queues.entries_added
        self._due_from = self._clock.monotonic() + min(len(components.queues.dirty) * _PAUSE_S, _PAUSE_S_MAX)
        components.dispatcher.write_index()
        yield from components.queues.write_dirty_steps()
        if written_to >= self.written_to:  # otherwise `write_overdue` has written more meanwhile
            write_mark(self._mark, written_to)
            self._note_written(written_to, entries)

    def checkpointed(self) -> None:
        """All that was written is durable, and the kernel may evict it."""
        self._queue_end_pages.checkpointed()

    def close(self) -> None:
        self._mark.close()


def _warm_steps(cold_fetch: Callable[[], BlockingCall | None]) -> IoSteps[None]:
    try:
        yield from until_cached(cold_fetch)
    except OSError as error:
        raise StoreFull(f"queues or index cannot be written: {error.strerror}") from error
