"""A running store on real files: when an append is durable, what a failing disk does to it, and its lock."""

import asyncio
import errno
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ariane.clock import Clock
from ariane.errors import StoreFull, StoreInUse, StoreReadOnly
from ariane.store import message_store
from ariane.store import service as service_module
from ariane.store.append.draft import Appended
from ariane.store.blocking_io import UncachedBytes, fetch, run_in_executor
from ariane.store.checkpoint import read_checkpoint
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.disk import RealDisk, RealFile
from ariane.store.layout import Layout
from ariane.store.maintenance.retention import FILES_PER_PASS
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType, StoreSettings
from ariane.testing import FakeClock
from ariane.wire.record.read import RecordView, verify
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import BOOT, HOST, bodies, draft, opened, put, small
from tests.transport.peers import PATIENCE_S, until

IO_ERROR = OSError(errno.EIO, "Input/output error")
LATER_MS = 4_000_000_000_000  # when every file that is made now is old


class WatchedFile(RealFile):
    """A file of the commit log: syncs when its disk lets it, and fails when its disk says so. Others just sync."""

    def __init__(self, descriptor: int, size: int, disk: "WatchedDisk", path: Path, *, is_new: bool) -> None:
        super().__init__(descriptor, size)
        self._disk = disk
        self._path = path
        self._is_new = is_new

    def sync(self) -> None:
        is_log = self._path.parent.name == "commitlog"
        if is_log and self._is_new:  # made ready in the background: nothing is in it
            self._is_new = False
            return
        if is_log:
            self._disk.syncs_begun += 1
            self._disk.sync_began.set()
            assert self._disk.gate.wait(30)
        if self._disk.sync_error is not None and self._disk.failing_room in self._path.parts:
            raise self._disk.sync_error
        super().sync()

    def read(self, length: int, position: int) -> bytes:
        if self._path.parent.name == "commitlog":
            self._disk.readers.append(threading.current_thread().name)
        if "consumequeue" in self._path.parts:
            self._disk.entry_readers.append((threading.current_thread().name, self._path.name, position))
        return super().read(length, position)

    def read_cached(self, length: int, position: int) -> bytes | None:
        return super().read_cached(length, position) if self._disk.is_cached else None


