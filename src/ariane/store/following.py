"""The log of a slave: takes bytes of the master's log as they arrive, and dispatches the whole records among them.

    master's bytes ─► append ─► the log ─► dispatch ─► queues, index, waiting pulls
                                 ^ max_offset, perhaps inside a record
                         ^ followed_to, always between two records

The two are separate because a dispatch has a fixed price, so it is worth to gather some hundred records. Until then
nobody sees them; after a crash the log is read from the last checkpoint anyway, and ends with its last whole record.
"""

import logging

from ariane.store.commit_log.recovery import LogScan
from ariane.store.message_store import MessageStore
from ariane.wire.record.layout import RECORD_BYTES_MAX, SIZE_AND_MAGIC

log = logging.getLogger(__name__)

RECORDS_PER_DISPATCH = 1024
"""About 6 ms of the event loop."""


class FollowingLog:
    """Use on the event loop only, and as the only writer of the store: appends are refused from now on."""

    def __init__(self, store: MessageStore) -> None:
        components = store.components
        self._store = store
        self._log = components.commit_log
        self._disk, self._quarantine = components.disk, components.layout.quarantine
        self._dispatcher = components.dispatcher
        store.follow()
        self._counted_to = self.dispatched_to
        self._undispatched = 0
        self._blocked_until = 0

    @property
    def end(self) -> int:
        return self._log.max_offset

    @property
    def begin(self) -> int:
        return self._log.min_offset

    @property
    def file_bytes(self) -> int:
        return self._log.segments.segment_bytes

    @property
    def dispatched_to(self) -> int:
        return self._log.dispatched_to

    @property
    def topic_count(self) -> int:
        """How many topics have records that were dispatched."""
        return len(self._store.components.queues.by_topic)

    @property
    def is_empty(self) -> bool:
        """Whether it may begin anywhere."""
        return not len(self._log.segments)

    def tail(self, size_max: int) -> memoryview:
        """The last bytes of the log, of its last file only."""
        base, end, view = self._log.window(max(self.end - 1, 0))
        return view[max(end - size_max, base) - base : end - base]

    def append(self, offset: int, data: bytes | memoryview) -> None:
        """StoreMismatch or StoreFull when it cannot be, and nothing has changed then; StoreReadOnly after a failed
        sync."""
        error = self._store.write_error
        if error is not None:
            raise error.with_traceback(None)
        was_empty = self.is_empty
        try:
            self._log.append_raw(offset, data)
        finally:
            if was_empty and not self.is_empty:  # also if only the file could be made: the log begins there now
                self._log.followed_to = self._counted_to = offset

    # --- dispatch ---------------------------------------------------------------------------------------------------

    def undispatched_records(self) -> int:
        """How many have arrived, as far as their sizes say so: 0.2 us each, and each is counted once."""
        position, end = self._counted_to, self.end
        while end - position >= SIZE_AND_MAGIC.size:
            base, file_end, view = self._log.window(position)
            size = SIZE_AND_MAGIC.unpack_from(view, position - base)[0] if file_end - position >= 8 else 0
            if size <= 0 or position + size > end:
                break
            position += size
            self._undispatched += 1
        self._counted_to = position
        return self._undispatched

    def dispatch(self) -> bool:
        """Dispatches some records; whether there are more. StoreMismatch when the master's files have another size,
        StoreCorrupt when a record cannot be right."""
        end = self.end
        if end < self._blocked_until:
            return False
        scan = LogScan(
            disk=self._disk,
            segments=self._log.segments,
            start=self.dispatched_to,
            durable_to=0,
            size_max=RECORD_BYTES_MAX,
            quarantine=self._quarantine,
            is_in_order=True,
            limit=end,
            together_max=RECORDS_PER_DISPATCH,
        )
        number = 0
        for records in scan.whole_records():
            number += self._dispatcher.follow(records)
            if number >= RECORDS_PER_DISPATCH:
                break
        self._log.followed_to = scan.end
        self._undispatched = max(0, self._undispatched - number)
        self._store.followed(scan.last_timestamp_ms)
        if scan.is_blocked:
            self._report_blocked(scan.end, end)
        else:
            self._blocked_until = 0
        return number >= RECORDS_PER_DISPATCH

    def run_dry(self) -> None:
        """Dispatches every whole record. Before a clean stop, and in tests."""
        while self.dispatch():
            pass

    def _report_blocked(self, position: int, end: int) -> None:
        """Looks again when twice as much is behind it: a master may have damage in its log, and records behind."""
        if not self._blocked_until:
            log.error("the log of the master has no record here: nothing behind it is served", extra={"at": position})
        self._blocked_until = end + max(end - position, 1)
