"""Who syncs the log and when: the event loop while syncs are short, else a thread; with ASYNC_FLUSH at intervals."""

import asyncio
import errno
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ariane.clock import Clock
from ariane.errors import StoreReadOnly
from ariane.store import message_store
from ariane.store.append.draft import Appended
from ariane.store.disk import RealDisk, RealFile
from ariane.store.layout import Layout
from ariane.store.maintenance.group_commit import GroupCommit
from ariane.store.maintenance.sync_policy import BYTES_MAX, LONG_S, PAUSE_MAX_S, SHORT_S, SYNCS_MIN
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType
from ariane.testing import FakeClock
from tests.store.block_checksums import check_block_checksums
from tests.store.stores import HOST, draft, put, small
from tests.transport.peers import until

INTERVAL_MS = 200
ALLOWED_S = 2.0
"""The promise is the interval and 100 ms; a busy machine gets ten intervals. Apache's rules took ten seconds."""


async def durable_after(store: MessageStore, end: int) -> float:
    """Seconds until everything below `end` has been synced; nobody asks for the sync."""
    began = time.monotonic()
    while store.flusher.flushed_to < end:
        await asyncio.sleep(0.01)
        assert time.monotonic() - began < ALLOWED_S, "acknowledged, and not synced"
    return time.monotonic() - began


@pytest.mark.parametrize("pause_s", [0, 0.05], ids=["one alone", "twenty a second"])
async def test_a_message_is_synced_within_the_interval_at_a_low_rate(tmp_path: Path, pause_s: float) -> None:
    settings = small(tmp_path, flush_disk_type=FlushDiskType.ASYNC, flush_interval_ms=INTERVAL_MS)
    async with StoreService.open(settings, Clock(), HOST) as service:
        waits = []
        for _ in range(12 if pause_s else 1):
            (appended,) = put(service.store, draft(b"one"))
            waits.append(asyncio.create_task(durable_after(service.store, appended.end)))
            await asyncio.sleep(pause_s)
        print("durable after, ms:", [round(1000 * wait) for wait in await asyncio.gather(*waits)])


async def test_checksums_of_the_log_do_not_delay_a_sync_that_is_due(tmp_path: Path) -> None:
    settings = small(tmp_path, flush_disk_type=FlushDiskType.ASYNC, flush_interval_ms=INTERVAL_MS)
    store = MessageStore.open(settings, Clock(), HOST)
    may_end = threading.Event()

    def endless(durable_to: int) -> bool:
        return not may_end.wait(0.001)

    async with GroupCommit.running(store.flusher, settings, endless):
        try:
            for _ in range(3):
                (appended,) = put(store, draft(bytes(700)))
                await durable_after(store, appended.end)
        finally:
            may_end.set()
    store.close()


# --- who syncs --------------------------------------------------------------------------------------------------------


class TimedFile(RealFile):
    """Its syncs take as long as its disk says, by the disk's clock, and are recorded with their thread."""

    def __init__(self, descriptor: int, size: int, disk: "TimedDisk", path: Path) -> None:
        super().__init__(descriptor, size)
        self._disk = disk
        self._is_log = path.parent.name == "commitlog"

    def sync(self) -> None:
        if self._is_log:
            self._disk.syncers.append(threading.current_thread().name)
            self._disk.clock.pass_by(self._disk.sync_s)
            if self._disk.error is not None:
                raise self._disk.error
        super().sync()


class TimedClock(FakeClock):
    def pass_by(self, seconds: float) -> None:
        """Without waking those who sleep."""
        self._elapsed_s += seconds


class TimedDisk(RealDisk):
    def __init__(self) -> None:
        self.clock = TimedClock()
        self.sync_s = SHORT_S / 2
        self.error: OSError | None = None
        self.syncers: list[str] = []

    def create(self, path: Path, size: int, *, allocated: int) -> RealFile:
        file = super().create(path, size, allocated=allocated)
        return TimedFile(file.descriptor, file.size, self, path)

    def open(self, path: Path, *, writable: bool) -> RealFile:
        file = super().open(path, writable=writable)
        return TimedFile(file.descriptor, file.size, self, path)


ON_LOOP, BY_THREAD = "MainThread", "ariane-flush"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> TimedDisk:
    """The disk of every store that is opened by its service."""
    timed = TimedDisk()
    monkeypatch.setattr(message_store, "RealDisk", lambda: timed)
    return timed


@asynccontextmanager
async def on_loop(root: Path, disk: TimedDisk) -> AsyncIterator[StoreService]:
    """A store whose syncs are so short that the loop does them."""
    settings = small(root, segment_bytes=1024 * 1024, flush_interval_ms=3_600_000)
    async with StoreService.open(settings, disk.clock, HOST) as service:
        await appends(service, SYNCS_MIN)
        disk.syncers.clear()
        yield service


async def appends(service: StoreService, count: int) -> None:
    for _ in range(count):
        (outcome,) = await service.append([draft(b"x")])
        assert isinstance(outcome, Appended)
        assert service.store.flusher.flushed_to >= outcome.end