class WatchedDisk(RealDisk):
    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.sync_began = threading.Event()
        self.sync_error: OSError | None = None
        self.failing_room = "commitlog"
        self.syncs_begun = 0
        self.readers: list[str] = []
        self.entry_readers: list[tuple[str, str, int]] = []
        """Thread, file and position of each read of a consume queue's file."""
        self.is_cached = True
        self.removers: list[tuple[str, str]] = []
        """Directory and thread of each file that was removed."""
        self.used = 0.1

    def create(self, path: Path, size: int, *, allocated: int) -> RealFile:
        return self._watched(super().create(path, size, allocated=allocated), path, is_new=True)

    def open(self, path: Path, *, writable: bool) -> RealFile:
        return self._watched(super().open(path, writable=writable), path, is_new=False)

    def _watched(self, file: RealFile, path: Path, *, is_new: bool) -> RealFile:
        return WatchedFile(file.descriptor, file.size, self, path, is_new=is_new)

    def used_ratio(self, path: Path) -> float:
        return self.used

    def remove(self, path: Path) -> None:
        self.removers.append((path.parent.name, threading.current_thread().name))
        super().remove(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> WatchedDisk:
    """The disk of every store that is opened by its service."""
    watched = WatchedDisk()
    monkeypatch.setattr(message_store, "RealDisk", lambda: watched)
    return watched


@pytest.fixture
def settings(tmp_path: Path) -> StoreSettings:
    return small(tmp_path / "store")


def asynchronous(settings: StoreSettings) -> StoreSettings:
    return replace(settings, flush_disk_type=FlushDiskType.ASYNC, flush_interval_ms=60_000)


@asynccontextmanager
async def running(settings: StoreSettings, clock: Clock | None = None) -> AsyncIterator[StoreService]:
    async with StoreService.open(settings, clock or FakeClock(), HOST) as service:
        yield service


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- when an append is durable ----------------------------------------------------------------------------------------


async def test_an_append_with_sync_flush_returns_when_the_disk_has_it(
    settings: StoreSettings, disk: WatchedDisk
) -> None:
    async with running(settings) as service:
        (before,) = await service.append([draft(b"makes the file")])
        assert isinstance(before, Appended)
        disk.gate.clear()
        append = asyncio.ensure_future(service.append([draft(b"waits")]))
        await turns()
        assert not append.done()
        unflushed = service.store.flusher.unflushed_bytes
        assert bodies(service.store, "orders", 0)[-1] == b"waits"  # readers need not wait
        disk.gate.set()
        (outcome,) = await append
        assert isinstance(outcome, Appended)
        assert unflushed == outcome.end - before.end  # the record that waits, and nothing else
        assert service.store.flusher.flushed_to >= outcome.end


async def test_one_sync_serves_all_who_wait(settings: StoreSettings, disk: WatchedDisk) -> None:
    async with running(replace(settings, segment_bytes=65536)) as service:
        await service.append([draft(b"makes the file")])
        disk.gate.clear()
        disk.sync_began.clear()
        first = asyncio.ensure_future(service.append([draft(b"first")]))
        assert await asyncio.to_thread(disk.sync_began.wait, 30)
        begun = disk.syncs_begun
        others = [asyncio.ensure_future(service.append([draft(b"%d" % n)])) for n in range(50)]
        await turns()
        disk.gate.set()
        await asyncio.gather(first, *others)
        assert disk.syncs_begun == begun + 1


async def test_an_append_with_async_flush_returns_at_once(settings: StoreSettings, disk: WatchedDisk) -> None:
    async with running(asynchronous(settings)) as service:
        await service.append([draft(b"makes the file")])
        disk.gate.clear()
        (outcome,) = await service.append([draft(b"at once")])
        assert isinstance(outcome, Appended)
        assert service.store.flusher.flushed_to < outcome.end
        disk.gate.set()
        await service.wait_durable([outcome])
        assert service.store.flusher.flushed_to >= outcome.end


async def test_a_sync_that_takes_too_long_leaves_the_outcome_unknown(
    settings: StoreSettings, disk: WatchedDisk
) -> None:
    async with running(replace(settings, sync_flush_timeout_ms=1)) as service:
        while True:
            try:
                await service.append([draft(b"makes the file")])
                break
            except TimeoutError:
                continue
        before = len(bodies(service.store, "orders", 0))
        disk.gate.clear()
        with pytest.raises(TimeoutError):
            await service.append([draft(b"who knows")])
        disk.gate.set()
        assert len(bodies(service.store, "orders", 0)) == before + 1
        assert service.store.write_error is None


@pytest.mark.parametrize("kind", list(FlushDiskType))
async def test_closing_and_opening_keeps_everything(settings: StoreSettings, kind: FlushDiskType) -> None:
    settings = replace(settings, flush_disk_type=kind)
    sent = [b"%d" % number + bytes(500) for number in range(60)]
    for _ in range(3):
        async with running(settings) as service:
            for body in sent[:20]:
                await service.append([draft(body)])
        assert not Layout.under(settings.root).abort.exists()
    async with running(settings) as service:
        assert bodies(service.store, "orders", 0) == sent[:20] * 3


# --- one at a time ----------------------------------------------------------------------------------------------------


async def test_a_second_broker_is_kept_out(settings: StoreSettings) -> None:
    async with running(settings) as service:
        with pytest.raises(StoreInUse):
            async with running(settings):
                pass
        await service.append([draft(b"the first one goes on")])
    async with running(settings) as service:
        assert bodies(service.store, "orders", 0) == [b"the first one goes on"]


async def test_a_broker_in_another_process_is_kept_out(settings: StoreSettings) -> None:
    async with running(settings):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _LOCK_IT, str(Layout.under(settings.root).lock), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await child.communicate()
        assert output.strip() == b"kept out"


_LOCK_IT = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("kept out")
"""


# --- a sync that fails ------------------------------------------------------------------------------------------------


async def test_the_first_failed_sync_ends_all_writing(settings: StoreSettings, disk: WatchedDisk) -> None:
    async with running(settings) as service:
        await service.append([draft(b"durable")])
        disk.sync_error = IO_ERROR
        waiters = [asyncio.ensure_future(service.append([draft(b"%d" % number)])) for number in range(5)]
        for waiter in waiters:
            with pytest.raises(StoreReadOnly):
                await waiter
        assert isinstance(service.store.write_error, StoreReadOnly)
        (refused,) = await service.append([draft(b"refused")])
        assert isinstance(refused, StoreReadOnly)
        assert bodies(service.store, "orders", 0)[0] == b"durable"  # reads go on
    assert Layout.under(settings.root).abort.exists()


async def test_a_failed_sync_is_never_tried_again(settings: StoreSettings, disk: WatchedDisk) -> None:
    """The kernel would say that all is well: what it could not write, it has forgotten."""
    clock = FakeClock()
    async with running(settings, clock) as service:
        await service.append([draft(b"durable")])
        flushed_to = service.store.flusher.flushed_to
        checkpoint = Layout.under(settings.root).checkpoint.read_bytes()[:3072]
        disk.sync_error = IO_ERROR
        with pytest.raises(StoreReadOnly):
            await service.append([draft(b"lost")])
        disk.sync_error, begun = None, disk.syncs_begun
        await clock.advance(settings.queue_flush_thorough_interval_ms / 1000 * 3)  # rounds that sync everything
        with pytest.raises(OSError, match="Input/output"):
            service.store.flusher.sync_now()
        assert (disk.syncs_begun, service.store.flusher.flushed_to) == (begun, flushed_to)
        assert Layout.under(settings.root).checkpoint.read_bytes()[:3072] == checkpoint
    assert Layout.under(settings.root).abort.exists()


async def test_a_failed_sync_of_a_round_ends_all_writing_too(settings: StoreSettings, disk: WatchedDisk) -> None:
    clock = FakeClock()
    settings = asynchronous(settings)
    async with running(settings, clock) as service:
        await service.append([draft(b"written")])
        disk.sync_error = IO_ERROR
        await clock.advance(settings.queue_flush_thorough_interval_ms / 1000)
        with pytest.raises(StoreReadOnly):
            await service.store.flusher.wait_durable(2**40)
        assert isinstance(service.store.write_error, StoreReadOnly)


@pytest.mark.parametrize(("size", "is_early"), [(1000, False), (5000, True)])
async def test_a_checkpoint_comes_before_its_interval_when_much_was_written(
    settings: StoreSettings, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch, size: int, is_early: bool
) -> None:
    """A start after a power cut is bounded by bytes, too."""
    monkeypatch.setattr(service_module, "EARLY_CHECKPOINT_BYTES", 4000)
    clock, path = FakeClock(), Layout.under(settings.root).checkpoint
    async with running(settings, clock) as service:
        (appended,) = await service.append([draft(bytes(size))])
        assert isinstance(appended, Appended)
        before = read_checkpoint(disk, path).dispatched_to
        await clock.advance(1)
        if is_early:
            await until(lambda: read_checkpoint(disk, path).dispatched_to == appended.end)
            await until(lambda: service.store.bytes_since_checkpoint == 0)
        else:
            await clock.advance(settings.queue_flush_thorough_interval_ms / 1000 / 2)
            assert read_checkpoint(disk, path).dispatched_to == before


@pytest.mark.parametrize("room", ["consumequeue", "index", "checkpoint"])
async def test_a_failed_sync_of_what_is_made_from_the_log_is_never_tried_again(
    settings: StoreSettings, disk: WatchedDisk, room: str
) -> None:
    """The next checkpoint would vouch for entries that the disk does not have."""
    clock = FakeClock()
    layout = Layout.under(settings.root)
    async with running(settings, clock) as service:
        await service.append([draft(b"x", key="k")])
        await clock.advance(2)  # entries and keys are in their files
        disk.failing_room, disk.sync_error = room, IO_ERROR
        await clock.advance(settings.queue_flush_thorough_interval_ms / 1000)
        with pytest.raises(StoreReadOnly):
            await service.store.flusher.wait_durable(2**40)
        disk.sync_error = None
        dispatched_to = read_checkpoint(disk, layout.checkpoint).dispatched_to
        with pytest.raises(OSError):
            service.store.make_durable()
        assert read_checkpoint(disk, layout.checkpoint).dispatched_to == dispatched_to
    assert layout.abort.exists()
    async with running(settings) as service:
        assert bodies(service.store, "orders", 0) == [b"x"]
        assert len(service.store.lookup.by_key("orders", "k", 10, 0, 2**62)) == 1


async def test_the_next_start_recovers_what_a_failed_sync_left(settings: StoreSettings, disk: WatchedDisk) -> None:
    async with running(settings) as service:
        await service.append([draft(b"durable")])
        disk.sync_error = IO_ERROR
        with pytest.raises(StoreReadOnly):
            await service.append([draft(b"unknown")])
    disk.sync_error = None
    async with running(settings) as service:
        assert bodies(service.store, "orders", 0)[:1] == [b"durable"]
        await service.append([draft(b"after")])
        assert bodies(service.store, "orders", 0)[-1] == b"after"


async def test_a_failed_sync_and_then_a_power_cut_lose_nothing_acknowledged() -> None:
    simulated = SimulatedDisk()
    store = opened(simulated)
    put(store, draft(b"acknowledged"))
    store.flusher.flushed(store.flusher.sync_now())
    put(store, draft(b"not"))
    waiter = store.flusher.wait_durable(store.components.commit_log.max_offset)
    simulated.fail_syncs(IO_ERROR)
    with pytest.raises(OSError, match="Input/output") as caught:
        store.flusher.sync_now()
    store.flusher.failed(caught.value)
    with pytest.raises(StoreReadOnly):
        await waiter
    simulated.fail_syncs(None)
    store.close()
    again = opened(simulated.crash_process(), boot=BOOT)
    assert bodies(again, "orders", 0)[:1] == [b"acknowledged"]


def test_two_threads_never_sync_at_once() -> None:
    """Of two syncs of one file, the kernel reports the error to one: the other would acknowledge lost bytes."""
    store = opened(SimulatedDisk())
    put(store, draft(b"x"))
    inside: list[str] = []
    together: list[int] = []
    segment = store.components.commit_log.segments.first
    assert segment is not None
    real = segment.file.sync

    def sync() -> None:
        inside.append("")
        together.append(len(inside))
        real()
        os.sched_yield()
        inside.pop()

    segment.file.sync = sync  # type: ignore[method-assign]
    threads = [threading.Thread(target=lambda: [store.flusher.sync_now() for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(together) == {1}


# --- rounds -----------------------------------------------------------------------------------------------------------


async def test_a_key_is_found_within_a_tick(settings: StoreSettings) -> None:
    clock = FakeClock()
    async with running(settings, clock) as service:
        await service.append([draft(b"found", key="k")])
        await clock.advance(0.05)
        assert len(service.store.lookup.by_key("orders", "k", 10, 0, 2**62)) == 1


async def test_a_key_asked_of_the_service_is_found_at_once(settings: StoreSettings) -> None:
    async with running(settings, FakeClock()) as service:
        await service.append([draft(b"found", key="k"), draft(b"other", key="j")])
        (record,) = await service.by_key("orders", "k", 10, 0, 2**62)
        view = verify(record)
        assert isinstance(view, RecordView)
        assert view.body(record) == b"found"


async def passes_until(clock: FakeClock, settings: StoreSettings, condition: Callable[[], object]) -> None:
    """Lets passes of retention happen until `condition()` holds.

    Threads do a part of each pass, and the clock does not wait for them: a pass that has not ended sleeps through the
    next moment.
    """
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await clock.advance(settings.clean_interval_ms / 1000)
            await asyncio.sleep(0.001)


async def test_writes_are_refused_above_the_ratio_and_resume_by_themselves(
    settings: StoreSettings, disk: WatchedDisk
) -> None:
    clock = FakeClock()
    async with running(settings, clock) as service:
        await service.append([draft(b"before")])
        disk.used = 0.95
        await passes_until(clock, settings, lambda: service.store.write_error is not None)
        (refused,) = await service.append([draft(b"refused")])
        assert isinstance(refused, StoreFull)
        assert bodies(service.store, "orders", 0) == [b"before"]
        disk.used = 0.5
        await passes_until(clock, settings, lambda: service.store.write_error is None)
        (taken,) = await service.append([draft(b"after")])
        assert isinstance(taken, Appended)
    async with running(settings) as service:
        assert bodies(service.store, "orders", 0) == [b"before", b"after"]


# --- cold reads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_cached", [True, False])
async def test_what_has_left_the_page_cache_is_fetched_by_a_thread(
    settings: StoreSettings, disk: WatchedDisk, is_cached: bool
) -> None:
    async with running(settings) as service:
        for number in range(5):
            await service.append([draft(b"%d" % number, "orders" if number % 2 else "others")])
        service.store.make_durable()
        await service.read("orders", 0, 0, 32)  # the first read checks them
        disk.is_cached = is_cached
        disk.readers.clear()
        result = await service.read("orders", 0, 0, 32)
        assert len(result.slices) == 2
        assert bool(disk.readers) is not is_cached
        assert all(name.startswith("ariane-store") for name in disk.readers)


async def test_a_search_by_time_fetches_each_cold_record_by_a_thread(
    settings: StoreSettings, disk: WatchedDisk
) -> None:
    clock = FakeClock()
    async with running(settings, clock) as service:
        for number in range(20):
            await service.append([draft(b"%d" % number)])
            await clock.advance(1)
        stored_ms = service.store.lookup.store_time(queue_of(service), 13)
        assert stored_ms is not None
        service.store.make_durable()
        search = partial(service.store.lookup.offset_by_time_steps, "orders", 0, stored_ms)
        assert await run_in_executor(search()) == 13  # the first one checks what it reads
        disk.readers.clear()
        assert await run_in_executor(search()) == 13
        assert disk.readers == []
        disk.is_cached = False
        assert await run_in_executor(search()) == 13
        assert len(disk.readers) >= 4
        assert "MainThread" not in disk.readers


async def test_a_search_by_time_fetches_each_cold_entry_by_a_thread_first(
    settings: StoreSettings, disk: WatchedDisk
) -> None:
    clock = FakeClock()
    async with running(settings, clock) as service:
        for number in range(300):  # so many that the first ones are in the files alone
            service.store.append([draft(b"%d" % number)])
            await clock.advance(1)
        service.store.make_durable()
        stored_ms = service.store.lookup.store_time(queue_of(service), 13)
        assert stored_ms is not None
        disk.is_cached = False
        disk.entry_readers.clear()
        assert await run_in_executor(service.store.lookup.offset_by_time_steps("orders", 0, stored_ms)) == 13
        reads = list(disk.entry_readers)
        assert len(reads) >= 8
        for (first, *place), (second, *again) in zip(reads[::2], reads[1::2], strict=True):
            assert place == again
            assert (first == "MainThread", second == "MainThread") == (False, True)


async def test_a_read_fetches_cold_entries_by_a_thread_first(settings: StoreSettings, disk: WatchedDisk) -> None:
    async with running(settings) as service:
        for number in range(300):  # so many that the first ones are in the files alone
            service.store.append([draft(b"%d" % number)])
        service.store.make_durable()
        disk.is_cached = False
        disk.entry_readers.clear()
        assert service.store.reader.read_ahead().find(queue_of(service), 13, 8, 1 << 20) is None
        found = await service.read("orders", 0, 13, 8)
        assert found.next_offset == 21
        first, second, *others = [thread for thread, _, _ in disk.entry_readers]  # one for each of two files
        assert "MainThread" not in (first, second)
        assert set(others) == {"MainThread"}


async def test_a_search_by_time_goes_on_when_a_damaged_entry_names_an_absurd_size(settings: StoreSettings) -> None:
    async with running(settings) as service:
        await service.append([draft(b"%d" % number) for number in range(3)])
        queue = queue_of(service)
        queue.append(0, 2**31 - 1, 0)
        queue.append(0, -5, 0)
        service.store.make_durable()
        assert await run_in_executor(service.store.lookup.offset_by_time_steps("orders", 0, 0)) == 0
        assert await run_in_executor(service.store.lookup.offset_by_time_steps("orders", 0, 2**62)) == 5


def queue_of(service: StoreService) -> ConsumeQueue:
    queue = service.store.components.queues.get("orders", 0)
    assert queue is not None
    return queue


async def test_a_store_that_the_kernel_has_dropped_from_memory_reads_the_same(settings: StoreSettings) -> None:
    async with running(settings) as service:
        await service.append([draft(b"cold" + bytes(3000))])
    path = Layout.under(settings.root).commit_log / f"{0:020d}"
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    async with running(settings) as service:
        result = await service.read("orders", 0, 0, 32)
        assert b"cold" in bytes(result.slices[0])


async def test_files_are_removed_by_threads_while_others_are_served(settings: StoreSettings, disk: WatchedDisk) -> None:
    async with running(settings, FakeClock(LATER_MS)) as service:
        for number in range(200):
            service.store.append([draft(b"%d" % number + bytes(700), "orders", number % 3, f"k{number}")])
        service.store.make_durable()
        disk.removers.clear()
        cleaning = asyncio.ensure_future(service.clean(manual=True))
        served = 0
        while not cleaning.done():
            await service.read("orders", 2, 60, 1)
            await asyncio.sleep(0)
            served += 1
        assert (await cleaning).files == FILES_PER_PASS
        assert served > FILES_PER_PASS
        queue = queue_of(service)
        assert queue.min_offset > 0
        assert service.store.lookup.store_time(queue, queue.min_offset) is not None
        by_directory = dict(disk.removers)
        assert by_directory.keys() >= {"commitlog", "index"}
        assert all(
            thread.startswith("ariane-store") for name, thread in disk.removers if name in ("commitlog", "index")
        )


async def test_a_topic_may_be_deleted_while_retention_is_at_work(settings: StoreSettings, disk: WatchedDisk) -> None:
    async with running(settings, FakeClock(LATER_MS)) as service:
        for number in range(200):
            service.store.append([draft(b"%d" % number + bytes(700), f"topic{number % 4}")])
        service.store.make_durable()
        disk.is_cached = False  # so every look at an entry is one at which others have their turn
        cleaning = asyncio.ensure_future(service.clean(manual=True))
        await until(lambda: bool(disk.removers))
        for number in range(3):
            service.store.components.queues.delete_topic(f"topic{number}")
            await asyncio.sleep(0)
        assert (await cleaning).files == FILES_PER_PASS
        queue = service.store.components.queues.get("topic3", 0)
        assert queue is not None
        assert 0 < queue.min_offset < queue.max_offset


def test_a_store_opened_without_a_service_is_the_same_store(settings: StoreSettings) -> None:
    store = MessageStore.open(settings, FakeClock(), HOST)
    put(store, draft(b"x"))
    store.close()
    again = MessageStore.open(settings, FakeClock(), HOST)
    assert bodies(again, "orders", 0) == [b"x"]
    again.close()


@pytest.mark.parametrize(("number", "is_reported"), [(errno.EIO, True), (errno.EBADF, False)])
def test_a_sector_that_cannot_be_read_is_reported_before_the_mapping_meets_it(number: int, is_reported: bool) -> None:
    """A file that retention has just closed is not: a reader's slice keeps its mapping."""

    class Failing:
        def read(self, length: int, position: int) -> bytes:
            raise OSError(number, os.strerror(number))

    if is_reported:
        with pytest.raises(OSError, match=os.strerror(number)):
            fetch([UncachedBytes(Failing(), 0, 10)])  # type: ignore[arg-type]
    else:
        fetch([UncachedBytes(Failing(), 0, 10)])  # type: ignore[arg-type]
