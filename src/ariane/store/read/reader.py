"""Reads messages of a queue from an offset on, with or without a filter.

A read returns slices of the mapped log: nothing is decoded or copied. Records that may be damaged are left out. How
much it returns is limited by Apache's settings, so that consumers behave as with Apache's broker.

Methods that end in `_steps` are for the event loop, which must not block (store/blocking_io.py); the others may block.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from ariane.errors import StoreError
from ariane.store.blocking_io import IoSteps, run_sync
from ariane.store.commit_log.log import CommitLog
from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES, extension_offset
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.read.fast_reads import ReadAhead, SegmentRead, find_segment_read
from ariane.store.read.result import ReadResult, ReadStatus, found_result, out_of_range
from ariane.store.settings import StoreSettings

SCANNED_ENTRIES_MIN = 800  # a filter without a match stops after so many entries, or the requested number
BYTES_ANY = 1 << 62
"""No limit of bytes by the caller: only the settings limit a read."""

TagMatch = Callable[[int], bool]
RecordMatch = Callable[[memoryview], bool]


class Reader:
    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        extended_tags_code: Callable[[ConsumeQueue, int], int],
        memory_bytes_max: int,
        settings: StoreSettings,
        *,
        has_extensions: bool = False,
    ) -> None:
        """`extended_tags_code` reads the tags code at an offset of a queue's extension, which only Apache writes;
        `has_extensions` says whether this store has any. `memory_bytes_max` is how much of the log's end counts as
        cached (by default 40 % of the machine's memory). Each read uses the current `settings`: some are reloadable.
        """
        self._log = commit_log
        self._queues = queues
        self._extended_tags_code = extended_tags_code
        self._has_extensions = has_extensions
        self._memory_bytes_max = memory_bytes_max
        self._settings = settings

    # --- by queue offset --------------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int = BYTES_ANY,
        tag_match: TagMatch | None = None,
        record_match: RecordMatch | None = None,
    ) -> ReadResult:
        """At most `count_max` messages from `offset` on; at least one if there is one, however large. May block."""
        result = self._read(topic, queue_id, offset, count_max, bytes_max, tag_match, record_match)
        run_sync(self._log.warm(result.ranges))
        return self._without_damage(result)

    def _read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int,
        tag_match: TagMatch | None,
        record_match: RecordMatch | None = None,
    ) -> ReadResult:
        """Without a check of the records."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return ReadResult(status=ReadStatus.NO_MATCHED_LOGIC_QUEUE, next_offset=0)
        beyond = out_of_range(queue, offset)
        if beyond is not None:
            return beyond
        return self._gather(queue, offset, count_max, bytes_max, tag_match, record_match)

    def _without_damage(self, result: ReadResult) -> ReadResult:
        """Without records that may be damaged (commit_log/checked_blocks.py); the reader continues behind them."""
        log = self._log
        if not log.has_damage:
            return result
        rows = [
            (record, location)
            for record, location in zip(result.slices, result.ranges, strict=True)
            if not log.withholds(*location)
        ]
        if len(rows) == len(result.slices):
            return result
        return replace(
            result,
            status=ReadStatus.FOUND if rows else ReadStatus.NO_MATCHED_MESSAGE,
            slices=[record for record, _ in rows],
            ranges=[location for _, location in rows],
        )

    def _gather(
        self,
        queue: ConsumeQueue,
        offset: int,
        count_max: int,
        bytes_max: int,
        tag_match: TagMatch | None,
        record_match: RecordMatch | None,
    ) -> ReadResult:
        slices: list[memoryview] = []
        ranges: list[tuple[int, int]] = []
        gathered = scanned = base = limit = 0
        view = memoryview(b"")
        status = ReadStatus.NO_MATCHED_MESSAGE
        last_physical = 0
        # Without a filter every entry matches: read no more entries than the response can hold.
        filtered = tag_match is not None or record_match is not None
        entries = queue.entries(offset, self._scanned_max(count_max, filtered=filtered))
        if not filtered and (segment_read := self._fast_read(entries, count_max, bytes_max)) is not None:
            return found_result(queue, offset, segment_read)
        removed_below = self._log.min_offset
        for physical, size, tags_code in ENTRY.iter_unpack(entries):
            if not scanned:
                count_max, bytes_max = self._limited(count_max, bytes_max, physical)
            if slices and (len(slices) >= count_max or gathered + size > bytes_max):
                break
            scanned += 1
            last_physical = physical
            if physical < removed_below:
                status = ReadStatus.MESSAGE_WAS_REMOVING
                continue
            if tag_match is not None and not tag_match(self._tags_code(queue, tags_code)):
                continue
            end = physical + size
            if not base <= physical < end <= limit:  # nearly all are in one file: look it up once, not 32 times
                base, limit, view = self._log.window(physical)
                if end > limit:
                    status = ReadStatus.MESSAGE_WAS_REMOVING
                    continue
            record = view[physical - base : end - base]
            if record_match is not None and not record_match(record):
                continue
            slices.append(record)
            ranges.append((physical, size))
            gathered += size
        if not entries:
            status = ReadStatus.OFFSET_FOUND_NULL
        return ReadResult(
            status=ReadStatus.FOUND if slices else status,
            next_offset=offset + scanned,
            min_offset=queue.min_offset,
            max_offset=queue.visible_end,
            slices=slices,
            ranges=ranges,
            suggest_slave=self._is_far_behind(last_physical),
        )

    def read_ahead(self) -> ReadAhead:
        """For the reads of one event-loop iteration (read/fast_reads.py)."""
        return ReadAhead(self._log, self._settings, self._memory_bytes_max)

    def _fast_read(self, entries: bytes, count_max: int, bytes_max: int) -> SegmentRead | None:
        limits = self._settings
        entries = entries[: min(count_max, limits.pull_count_max) * ENTRY_BYTES]
        return find_segment_read(self._log, entries, min(bytes_max, limits.pull_bytes_max), self._memory_bytes_max)

    def read_steps(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int = BYTES_ANY,
        tag_match: TagMatch | None = None,
    ) -> IoSteps[ReadResult]:
        """As `read`, without a filter on records. The returned records are in the page cache, and were checked."""
        queue = self._queues.get(topic, queue_id)
        if queue is not None:
            yield from self.warm_entries(queue, offset, count_max, filtered=tag_match is not None)
        result = self._read(topic, queue_id, offset, count_max, bytes_max, tag_match)
        yield from self._log.warm(result.ranges)
        return self._without_damage(result)

    def warm_entries(self, queue: ConsumeQueue, offset: int, count_max: int, *, filtered: bool) -> IoSteps[None]:
        """Caches the entries that `read` needs."""
        count = self._scanned_max(count_max, filtered=filtered)
        yield from queue.warm(offset, count)
        if filtered and self._has_extensions:
            codes = (code for _, _, code in ENTRY.iter_unpack(queue.entries(offset, count)))
            addresses = [at for code in codes if (at := extension_offset(code)) is not None]
            if addresses:
                yield partial(self._read_extensions, queue, addresses)

    def _read_extensions(self, queue: ConsumeQueue, addresses: Sequence[int]) -> None:
        """For a thread. An error is ignored: it happens again when the filter needs it, and is raised there."""
        for at in addresses:
            with suppress(StoreError):
                self._extended_tags_code(queue, at)

    def _tags_code(self, queue: ConsumeQueue, tags_code: int) -> int:
        at = extension_offset(tags_code)
        return tags_code if at is None else self._extended_tags_code(queue, at)

    def _scanned_max(self, count_max: int, *, filtered: bool) -> int:
        """Whether a reader is far behind is known only from its first entry, so the wider limit counts here."""
        count_max = min(count_max, max(self._settings.pull_count_max, self._settings.far_pull_count_max))
        return max(SCANNED_ENTRIES_MIN, count_max) if filtered else count_max

    def _limited(self, count_max: int, bytes_max: int, physical: int) -> tuple[int, int]:
        """The requested count and bytes, within the limits for a read that begins at `physical`."""
        limits = self._settings
        if self._is_far_behind(physical):
            return min(count_max, limits.far_pull_count_max), min(bytes_max, limits.far_pull_bytes_max)
        return min(count_max, limits.pull_count_max), min(bytes_max, limits.pull_bytes_max)

    def is_far_behind(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether the message at `offset` is so old that it does not count as cached. False when there is none."""
        return any(self._is_far_behind(physical) for physical, _, _ in ENTRY.iter_unpack(queue.entries(offset, 1)))

    def _is_far_behind(self, physical: int) -> bool:
        return self._log.max_offset - physical > self._memory_bytes_max
