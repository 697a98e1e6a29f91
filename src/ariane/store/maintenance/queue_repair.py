"""Builds a damaged block of a consume queue again from the commit log.

An entry is right when it points at the record of its topic, queue and queue offset. For a wrong one, the log is read
between the records of its neighbours, which takes far less time than reading all of it:

    entries   | 1000 | 1400 | ???? | 5000 |
    log            ... [1400 .. 1600) ... search here ... [5000 ..

Works with plain reads and its own descriptors, so a thread may do it while the store runs.
"""

import logging
from collections.abc import Iterator

from ariane.store.commit_log.log import Segments
from ariane.store.commit_log.scan import DataFile, record_at, walk_records
from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES, FILLER
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.disk import Disk
from ariane.store.dispatch import queue_entry
from ariane.wire.record.read import RecordView

log = logging.getLogger(__name__)

_DELETED = ENTRY.unpack(FILLER)

Entry = tuple[int, int, int]
"""Physical offset, size, tags code."""


class QueueRepair:
    def __init__(self, disk: Disk, segments: Segments, delay_levels_ms: tuple[int, ...]) -> None:
        self._disk = disk
        self._segments = segments
        self._delay_levels_ms = delay_levels_ms

    def block(self, queue: ConsumeQueue, first_offset: int, data: bytes) -> bytes:
        """The entries of a damaged block from queue offset `first_offset` on, as the log says."""
        files = [DataFile(segment.path, segment.base, segment.file.size) for segment in tuple(self._segments)]
        found = _BlockEntries(self._disk, files, queue, first_offset, data, self._delay_levels_ms).all()
        repaired = b"".join(ENTRY.pack(*entry) for entry in found)
        changed = [
            number
            for number in range(len(found))
            if repaired[number * ENTRY_BYTES :][:ENTRY_BYTES] != data[number * ENTRY_BYTES :][:ENTRY_BYTES]
        ]
        fields = {"topic": queue.topic, "queue": queue.queue_id, "entries": len(changed), "block": first_offset}
        if changed:
            fields["first"] = first_offset + changed[0]
        log.error("a consume queue was damaged: its entries are repaired from the log", extra=fields)
        return repaired


class _BlockEntries:
    def __init__(
        self,
        disk: Disk,
        files: list[DataFile],
        queue: ConsumeQueue,
        first_offset: int,
        data: bytes,
        delay_levels_ms: tuple[int, ...],
    ) -> None:
        self._disk = disk
        self._files = files
        self._queue = queue
        self._first = first_offset
        self._given = list(ENTRY.iter_unpack(data))
        self._delay_levels_ms = delay_levels_ms
        self._log_begin = files[0].base if files else 0

    def all(self) -> list[Entry]:
        entries: list[Entry | None] = [self._checked(number, entry) for number, entry in enumerate(self._given)]
        begin, end = self._queue.block_bounds(self._first)
        number = 0
        while number < len(entries):
            if entries[number] is not None:
                number += 1
                continue
            following = next((at for at in range(number, len(entries)) if entries[at] is not None), len(entries))
            before = entries[number - 1] if number else None
            after = entries[following] if following < len(entries) else None
            low = before[0] + before[1] if before is not None else max(begin, self._log_begin)
            self._search(entries, range(number, following), low, after[0] if after is not None else end)
            number = following
        return list(self._without_gaps(entries, is_cut=begin < self._log_begin))

    def _checked(self, number: int, entry: Entry) -> Entry | None:
        """The entry as its record says; None when it does not point at its record."""
        found = record_at(self._disk, self._files, entry[0]) if entry[0] >= 0 else None
        if found is None or not self._is_of(found.view, range(number, number + 1)):
            return None
        return self._entry(found.view)

    def _is_of(self, view: RecordView, numbers: range) -> bool:
        queue = self._queue
        return (
            view.queue_offset - self._first in numbers and view.queue_id == queue.queue_id and view.topic == queue.topic
        )

    def _entry(self, view: RecordView) -> Entry:
        return queue_entry(view, self._delay_levels_ms)

    def _search(self, entries: list[Entry | None], numbers: range, low: int, high: int | None) -> None:
        """Looks for the records of these entries in a part of the log."""
        missing = len(numbers)
        for record in walk_records(self._disk, self._files, low):
            view = record.view
            if not missing or (high is not None and view.physical_offset >= high):
                return
            if self._is_of(view, numbers) and view.physical_offset == record.file.base + record.position:
                entries[view.queue_offset - self._first] = self._entry(view)
                missing -= 1

    def _without_gaps(self, entries: list[Entry | None], *, is_cut: bool) -> Iterator[Entry]:
        """Entries whose records the log has lost point to the next record, or else to the last one.

        With `is_cut`, the log begins inside the block: the first records are deleted, and nobody reads their entries.
        """
        first = next((number for number, entry in enumerate(entries) if entry is not None), len(entries))
        following: Entry | None = None
        filled: list[Entry | None] = []
        for entry in reversed(entries):
            following = entry or following
            filled.append(following)
        last = next((entry for entry in reversed(entries) if entry is not None), None)
        for number, (entry, given) in enumerate(zip(reversed(filled), self._given, strict=True)):
            if number < first and is_cut:
                is_plausible = 0 <= given[0] < self._log_begin and given[1] > 0
                yield given if is_plausible else _DELETED
            else:
                yield entry or last or given
