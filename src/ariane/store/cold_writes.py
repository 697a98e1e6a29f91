"""The last page of a queue's file, read by a thread before the event loop writes to it.

A write that changes a page only in part needs the rest of it, and waits for the disk when that has left memory: as with
a queue to which nothing came for an hour. What was written since the checkpoint before the last one is in memory, and
the kernel is not asked: of thousands of queues that are busy, none is looked at.
"""

from collections.abc import Collection
from functools import partial

from ariane.store.cold_reads import fetch_entries
from ariane.store.consume_queue import ConsumeQueue
from ariane.store.consume_queues import ConsumeQueues
from ariane.store.disk import Disk
from ariane.store.queue_entry import ENTRY_BYTES
from ariane.store.steps import Errand

_ASKED_MAX = 64
"""Whether the pages of more queues are in memory is not even asked: a thread reads them."""


class QueueEnds:
    """For the loop; the errand is for a thread."""

    def __init__(self, disk: Disk, queues: ConsumeQueues) -> None:
        self._disk = disk
        self._queues = queues
        self._warm: set[ConsumeQueue] = set()
        self._warm_before: set[ConsumeQueue] = set()  # the last checkpoint

    def cold(self) -> Errand | None:
        """What has to be done so that `write_dirty` does not wait for old bytes; None if nothing, then call it now."""
        unknown: Collection[ConsumeQueue] = self._queues.dirty - self._warm - self._warm_before
        if len(unknown) <= _ASKED_MAX:
            unknown = [queue for queue in unknown if not queue.is_write_place_cached]
        if unknown:
            return partial(self._fetch, unknown)
        self._warm |= self._queues.dirty
        return None

    def checkpointed(self) -> None:
        """What was written before the checkpoint until now may leave memory."""
        self._warm, self._warm_before = set(), self._warm

    def _fetch(self, queues: Collection[ConsumeQueue]) -> None:
        for queue in queues:
            place = queue.write_place()
            if place is not None:
                fetch_entries(self._disk, *place, ENTRY_BYTES)
        self._warm.update(queues)
