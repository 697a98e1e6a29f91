"""All consume queues of a store: look-up, writing, deletion and errors."""

import errno
import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ariane.errors import MessageRefused, StoreError, StoreFull
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.disk import RealDisk, RealFile
from ariane.store.layout import Layout
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.queues import directory, entry, fill, is_dirty, open_descriptors, open_queues, read

STORE = Path("store")


def names(queues: ConsumeQueues) -> list[tuple[str, int]]:
    return sorted((queue.topic, queue.queue_id) for queue in queues)


@contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """As with `ulimit -n`, for a while: so many more than are in use."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# --- looking up -----------------------------------------------------------------------------------------------------


def test_a_queue_is_made_once(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    assert queues.get("orders", 3) is None
    queue = queues.get_or_create("orders", 3)
    assert queues.get("orders", 3) is queue is queues.get_or_create("orders", 3)
    assert queues.get("orders", 4) is queues.get("other", 3) is None
    assert queues.topics() == ["orders"]
    assert dict(queues.of_topic("orders")) == {3: queue}
    assert dict(queues.of_topic("other")) == {}


def test_queues_that_were_written_are_there_after_a_restart(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    for topic, queue_id, count in [("orders", 0, 25), ("orders", 12, 1), ("%RETRY%group_1-a", 0, 10)]:
        fill(queues.get_or_create(topic, queue_id), count)
    queues.get_or_create("empty", 0)
    queues.write_dirty()
    queues.close()
    again = open_queues(tmp_path)
    assert names(again) == [("%RETRY%group_1-a", 0), ("orders", 0), ("orders", 12)]
    assert [queue.max_offset for queue in again.of_topic("orders").values()] == [25, 1]
    assert again.max_physical == 2500


@pytest.mark.parametrize("topic", ["", "..", "a/b", "../../etc", "a" * 128, "naïve", "a|b", "nul\0"])
def test_a_name_that_must_not_become_a_directory_is_refused(tmp_path: Path, topic: str) -> None:
    queues = open_queues(tmp_path)
    with pytest.raises(MessageRefused):
        queues.get_or_create(topic, 0)
    assert queues.topics() == []


@pytest.mark.parametrize("queue_id", [-1, 2**31])
def test_an_impossible_queue_id_is_refused(tmp_path: Path, queue_id: int) -> None:
    with pytest.raises(MessageRefused, match="between 0 and"):
        open_queues(tmp_path).get_or_create("orders", queue_id)


def test_what_is_no_queue_is_left_alone_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    strange = ["not a topic/0", "orders/00", "orders/-1", "orders/x", "orders/٣", "orders/99999999999"]
    root = Layout.under(tmp_path).consume_queues
    for name in [*strange, "orders/1", "orders/2"]:
        (root / name).mkdir(parents=True)
    (root / "a_file").write_bytes(b"")
    (root / "orders/2/notes.txt").write_text("not ours")
    queues = open_queues(tmp_path)
    assert names(queues) == [("orders", 1), ("orders", 2)]
    assert caplog.text.count("ignored") == len(strange)
    assert all((root / name).exists() for name in strange)


# --- writing and syncing --------------------------------------------------------------------------------------------


def test_only_queues_with_new_entries_are_written() -> None:
    disk = SimulatedDisk()
    queues = open_queues(STORE, disk)
    fill(queues.get_or_create("orders", 0), 1)
    fill(queues.get_or_create("orders", 1), 1)
    queues.write_dirty()
    before = disk.operations
    queues.write_dirty()
    assert disk.operations == before
    fill(queues.get_or_create("orders", 1), 1)
    queues.write_dirty()
    assert [operation.path.parent.name for operation in disk.journal[before:]] == ["1"]


def test_a_full_disk_loses_nothing_in_any_queue() -> None:
    disk = SimulatedDisk()
    queues = open_queues(STORE, disk)
    made = [queues.get_or_create("orders", queue_id) for queue_id in range(10)]
    for queue in made:
        fill(queue, 8)
    disk.space_left = 5 * 4096
    with pytest.raises(StoreFull):
        queues.write_dirty()
    assert len([queue for queue in made if is_dirty(queue)]) == 5
    for queue in made:
        fill(queue, 8)
    disk.fail_writes(OSError(errno.EDQUOT, "Disk quota exceeded"))
    with pytest.raises(StoreFull, match="quota"):
        queues.write_dirty()
    disk.space_left = None
    disk.fail_writes(None)
    queues.write_dirty()
    assert [len(read(queue)) for queue in open_queues(STORE, disk)] == [16] * 10


def test_what_is_synced_survives_a_power_cut() -> None:
    disk = SimulatedDisk()
    queues = open_queues(STORE, disk)
    for queue_id in range(3):
        fill(queues.get_or_create("orders", queue_id), 25)
    queues.write_dirty()
    for sync in queues.take_unsynced():
        sync()
    assert queues.take_unsynced() == []
    for seed in range(20):
        found = open_queues(STORE, disk.cut_power(random.Random(seed)))
        assert [queue.max_offset for queue in found] == [25, 25, 25]


def test_a_file_is_synced_though_its_descriptor_was_closed_and_it_may_be_gone(tmp_path: Path) -> None:
    queues = open_queues(tmp_path, open_files_max=1)
    for queue_id in range(5):
        fill(queues.get_or_create("orders", queue_id), 25)
    queues.write_dirty()
    syncs = queues.take_unsynced()
    queues.delete_queue("orders", 2)
    queues.close()
    for sync in syncs:
        sync()
    assert open_descriptors(tmp_path) == 0


def test_a_failed_sync_is_reported() -> None:
    disk = SimulatedDisk()
    queues = open_queues(STORE, disk)
    fill(queues.get_or_create("orders", 0), 1)
    queues.write_dirty()
    disk.fail_syncs(OSError(errno.EIO, "Input/output error"))
    for sync in queues.take_unsynced():
        with pytest.raises(OSError, match="Input/output"):
            sync()


# --- all queues at once ---------------------------------------------------------------------------------------------


def test_both_ends_are_cut_in_every_queue(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    for queue_id in range(3):
        fill(queues.get_or_create("orders", queue_id), 35)
    queues.write_dirty()
    queues.truncate(3000)
    assert queues.max_physical == 3000
    assert queues.drop_before(1500) == 3
    assert {(queue.min_offset, queue.max_offset) for queue in queues} == {(15, 30)}


def test_a_deleted_topic_leaves_nothing_behind(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    for topic in ("orders", "bills"):
        for queue_id in range(3):
            fill(queues.get_or_create(topic, queue_id), 25)
    queues.write_dirty()
    fill(queues.get_or_create("orders", 0), 1)
    queues.delete_topic("orders")
    queues.delete_topic("unknown")
    queues.write_dirty()
    assert not directory(tmp_path).parent.exists()
    assert names(open_queues(tmp_path)) == names(queues) == [("bills", 0), ("bills", 1), ("bills", 2)]


def test_a_deleted_topic_takes_the_extensions_along_that_apache_wrote(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    fill(queues.get_or_create("orders", 0), 5)
    extension = Layout.under(tmp_path).consume_queue_extensions / "orders" / "0"
    extension.mkdir(parents=True)
    (extension / f"{0:020d}").write_bytes(b"units")
    queues.delete_topic("orders")
    assert not extension.parent.exists()


def test_the_names_of_new_queues_wait_for_the_thread_that_syncs() -> None:
    """Five thousand new queues would otherwise hold the loop for seconds."""
    disk = SimulatedDisk()
    queues = open_queues(STORE, disk)
    for queue_id in range(20):
        fill(queues.get_or_create("orders", queue_id), 1)
    disk.journal.clear()
    queues.write_dirty()
    assert "sync_directory" not in {operation.kind for operation in disk.journal}
    for sync in queues.take_unsynced():
        sync()
    synced = [operation.path for operation in disk.journal if operation.kind == "sync_directory"]
    root = Layout.under(STORE).consume_queues
    assert synced.count(root) == synced.count(root / "orders") == 1


def test_a_deleted_topic_keeps_files_that_are_not_ours(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    fill(queues.get_or_create("orders", 0), 5)
    queues.write_dirty()
    notes = directory(tmp_path) / "notes.txt"
    notes.write_text("not ours")
    queues.delete_topic("orders")
    assert [path for path in (tmp_path / "consumequeue").rglob("*") if path.is_file()] == [notes]


def test_a_topic_can_be_deleted_from_a_full_disk() -> None:
    disk = SimulatedDisk()
    queues = open_queues(STORE, disk)
    fill(queues.get_or_create("orders", 0), 25)
    queues.write_dirty()
    disk.space_left = 0
    queues.delete_topic("orders")
    assert disk.space_left > 0
    assert names(open_queues(STORE, disk)) == []


def test_a_directory_that_cannot_be_listed_is_a_store_error(tmp_path: Path) -> None:
    class Forbidden(RealDisk):
        def names(self, directory: Path) -> list[str]:
            raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(StoreError, match="Permission denied"):
        open_queues(tmp_path, Forbidden())


# --- many queues ----------------------------------------------------------------------------------------------------


class CountingDisk(RealDisk):
    """Counts how often a file is opened."""

    def __init__(self) -> None:
        self.opened = 0

    def open(self, path: Path, *, writable: bool) -> RealFile:
        self.opened += 1
        return super().open(path, writable=writable)


def test_three_thousand_queues_work_with_eight_descriptors(tmp_path: Path) -> None:
    with few_descriptors(20):
        queues = open_queues(tmp_path, file_bytes=6_000_000, open_files_max=8)
        made = [queues.get_or_create(f"topic_{number // 10}", number % 10) for number in range(3000)]
        for number, queue in enumerate(made):
            queue.append(*entry(number))
        queues.write_dirty()
        for number, queue in enumerate(made):
            queue.append(*entry(3000 + number))
        queues.write_dirty()
        assert open_descriptors(tmp_path) <= 8
        queues.close()

        disk = CountingDisk()
        again = open_queues(tmp_path, disk, file_bytes=6_000_000, open_files_max=8)
        assert disk.opened == 3000, "recovery reads each queue's end, once"
        assert open_descriptors(tmp_path) <= 8
        for number, queue in enumerate(made):
            found = again.get(queue.topic, queue.queue_id)
            assert found is not None
            assert read(found) == [entry(number), entry(3000 + number)]
        again.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3000
    assert sum(path.stat().st_blocks for path in files) * 512 <= 3000 * 8192, "the files are sparse"


def test_without_a_saved_state_recovery_reads_each_file_of_a_queue(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    fill(queues.get_or_create("orders", 0), 95)
    queues.write_dirty()
    queues.close()
    disk = CountingDisk()
    queues = open_queues(tmp_path, disk, open_files_max=100)
    for queue_id in range(100):
        queues.get_or_create("new", queue_id)
    assert disk.opened == 10