async def test_short_syncs_are_done_on_the_loop_without_the_thread(tmp_path: Path, disk: TimedDisk) -> None:
    async with on_loop(tmp_path, disk) as service:
        await appends(service, 20)
        assert disk.syncers == [ON_LOOP] * 20


async def test_a_slow_disk_holds_the_loop_once(tmp_path: Path, disk: TimedDisk) -> None:
    async with on_loop(tmp_path, disk) as service:
        await appends(service, 3)
        disk.sync_s = 4 * LONG_S
        await appends(service, 30)
        assert disk.syncers == [ON_LOOP] * 4 + [BY_THREAD] * 29


async def test_the_loop_syncs_again_when_the_disk_has_been_fast_for_long(tmp_path: Path, disk: TimedDisk) -> None:
    async with on_loop(tmp_path, disk) as service:
        disk.sync_s = 4 * LONG_S
        await appends(service, 10)
        disk.sync_s = SHORT_S / 2
        await appends(service, 100)
        assert disk.syncers[1:] == [BY_THREAD] * 109
        disk.clock.pass_by(PAUSE_MAX_S)
        await appends(service, SYNCS_MIN + 1)
        assert disk.syncers[-1] == ON_LOOP


async def test_all_who_come_in_one_iteration_share_a_sync_on_the_loop(tmp_path: Path, disk: TimedDisk) -> None:
    async with on_loop(tmp_path, disk) as service:
        await asyncio.gather(*(service.append([draft(b"%d" % number)]) for number in range(50)))
        assert disk.syncers == [ON_LOOP]


async def test_much_at_once_is_synced_by_the_thread(tmp_path: Path, disk: TimedDisk) -> None:
    async with on_loop(tmp_path, disk) as service:
        await service.append([draft(bytes(BYTES_MAX))])
        assert disk.syncers == [BY_THREAD]


async def test_while_a_checkpoint_syncs_other_files_the_thread_syncs_the_log(tmp_path: Path, disk: TimedDisk) -> None:
    async with on_loop(tmp_path, disk) as service:
        with service.group_commit.others_syncing():
            await appends(service, 2)
        await appends(service, 1)
        assert disk.syncers == [BY_THREAD, BY_THREAD, ON_LOOP]


async def test_two_files_with_new_bytes_are_synced_by_the_thread(tmp_path: Path, disk: TimedDisk) -> None:
    async with on_loop(tmp_path, disk) as service:
        log = service.store.components.commit_log
        while log.room() > 100_000:
            await appends(service, 1)
            service.store.append([draft(bytes(90_000))])
        await appends(service, 1)
        disk.syncers.clear()
        service.store.append([draft(b"in the old file")])
        await service.append([draft(bytes(log.room()))])
        assert disk.syncers.count(BY_THREAD) == 2
        assert ON_LOOP not in disk.syncers


async def test_a_failed_sync_on_the_loop_fails_all_who_wait_and_ends_all_writing(
    tmp_path: Path, disk: TimedDisk
) -> None:
    async with on_loop(tmp_path, disk) as service:
        disk.error = OSError(errno.EIO, "Input/output error")
        outcomes = await asyncio.gather(
            *(service.append([draft(b"%d" % number)]) for number in range(5)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [StoreReadOnly] * 5
        assert disk.syncers == [ON_LOOP]
        assert isinstance(service.store.write_error, StoreReadOnly)
        disk.error = None
        with pytest.raises(OSError, match="Input/output"):
            service.store.flusher.sync_now()
        assert disk.syncers == [ON_LOOP]  # a second one would say that all is well
    assert Layout.under(tmp_path).abort.exists()


async def test_what_the_loop_synced_gets_checksums_within_a_moment(tmp_path: Path, disk: TimedDisk) -> None:
    async with on_loop(tmp_path, disk) as service:
        commit_log = service.store.components.commit_log

        def are_summed() -> bool:
            return check_block_checksums(RealDisk(), root=tmp_path).summary.summed_bytes >= commit_log.max_offset

        for _ in range(3):
            await appends(service, 1)
            await until(are_summed)
        assert set(disk.syncers) == {ON_LOOP}


async def test_a_sync_that_takes_too_long_fails_those_whose_time_is_over_and_no_others(tmp_path: Path) -> None:
    store = MessageStore.open(small(tmp_path), Clock(), HOST)
    (appended,) = put(store, draft(b"x"))
    first, second, third = (store.flusher.wait_durable(appended.end, deadline) for deadline in (1.0, 2.0, 3.0))
    store.flusher.expired(2.5)
    assert [type(future.exception()) for future in (first, second)] == [TimeoutError, TimeoutError]
    assert not third.done()
    store.flusher.flushed(store.flusher.sync_now())
    assert third.result() is None
    store.close()


async def test_one_who_cannot_be_answered_does_not_keep_the_others_from_their_outcome(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MessageStore.open(small(tmp_path), Clock(), HOST)
    (appended,) = put(store, draft(b"x"))

    def broken(outcome: object) -> None:
        raise ValueError("broken")

    store.flusher.when_durable(appended.end, broken)
    other = store.flusher.wait_durable(appended.end)
    store.flusher.flushed(store.flusher.sync_now())
    assert other.done()
    assert "cannot be answered" in caplog.text
    store.close()
