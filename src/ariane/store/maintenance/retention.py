"""Retention: deletes old commit log files by age at an hour of the day, by disk use, or on manual request.

disk_space.py has the limits of the disk's use. The active commit log file is never deleted. Undelivered messages are
delayed and half messages: no consumer has seen them yet, and the broker knows the oldest of them
(`add_retention_hold`). As long as the disk is not full, no file is deleted that a connected slave has not got
(`add_log_reader`).

Queues and index are trimmed to the log's new beginning; each queue finds its new first offset itself, as
`ConsumeQueue.correct_min` says (store/consume_queue/queue.py). A slice held by a reader stays valid: unlinking a file
removes its name, the bytes go with the last mapping.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ariane.errors import SettingsError
from ariane.store.blocking_io import IoSteps
from ariane.store.commit_log.log import CommitLog, Segment
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.disk import Disk
from ariane.store.index.index import Index
from ariane.store.maintenance.disk_space import DiskUse
from ariane.store.settings import StoreSettings

log = logging.getLogger(__name__)

FILES_PER_PASS = 10
_HOUR_MS = 3_600_000


RetentionHold = Callable[[], IoSteps[int | None]]
"""Returns the physical offset of the oldest record that must be kept; None when there is none."""


LogReader = Callable[[], int | None]
"""Returns the physical offset from where on a connected slave needs the log; None when there is none."""


@dataclass(frozen=True, slots=True)
class CleanupResult:
    files: int
    min_offset: int
    disk: DiskUse
    """Afterwards."""


class Retention:
    def __init__(
        self,
        disk: Disk,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: Index | None,
        settings: StoreSettings,
        local_hour: Callable[[int], int],
    ) -> None:
        self._disk = disk
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._settings = settings
        self._local_hour = local_hour
        self._hours = _hours(settings.delete_when)
        self._holds: list[RetentionHold] = []
        self._readers: list[LogReader] = []
        self._warned_of = -1  # base of the file last reported as kept

    def add_retention_hold(self, hold: RetentionHold) -> None:
        """Adds a function that is called before a file is deleted that is not old enough."""
        self._holds.append(hold)

    def add_log_reader(self, needed_from: LogReader) -> None:
        """Adds a function that is called before any file is deleted: one that is needed stays, unless the disk is
        full."""
        self._readers.append(needed_from)

    def clean(self, now_ms: int, dispatched_to: int, *, manual: bool = False) -> IoSteps[CleanupResult]:
        """One pass. `manual`: delete old files whatever the hour. `dispatched_to`: from the checkpoint, and
        not beyond what is confirmed; no file that ends after it is deleted."""
        use = self._disk_use()
        files = 0
        if manual or use.deletes_old or self._is_the_hour(now_ms):
            held_from = (yield from self._held_from(dispatched_to)) if use.deletes_young else dispatched_to
            files = yield from self._drop_log_files(now_ms, dispatched_to, held_from, use)
        if files:
            yield from self._trim_queues_and_index()
            use = self._disk_use()
        return CleanupResult(files, self._log.min_offset, use)

    def _disk_use(self) -> DiskUse:
        return DiskUse.of(self._disk.used_ratio(self._settings.root), self._settings)

    def _is_the_hour(self, now_ms: int) -> bool:
        return self._local_hour(now_ms) in self._hours

    def _held_from(self, dispatched_to: int) -> IoSteps[int]:
        held_from = dispatched_to
        for hold in self._holds:
            at = yield from hold()
            if at is not None:
                held_from = min(held_from, at)
        return held_from

    def _drop_log_files(self, now_ms: int, dispatched_to: int, held_from: int, use: DiskUse) -> IoSteps[int]:
        segments = self._log.segments
        dropped = 0
        while dropped < FILES_PER_PASS and (first := segments.first) is not None:
            # Never the active file, nor one whose queue entries are not durable: a crash would leave a gap in queues.
            if first.end > min(self._log.max_offset, dispatched_to):
                break
            is_young = now_ms - self._disk.modified_ms(first.path) < self._settings.retention_hours * _HOUR_MS
            is_held = first.end > held_from
            if self._is_needed(first, use):
                break
            if is_young and (not use.deletes_young or (is_held and not self._may_lose(first, use))):
                break
            yield from segments.drop_first_steps()
            dropped += 1
            log.info("commit log file deleted", extra={"file": str(first.path), "forced": use.deletes_young})
        return dropped

    def _is_needed(self, segment: Segment, use: DiskUse) -> bool:
        needed_from = min((at for reader in self._readers if (at := reader()) is not None), default=segment.end)
        if needed_from >= segment.end:
            return False
        if use.is_full:
            log.error(
                "commit log file deleted because the disk is full, although a slave has not got it: the slave has to "
                "begin anew. Give the store more space",
                extra={"file": str(segment.path)},
            )
        return not use.is_full

    def _may_lose(self, segment: Segment, use: DiskUse) -> bool:
        """Whether to delete a file with undelivered messages: only when the broker could not write any more."""
        if use.is_full:
            log.error(
                "commit log file with undelivered messages deleted because the disk is full: delayed messages or "
                "transactions are lost. Give the store more space",
                extra={"file": str(segment.path)},
            )
        elif self._warned_of != segment.base:
            self._warned_of = segment.base
            log.warning(
                "the disk is nearly full, but the oldest commit log file holds pending delayed messages or "
                "transactions: free some space",
                extra={"file": str(segment.path)},
            )
        return use.is_full

    def _trim_queues_and_index(self) -> IoSteps[None]:
        low = self._log.min_offset
        yield from self._queues.drop_before_steps(low)
        if self._index is not None:
            yield from self._index.drop_before_steps(low)


def _hours(text: str) -> set[int]:
    try:
        hours = {int(word) for word in text.replace(",", ";").split(";") if word.strip()}
    except ValueError:
        hours = {-1}
    if not hours <= set(range(24)):
        raise SettingsError(f"deleteWhen: hours from 00 to 23 separated by semicolons expected, got {text!r}")
    return hours
