"""The sizes that a store was written with, read from its files: they are in no file of their own."""

from dataclasses import replace

from ariane.store.disk import Disk
from ariane.store.index_layout import ENTRY_BYTES, entries_position
from ariane.store.layout import Layout
from ariane.store.scan_index import list_index, open_index
from ariane.store.scan_queue import list_queues
from ariane.store.settings import StoreSettings
from ariane.store.verify_files import usual_size


def shape_of(disk: Disk, layout: Layout, *, index_slots: int | None = None, with_index: bool = True) -> StoreSettings:
    """The defaults, with the sizes of the queue and index files that are there.

    StoreMismatch when an index file is so damaged that its number of slots must be told.
    """
    settings = StoreSettings(root=layout.root, commit_log_path=layout.commit_log)
    queue_bytes = usual_size(file for queue in list_queues(disk, layout.consume_queues) for file in queue.files)
    if queue_bytes:
        settings = replace(settings, queue_segment_bytes=queue_bytes)
    index_files = list_index(disk, layout.index) if with_index else []
    if index_files:
        slots = open_index(disk, index_files[-1], index_slots).slots
        entries = ((disk.size(index_files[-1]) or 0) - entries_position(slots)) // ENTRY_BYTES
        return replace(settings, index_slots=slots, index_entries=entries)
    return replace(settings, index_slots=index_slots or settings.index_slots)
