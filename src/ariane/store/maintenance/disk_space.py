"""How full the disk may get: when old files are deleted early, and when writes are refused.

    disk use     above 75 %   files that are old enough are deleted, whatever the hour
                 above 85 %   the oldest are deleted, old enough or not; but not one that holds undelivered messages
                 above 90 %   the oldest are deleted whatever they hold, and writes are refused until there is room

`DiskUse` compares the disk's use with these limits, for each pass of retention.py, which deletes. `WriteRefusal` has
the error for which the store refuses appends now: for the disk's use; for want of a free byte (reserve.py); until the
next start, because a sync failed; or because the role of the broker does not allow any.
"""

import logging
from typing import NamedTuple

from ariane.errors import StoreError, StoreFull, StoreReadOnly, WritesSuspended
from ariane.store.settings import StoreSettings

log = logging.getLogger(__name__)


class DiskUse(NamedTuple):
    ratio: float
    deletes_old: bool
    """Whether files that are old enough are deleted at any hour."""
    deletes_young: bool
    """Whether the oldest files are deleted, old enough or not."""
    is_full: bool
    """Whether writes are refused, and undelivered messages may be lost."""

    @classmethod
    def of(cls, ratio: float, settings: StoreSettings) -> "DiskUse":
        deletes_young = settings.clean_forcibly and ratio > settings.force_clean_ratio
        return cls(
            ratio,
            deletes_old=deletes_young or ratio > settings.disk_max_used_ratio,
            deletes_young=deletes_young,
            is_full=ratio > settings.refuse_writes_ratio,
        )


class WriteRefusal:
    """Why appends fail at present: `error`, which is None while they are accepted."""

    def __init__(self) -> None:
        self.error: StoreError | None = None
        self.suspended: WritesSuspended | None = None
        """The part of it that the broker's role is the reason for: handlers check it before they change anything."""
        self._of_disk: StoreError | None = None
        self._no_space: StoreFull | None = None

    def _set(self, of_disk: StoreError | None) -> None:
        """A failed sync is final, so no other error may hide it."""
        self._of_disk = of_disk
        self.error = of_disk if isinstance(of_disk, StoreReadOnly) else self.suspended or of_disk

    def set_suspended(self, reason: str | None) -> None:
        """Refuses appends for this reason until it is called with None."""
        self.suspended = None if reason is None else WritesSuspended(f"this broker takes no messages now: {reason}")
        self._set(self._of_disk)

    def set_disk_use(self, use: DiskUse, limit: float) -> None:
        if isinstance(self._of_disk, StoreReadOnly):
            return
        was_full = self._of_disk not in (None, self._no_space)
        if use.is_full and not was_full:
            self._set(
                StoreFull(
                    f"the disk is {use.ratio:.0%} full, writes are refused above {limit:.0%} "
                    "(diskSpaceWarningLevelRatio): free some space; writes resume by themselves"
                )
            )
        elif was_full and not use.is_full:
            self._set(self._no_space)
        if was_full != use.is_full:
            log.warning(
                "writes refused: disk full" if use.is_full else "writes accepted again", extra={"used": use.ratio}
            )

    def set_no_space(self, error: StoreFull | None) -> None:
        """Refuses appends with this error until it is called with None."""
        if self._of_disk is None or self._of_disk is self._no_space:
            self._set(error)
            if self._no_space is not None and error is None:
                log.warning("writes accepted again: the file system has space")
        self._no_space = error

    def set_sync_failed(self, error: OSError) -> None:
        """Nothing takes this back: what the disk holds is unknown."""
        self._set(
            StoreReadOnly(
                f"a sync failed ({error.strerror}): the store is read-only until it is restarted on a disk that works"
            )
        )
