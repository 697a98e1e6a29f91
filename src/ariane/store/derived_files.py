"""When queues and index go from memory to their files: what a kill takes of them is read again from the log.

A round comes every second, for thousands of queues less often, and always before so much of the log is unwritten that
a start would take long. How far the files reach is noted in the checkpoint's mark.
"""

import logging
from collections.abc import Callable
from contextlib import suppress

from ariane.clock import Clock
from ariane.errors import StoreFull
from ariane.store.checkpoint import write_mark
from ariane.store.cold_writes import QueueEnds
from ariane.store.disk import File
from ariane.store.recovery import Parts
from ariane.store.steps import Errand, Steps, at_once, until_warm

log = logging.getLogger(__name__)

_PAUSE_S, _PAUSE_S_MAX = 0.0005, 10.0  # for each queue that was written, a hundred times what its write takes
_UNWRITTEN_BYTES_MAX = 256 * 1024 * 1024
_UNWRITTEN_ENTRIES_MAX = 250_000
"""What is dispatched again in little more than a second (usual_records.py): messages cost by number more than by size.
With thousands of queues more at once is cheaper for each."""


class DerivedFiles:
    """Of one store, for the event loop."""

    def __init__(self, parts: Parts, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock
        self.written_to = parts.commit_log.max_offset
        """What of the log the files know of."""
        self._entries_written = parts.queues.entries_added
        self._due_from = 0.0
        self._queue_ends = QueueEnds(parts.disk, parts.queues)
        self._mark: File = parts.disk.open(parts.layout.checkpoint, writable=True)

    def warming_index(self) -> Steps[None]:
        """So that `dispatcher.write_index` does not wait for old bytes (cold_reads.py). StoreFull as there."""
        return _warming(self._parts.dispatcher.cold_index)

    def writing_index(self) -> Steps[None]:
        """Puts the keys that wait, as `writing` does it."""
        yield from self.warming_index()
        self._parts.dispatcher.write_index()

    def warming(self) -> Steps[None]:
        """So that `write` does not; and the next append, which may come after an hour without any."""
        log_end = self._parts.commit_log.max_offset
        with suppress(OSError):  # it is the append that tells
            yield from self._parts.commit_log.warm([(log_end - 1, 1)])
        yield from _warming(self._cold)

    def _cold(self) -> Errand | None:
        return self._queue_ends.cold() or self._parts.dispatcher.cold_index()

    @property
    def is_due(self) -> bool:
        """Whether the entries should be written that a second has brought. With thousands of queues the writes would
        take several percent of the time, so they come less often; never after more of the log than without that."""
        return self._clock.monotonic() >= self._due_from

    @property
    def is_overdue(self) -> bool:
        """Whether so much is unwritten that a start after a kill would take seconds."""
        return (
            self._parts.commit_log.max_offset - self.written_to > _UNWRITTEN_BYTES_MAX
            or self._parts.queues.entries_added - self._entries_written > _UNWRITTEN_ENTRIES_MAX
        )

    def write(self) -> None:
        """Writes the new entries of queues and index to their files, and notes in the checkpoint how far they reach."""
        at_once(self._writing())

    def writing(self) -> Steps[None]:
        """The same step by step: it waits for no old bytes, and thousands of queues do not hold up the others."""
        yield from self.warming()
        yield from self._writing()

    def write_early(self) -> None:
        """Under a heavy load a round's messages would take seconds to dispatch again after a kill."""
        try:
            self.write()
        except StoreFull as error:  # the next round tries again, and tells
            log.debug("queues or index not written", extra={"reason": str(error)})
            self._note_written(self._parts.commit_log.max_offset, self._parts.queues.entries_added)

    def _note_written(self, log_offset: int, entries: int) -> None:
        self.written_to, self._entries_written = log_offset, entries

    def _writing(self) -> Steps[None]:
        parts, written_to = self._parts, self._parts.commit_log.max_offset
        entries = parts.queues.entries_added
        self._due_from = self._clock.monotonic() + min(len(parts.queues.dirty) * _PAUSE_S, _PAUSE_S_MAX)
        parts.dispatcher.write_index()
        yield from parts.queues.writing_dirty()
        if written_to >= self.written_to:  # or all was written early meanwhile, and more
            write_mark(self._mark, written_to)
            self._note_written(written_to, entries)

    def checkpointed(self) -> None:
        """All that was written is durable, and may leave memory."""
        self._queue_ends.checkpointed()

    def close(self) -> None:
        self._mark.close()


def _warming(cold: Callable[[], Errand | None]) -> Steps[None]:
    try:
        yield from until_warm(cold)
    except OSError as error:
        raise StoreFull(f"queues or index cannot be written: {error.strerror}") from error
