"""The part of `ariane store verify` for files that only a broker uses: timer, progress of deliveries, queue locks."""

from collections.abc import Iterator
from pathlib import Path

from ariane.broker.groups.lock_journal import is_damaged as are_locks_damaged
from ariane.broker.schedule.progress import damaged_slots
from ariane.broker.schedule.timer_log import UNIT_BYTES, copy_of, read_timer_checkpoint, unpack_units
from ariane.errors import StoreCorrupt
from ariane.store.commit_log.scan import DataFile, list_files
from ariane.store.disk import Disk, read_all
from ariane.store.layout import Layout
from ariane.store.offline.verify_report import Report

_COPY = "start a broker: of the checkpoint and its .bak it takes the one that is intact, and writes the other one again"
_CHECKPOINT = (
    "restore the timer's checkpoint from a copy of the store, or remove it, its .bak and `progress` beside it: all "
    "messages of the timer topic that are still in the log are then delivered again"
)
_TIMER_LOG = "start a broker: it reads the timer topic again, and nothing is lost"
_PROGRESS = "start a broker: it uses the slot or the table before, and messages may be delivered again"
_LOCKS = "start a broker: it grants no queue lock for the life of a lock, and then goes on"

_READ_BYTES = 32 * 1024 * UNIT_BYTES
_SMALL_BYTES = 64 * 1024 * 1024


def check_broker_files(report: Report, disk: Disk, layout: Layout) -> None:
    timer = layout.root / "timer"
    log_end = _check_checkpoint(report, disk, timer / "checkpoint")
    if log_end is not None:
        _check_timer_log(report, disk, list_files(disk, timer), log_end)
    for path in (timer / "progress", layout.config / "delayOffset.progress"):
        for position in damaged_slots(read_all(disk, path, _SMALL_BYTES) or b""):
            report.fault(path, position, "a slot does not match its checksum", _PROGRESS)
    locks = layout.config / "queueLocks.journal"
    if are_locks_damaged(read_all(disk, locks, _SMALL_BYTES)):
        report.fault(locks, 0, "a line does not match its checksum", _LOCKS)


def _check_checkpoint(report: Report, disk: Disk, path: Path) -> int | None:
    """The end of the timer log by the checkpoint; None if there is none that is intact."""
    ends: dict[Path, int] = {}
    problems: dict[Path, str] = {}
    for one in (path, copy_of(path)):
        try:
            checkpoint = read_timer_checkpoint(disk, one, with_copy=False)
        except StoreCorrupt:
            problems[one] = "it does not match its checksum"
            continue
        if checkpoint is None:
            problems[one] = "it is missing"
        else:
            ends[one] = checkpoint.log_end
    if len(problems) == 2 and set(problems.values()) == {"it is missing"}:
        if list_files(disk, path.parent):
            report.fault(path, 0, f"it is missing, and so is {copy_of(path).name}", _CHECKPOINT)
        return None
    for one, problem in problems.items():
        if one != path and problem == "it is missing":  # earlier releases wrote none
            report.note(f"{report.name(one)} is missing: the next checkpoint of the timer makes it")
        else:
            report.fault(one, 0, problem, _COPY if ends else _CHECKPOINT)
    return ends.get(path, ends.get(copy_of(path)))


def _check_timer_log(report: Report, disk: Disk, files: list[DataFile], log_end: int) -> None:
    """Units behind the end by the checkpoint are not used. The first files may be delivered and deleted."""
    position = files[0].base if files else 0
    for file in files:
        if file.base != position:
            report.fault(file.path, 0, f"it does not continue the file before, which ends at {position}", _TIMER_LOG)
        for at in _damaged_chunks(disk, file, min(file.end, log_end)):
            report.fault(file.path, at, "a unit in the MiB from here does not match its check", _TIMER_LOG)
        position = file.end
    if log_end > position:
        path = files[-1].path if files else report.root / "timer"
        report.fault(path, 0, f"the timer log ends at {position}, its checkpoint says {log_end}", _TIMER_LOG)


def _damaged_chunks(disk: Disk, file: DataFile, end: int) -> Iterator[int]:
    handle = disk.open(file.path, writable=False)
    try:
        for at in range(0, end - file.base, _READ_BYTES):
            data = handle.read(min(_READ_BYTES, end - file.base - at), at)
            try:
                unpack_units(data)
            except (StoreCorrupt, ValueError):  # ValueError: the file ends inside a unit
                yield at
    finally:
        handle.close()
