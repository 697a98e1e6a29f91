"""Reads for pulls that never block the event loop on the disk.

What is in the page cache is read at once, and as one span where that is possible (store/read/fast_reads.py). For the
rest a thread reads ahead first, and only such a pull costs a task. Filters that look at the record (SQL92) go page by
page: each page is looked up by its entries alone, brought into memory if need be, and only then given to the filter.
"""

from typing import NamedTuple

from ariane.broker.groups.offsets import ConsumerOffsets, can_be_committed
from ariane.broker.pull.filters import MessageFilter
from ariane.errors import StoreFull
from ariane.store.blocking_io import run_if_cached
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.message_store import MessageStore
from ariane.store.read.reader import BYTES_ANY, RecordMatch, TagMatch
from ariane.store.read.result import ReadResult, ReadStatus
from ariane.store.service import StoreService
from ariane.wire.requests.pull import Pull, PullSysFlag

_COMMIT_OFFSET = int(PullSysFlag.COMMIT_OFFSET)

FILTERED_RECORDS_MAX = 400
"""A filter looks at no more records for one pull: some 4 ms, in which no other request is served."""
_PAGED_BYTES_MAX = 256 * 1024
"""Of a response that is collected from several pages. Once it has half of this, no further page is read."""


class Reading(NamedTuple):
    topic: str
    queue_id: int
    offset: int
    count_max: int
    bytes_max: int
    filter: MessageFilter

    @classmethod
    def of(cls, request: Pull, offset: int, message_filter: MessageFilter) -> "Reading":
        return cls(request.topic, request.queue_id, offset, count_limit(request), bytes_limit(request), message_filter)


def count_limit(request: Pull) -> int:
    """One message at least; the store has limits of its own."""
    return max(1, request.max_msg_nums)


def bytes_limit(request: Pull) -> int:
    """Only clients of 5.x name one."""
    bytes_max = request.max_msg_bytes
    return BYTES_ANY if bytes_max is None or bytes_max <= 0 else bytes_max


def commit_offset_of(request: Pull, queue: ConsumeQueue, offsets: ConsumerOffsets) -> None:
    """Stores the consumer offset that came with a pull, if there is one. On a full disk it may not: no response says
    that it was stored, and the client sends it again."""
    if request.sys_flag & _COMMIT_OFFSET and can_be_committed(request.commit_offset, queue.max_offset):
        try:
            offsets.advance(request.consumer_group, request.topic, request.queue_id, request.commit_offset)
        except StoreFull:
            return  # logged by the journal, once


def read_cached(store: MessageStore, reading: Reading) -> ReadResult | None:
    """The result; None when it has to come from the disk."""
    scan = _Scan(reading)
    while True:
        request = scan.next_page()
        page = run_if_cached(store.reader.read_steps(*request))
        if page is None:
            return scan.so_far()
        result = scan.take(page)
        if result is not None:
            return result


async def read(service: StoreService, reading: Reading) -> ReadResult:
    """The same, with the help of a thread."""
    scan = _Scan(reading)
    while True:
        result = scan.take(await service.read(*scan.next_page()))
        if result is not None:
            return result


class _Scan:
    """Page after page, until enough messages match or enough were filtered."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._offset = reading.offset
        self._filtered = 0
        self._slices: list[memoryview] = []
        self._ranges: list[tuple[int, int]] = []
        self._bytes = 0
        self._last: ReadResult | None = None

    def next_page(self) -> tuple[str, int, int, int, int, TagMatch | None]:
        reading = self._reading
        count = reading.count_max - len(self._slices)
        return (reading.topic, reading.queue_id, self._offset, count, reading.bytes_max, reading.filter.tag_match)

    def take(self, page: ReadResult) -> ReadResult | None:
        """The whole result; None when another page is needed."""
        match = self._reading.filter.record_match
        if match is None:
            return page
        if page.status is not ReadStatus.FOUND and self._last is None:
            return page
        self._last = page
        self._offset = page.next_offset
        self._keep(page, match)
        return None if self._needs_more(page) else self.so_far()

    def _keep(self, page: ReadResult, match: RecordMatch) -> None:
        self._filtered += len(page.slices)
        for record, span in zip(page.slices, page.ranges, strict=True):
            if match(record):
                self._slices.append(record)
                self._ranges.append(span)
                self._bytes += len(record)

    def _needs_more(self, page: ReadResult) -> bool:
        reading = self._reading
        return (
            page.status is ReadStatus.FOUND
            and page.next_offset < page.max_offset
            and len(self._slices) < reading.count_max
            and self._filtered < FILTERED_RECORDS_MAX
            and self._bytes + _PAGED_BYTES_MAX // 2 < min(reading.bytes_max, _PAGED_BYTES_MAX)
        )

    def so_far(self) -> ReadResult | None:
        last = self._last
        if last is None:
            return None
        return ReadResult(
            status=ReadStatus.FOUND if self._slices else ReadStatus.NO_MATCHED_MESSAGE,
            next_offset=self._offset,
            min_offset=last.min_offset,
            max_offset=last.max_offset,
            slices=self._slices,
            ranges=self._ranges,
            suggest_slave=last.suggest_slave,
        )
