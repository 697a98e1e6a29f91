"""The limits of the disk's use, and the error for which appends are refused."""

import errno
import os
from pathlib import Path

import pytest

from ariane.errors import StoreFull, StoreReadOnly, WritesSuspended
from ariane.store.maintenance.disk_space import DiskUse, WriteRefusal
from ariane.store.settings import StoreSettings

SETTINGS = StoreSettings(root=Path("store"))
FULL, ROOMY = DiskUse.of(0.95, SETTINGS), DiskUse.of(0.5, SETTINGS)
LIMIT = SETTINGS.refuse_writes_ratio
NO_SPACE = StoreFull("the file system has 0 bytes free")


@pytest.mark.parametrize(
    ("ratio", "clean_forcibly", "reached"),
    [
        (0.75, True, (False, False, False)),
        (0.76, True, (True, False, False)),
        (0.86, True, (True, True, False)),
        (0.91, True, (True, True, True)),
        (0.91, False, (True, False, True)),
    ],
)
def test_each_limit_adds_to_what_the_one_below_allows(
    ratio: float, clean_forcibly: bool, reached: tuple[bool, bool, bool]
) -> None:
    use = DiskUse.of(ratio, StoreSettings(root=Path("store"), clean_forcibly=clean_forcibly))
    assert (use.deletes_old, use.deletes_young, use.is_full) == reached


def test_young_files_may_be_deleted_from_a_lower_limit_on_than_old_ones_at_any_hour() -> None:
    use = DiskUse.of(0.5, StoreSettings(root=Path("store"), force_clean_ratio=0.4))
    assert (use.deletes_old, use.deletes_young) == (True, True)


def test_the_error_names_the_use_and_the_setting() -> None:
    refusal = WriteRefusal()
    refusal.set_disk_use(FULL, LIMIT)
    assert isinstance(refusal.error, StoreFull)
    assert "95% full, writes are refused above 90% (diskSpaceWarningLevelRatio)" in str(refusal.error)
    refusal.set_disk_use(ROOMY, LIMIT)
    assert refusal.error is None


def test_writes_are_accepted_only_when_both_reasons_are_gone() -> None:
    refusal = WriteRefusal()
    refusal.set_no_space(NO_SPACE)
    refusal.set_disk_use(ROOMY, LIMIT)
    assert refusal.error is NO_SPACE
    refusal.set_disk_use(FULL, LIMIT)
    refusal.set_no_space(None)
    assert isinstance(refusal.error, StoreFull)
    refusal.set_no_space(NO_SPACE)
    refusal.set_disk_use(ROOMY, LIMIT)
    assert refusal.error is NO_SPACE
    refusal.set_no_space(None)
    assert refusal.error is None


def test_after_a_failed_sync_no_space_helps() -> None:
    refusal = WriteRefusal()
    refusal.set_disk_use(FULL, LIMIT)
    refusal.set_sync_failed(OSError(errno.EIO, os.strerror(errno.EIO)))
    refusal.set_no_space(None)
    refusal.set_disk_use(ROOMY, LIMIT)
    assert isinstance(refusal.error, StoreReadOnly)


def test_writes_are_suspended_and_resumed_whatever_the_disk_does_meanwhile() -> None:
    refusal = WriteRefusal()
    refusal.set_suspended("this broker is not the master")
    assert isinstance(refusal.error, WritesSuspended)
    assert refusal.error is refusal.suspended
    refusal.set_disk_use(FULL, LIMIT)
    assert isinstance(refusal.error, WritesSuspended)
    refusal.set_suspended(None)
    assert isinstance(refusal.error, StoreFull)
    refusal.set_disk_use(ROOMY, LIMIT)
    assert refusal.error is None
    refusal.set_suspended("again")
    refusal.set_no_space(NO_SPACE)
    refusal.set_no_space(None)
    refusal.set_suspended(None)
    assert refusal.error is None


def test_a_failed_sync_is_not_hidden_by_a_suspension() -> None:
    refusal = WriteRefusal()
    refusal.set_suspended("this broker is not the master")
    refusal.set_sync_failed(OSError(errno.EIO, os.strerror(errno.EIO)))
    assert isinstance(refusal.error, StoreReadOnly)
    refusal.set_suspended(None)
    assert isinstance(refusal.error, StoreReadOnly)
