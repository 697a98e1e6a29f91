"""Checks of a store directory: its disk, its file system, how the last run ended, and a quick look at the files."""

import ctypes
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ariane.cli.doctor_findings import Finding, failure, ok, warning
from ariane.store.checkpoint import LastExit, boot_id, last_exit, read_checkpoint
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.lock_holder import lock_holder
from ariane.store.scan import list_files
from ariane.store.settings import StoreSettings
from ariane.store.verify_files import check_names, check_run
from ariane.store.verify_report import Report
from ariane.store.verify_tables import check_config

_MOUNTS = Path("/proc/self/mounts")
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre"})
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_PROBE_BYTES = 1024 * 1024
_CLOCK_SLACK_MS = 5_000


class StoreChecks:
    """Nothing of the store is written; a file of 1 MiB is made beside it for a moment, to see what the disk can do."""

    def __init__(self, root: Path, settings: StoreSettings | None = None) -> None:
        self._layout = Layout.under(root, settings.commit_log_path if settings is not None else None)
        self._settings = settings or StoreSettings(root=root)
        self._disk = RealDisk()

    @property
    def runs(self) -> bool:
        return lock_holder(self._layout.lock) is not None

    def space(self) -> Iterator[Finding]:
        place = _existing(self._layout.commit_log)
        usage, settings = shutil.disk_usage(place), self._settings
        used = usage.used / usage.total
        told = f"{used:.0%} of the disk under {place} is used, {usage.free / 2**30:,.1f} GiB are free"
        if used >= settings.refuse_writes_ratio:
            cure = f"free some or move the store: above {settings.refuse_writes_ratio:.0%} a broker refuses messages"
            yield failure("disk space", told, cure)
        elif used >= settings.disk_max_used_ratio:
            cure = (
                f"free some or keep messages for less time: above {settings.disk_max_used_ratio:.0%} old files go early"
            )
            yield warning("disk space", told, cure)
        else:
            yield ok("disk space", told)

    def file_system(self) -> Iterator[Finding]:
        place = _existing(self._layout.root)
        kind = file_system_of(place)
        told = f"{place} is on {kind or 'a file system of unknown kind'}"
        if not os.access(place, os.W_OK):
            yield failure("file system", f"{told}, where this user may not write", "change its owner, or the user")
        elif kind in _REMOTE:
            yield warning("file system", f"{told}, over a network", "use a local disk: locks and syncs differ there")
        elif kind in _IN_MEMORY:
            yield warning("file system", f"{told}, in memory", "use a disk: all messages are gone with a reboot")
        elif not reserves_space(place):
            cure = "use ext4, XFS or btrfs: here every new file is written twice, and a full disk is noticed late"
            yield warning("file system", f"{told}, which cannot reserve space (fallocate)", cure)
        else:
            yield ok("file system", f"{told}, which reserves space (fallocate)")

    def last_run(self) -> Iterator[Finding]:
        holder = lock_holder(self._layout.lock)
        ended = last_exit(self._disk, self._layout.abort, boot_id())
        if holder is not None:
            yield ok("last run", f"process {holder} runs on {self._layout.root}")
        elif ended is LastExit.CLEAN:
            yield ok("last run", "no broker runs on it, and the last one stopped in order")
        else:
            yield warning(
                "last run",
                f"the file `abort` is there: the last run ended in a {ended.value}",
                "start the broker: its recovery ends the log at the last whole record",
            )

    def times(self) -> Iterator[Finding]:
        """A clock that was set back makes new messages seem older than stored ones."""
        newest_ms = read_checkpoint(self._disk, self._layout.checkpoint).physic_timestamp_ms
        ahead_ms = newest_ms - time.time_ns() // 1_000_000
        if ahead_ms > _CLOCK_SLACK_MS:
            cure = "set the clock right before starting the broker: searches by time rely on it"
            yield failure("store times", f"the newest message was stored {ahead_ms // 1000} s from now", cure)
        else:
            yield ok("store times", "no message is stored under a time to come")

    def files(self) -> Iterator[Finding]:
        """Names, sizes and small tables; `ariane store verify` reads everything."""
        if not self._layout.commit_log.is_dir():
            yield ok("store files", f"there is no store in {self._layout.root} yet: a broker makes one")
            return
        files = list_files(self._disk, self._layout.commit_log)
        report = Report(self._layout.root, is_unclean=self._disk.size(self._layout.abort) is not None)
        check_run(report, files)
        check_names(report, self._disk, self._layout.commit_log, files)
        check_config(report, self._disk, self._layout.config)
        for fault in report.faults:
            yield failure("store files", f"{fault.file}, byte {fault.position}: {fault.what}", fault.cure)
        for note in report.notes:
            yield warning("store files", note, "see that this is meant; `ariane store verify` tells more")
        if not report.faults and not report.notes:
            yield ok("store files", f"{len(files)} files of the log in order (`ariane store verify` reads them all)")


def _existing(path: Path) -> Path:
    """The directory itself, or the nearest one above it that is there."""
    while not path.exists():
        path = path.parent
    return path.resolve()


def file_system_of(place: Path) -> str | None:
    """The kind of the mount with the longest path above `place`."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return None
    mounts = [line.split()[1:3] for line in lines if len(line.split()) > 2]
    above = [(point, kind) for point, kind in mounts if place.is_relative_to(point.replace("\\040", " "))]
    return max(above, key=lambda one: len(one[0]))[1] if above else None


def reserves_space(place: Path) -> bool:
    """Asked of the kernel itself: the C library's posix_fallocate writes zeros where a file system cannot."""
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except AttributeError:
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    with tempfile.TemporaryFile(dir=place, prefix=".ariane-doctor-") as file:
        if fallocate(file.fileno(), 0, 0, _PROBE_BYTES) == 0:
            return True
        number = ctypes.get_errno()
    if number in (errno.EOPNOTSUPP, errno.ENOSYS):
        return False
    raise OSError(number, f"space cannot be reserved in {place}: {os.strerror(number)}")
