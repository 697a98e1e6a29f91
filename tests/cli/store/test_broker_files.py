"""`ariane store verify` on files that only the broker writes: every flipped bit of them is reported."""

from pathlib import Path

import pytest

from ariane.broker.groups.lock_journal import LockJournal
from ariane.broker.schedule.progress import ProgressFile
from ariane.broker.schedule.timer_log import TimerCheckpoint, TimerLog, copy_of, write_timer_checkpoint
from ariane.broker.schedule.timer_wheel import TimerWheel
from ariane.cli.main import main
from ariane.cli.store.broker_files import check_broker_files
from ariane.model.route import MessageQueue
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.offline.verify_report import Report
from tests.store.golden_stores import flip

DISK = RealDisk()
UNITS = 10


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout.under(tmp_path)
    for directory in (layout.commit_log, layout.config):
        directory.mkdir()
    timer = tmp_path / "timer"
    log = TimerLog(DISK, timer, 3200)
    log.adopt(log.make_file())
    wheel = TimerWheel(log, 0)
    for number in range(UNITS):
        wheel.add(1000 + number, number * 100, 100)
    log.sync_now()
    write_timer_checkpoint(DISK, timer / "checkpoint", TimerCheckpoint(0, log.end, UNITS))
    log.close()
    for path in (timer / "progress", layout.config / "delayOffset.progress"):
        progress = ProgressFile(DISK, path, "boot")
        progress.write([1, 2, 3])
        progress.write([4, 5, 6])
        progress.close()
    locks = LockJournal(DISK, layout.config / "queueLocks.journal")
    locks.begin([("billing", MessageQueue(topic="orders", broker_name="broker-a", queue_id=3), "10.0.0.7@4711")])
    return layout


def faults(layout: Layout) -> list[str]:
    report = Report(layout.root)
    check_broker_files(report, DISK, layout)
    return [fault.file for fault in report.faults]


def test_intact_files_are_no_fault(layout: Layout) -> None:
    assert faults(layout) == []
    assert main(["store", "verify", str(layout.root)]) == 0


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("timer/checkpoint", 52),
        ("timer/checkpoint.bak", 52),
        ("timer/00000000000000000000", UNITS * 32),
        ("timer/progress", 88),
        ("config/delayOffset.progress", 88),
        ("config/queueLocks.journal", 60),
    ],
)
def test_every_flipped_bit_is_reported(layout: Layout, name: str, length: int) -> None:
    path = layout.root / name
    for position in range(length):
        flip(path, position, position % 8)
        assert faults(layout) == [name], position
        flip(path, position, position % 8)
    assert faults(layout) == []


def test_missing_files_are_reported(layout: Layout) -> None:
    timer = layout.root / "timer"
    (timer / "00000000000000000000").rename(layout.root / "aside")
    assert faults(layout) == ["timer"]
    (layout.root / "aside").rename(timer / "00000000000000000000")
    (timer / "checkpoint").unlink()
    assert faults(layout) == ["timer/checkpoint"]
    copy_of(timer / "checkpoint").unlink()
    assert faults(layout) == ["timer/checkpoint"]
    assert main(["store", "verify", str(layout.root)]) == 1
