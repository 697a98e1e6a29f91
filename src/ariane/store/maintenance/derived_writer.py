"""When queues and index go from memory to their files: what a kill takes of them is read again from the log.

A round comes every second, for thousands of queues less often, and always before so much of the log is unwritten that
a start would take long. How far the files reach is noted in the checkpoint's mark.
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

# --- cold_writes ---
#
# The last page of a queue's file, read by a thread before the event loop writes to it.
#
# A write that changes a page only in part needs the rest of it, and waits for the disk when that has left memory: as
# with a queue to which nothing came for an hour. What was written since the checkpoint before the last one is in
# memory, and the kernel is not asked: of thousands of queues that are busy, none is looked at.

_PROBED_MAX = 64
"""Whether the pages of more queues are in memory is not even asked: a thread reads them."""


class QueueEndPages:
    """For the loop; the errand is for a thread."""

    def __init__(self, disk: Disk, queues: ConsumeQueues) -> None:
        self._disk = disk
        self._queues = queues
        self._warm: set[ConsumeQueue] = set()
        self._warm_before: set[ConsumeQueue] = set()  # the last checkpoint

    def cold_fetch(self) -> BlockingCall | None:
        """What has to be done so that `write_dirty` does not wait for old bytes; None if nothing, then call it now."""
        unknown: Collection[ConsumeQueue] = self._queues.dirty - self._warm - self._warm_before
        if len(unknown) <= _PROBED_MAX:
            unknown = [queue for queue in unknown if not queue.is_write_position_cached]
        if unknown:
            return partial(self._fetch, unknown)
        self._warm |= self._queues.dirty
        return None

    def checkpointed(self) -> None:
        """What was written before the checkpoint until now may leave memory."""
        self._warm, self._warm_before = set(), self._warm

    def _fetch(self, queues: Collection[ConsumeQueue]) -> None:
        for queue in queues:
            place = queue.write_position()
            if place is not None:
                fetch_entries(self._disk, *place, ENTRY_BYTES)
        self._warm.update(queues)


# ---

log = logging.getLogger(__name__)

_PAUSE_S, _PAUSE_S_MAX = 0.0005, 10.0  # for each queue that was written, a hundred times what its write takes
_UNWRITTEN_BYTES_MAX = 256 * 1024 * 1024
_UNWRITTEN_ENTRIES_MAX = 250_000
"""What is dispatched again in little more than a second (usual_records.py): messages cost by number more than by size.
With thousands of queues more at once is cheaper for each."""


class DerivedWriter:
    """Of one store, for the event loop."""

    def __init__(self, components: StoreComponents, clock: Clock) -> None:
        self._components = components
        self._clock = clock
        self.written_to = components.commit_log.max_offset
        """What of the log the files know of."""
        self._entries_written = components.queues.entries_added
        self._due_from = 0.0
        self._queue_end_pages = QueueEndPages(components.disk, components.queues)
        self._mark: File = components.disk.open(components.layout.checkpoint, writable=True)

    def warm_index_steps(self) -> IoSteps[None]:
        """So that `dispatcher.write_index` does not wait for old bytes (cold_reads.py). StoreFull as there."""
        return _warm_steps(self._components.dispatcher.cold_index_fetch)

    def write_index_steps(self) -> IoSteps[None]:
        """Puts the keys that wait, as `writing` does it."""
        yield from self.warm_index_steps()
        self._components.dispatcher.write_index()

    def warm_steps(self) -> IoSteps[None]:
        """So that `write` does not; and the next append, which may come after an hour without any."""
        log_end = self._components.commit_log.max_offset
        with suppress(OSError):  # it is the append that tells
            yield from self._components.commit_log.warm([(log_end - 1, 1)])
        yield from _warm_steps(self._cold_fetch)

    def _cold_fetch(self) -> BlockingCall | None:
        return self._queue_end_pages.cold_fetch() or self._components.dispatcher.cold_index_fetch()

    @property
    def is_due(self) -> bool:
        """Whether the entries should be written that a second has brought. With thousands of queues the writes would
        take several percent of the time, so they come less often; never after more of the log than without that."""
        return self._clock.monotonic() >= self._due_from

    @property
    def is_overdue(self) -> bool:
        """Whether so much is unwritten that a start after a kill would take seconds."""
        return (
            self._components.commit_log.max_offset - self.written_to > _UNWRITTEN_BYTES_MAX
            or self._components.queues.entries_added - self._entries_written > _UNWRITTEN_ENTRIES_MAX
        )

    def write(self) -> None:
        """Writes the new entries of queues and index to their files, and notes in the checkpoint how far they reach."""
        run_sync(self._write_steps())

    def write_steps(self) -> IoSteps[None]:
        """The same step by step: it waits for no old bytes, and thousands of queues do not hold up the others."""
        yield from self.warm_steps()
        yield from self._write_steps()

    def write_early(self) -> None:
        """Under a heavy load a round's messages would take seconds to dispatch again after a kill."""
        try:
            self.write()
        except StoreFull as error:  # the next round tries again, and tells
            log.debug("queues or index not written", extra={"reason": str(error)})
            self._note_written(self._components.commit_log.max_offset, self._components.queues.entries_added)

    def _note_written(self, log_offset: int, entries: int) -> None:
        self.written_to, self._entries_written = log_offset, entries

    def _write_steps(self) -> IoSteps[None]:
        components, written_to = self._components, self._components.commit_log.max_offset
        entries = components.queues.entries_added
        self._due_from = self._clock.monotonic() + min(len(components.queues.dirty) * _PAUSE_S, _PAUSE_S_MAX)
        components.dispatcher.write_index()
        yield from components.queues.write_dirty_steps()
        if written_to >= self.written_to:  # or all was written early meanwhile, and more
            write_mark(self._mark, written_to)
            self._note_written(written_to, entries)

    def checkpointed(self) -> None:
        """All that was written is durable, and may leave memory."""
        self._queue_end_pages.checkpointed()

    def close(self) -> None:
        self._mark.close()


def _warm_steps(cold: Callable[[], BlockingCall | None]) -> IoSteps[None]:
    try:
        yield from until_cached(cold)
    except OSError as error:
        raise StoreFull(f"queues or index cannot be written: {error.strerror}") from error
