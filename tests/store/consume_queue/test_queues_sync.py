"""Many queues made durable by one sync of their file system, and one by one where that does not do."""

import errno
import random
from pathlib import Path

import pytest

from ariane.store.consume_queue.queues import SYNCED_EACH_MAX, ConsumeQueues
from ariane.store.layout import Layout
from tests.simulation.simulated_disk import SimulatedDisk, SimulatedFileSystem
from tests.store.queues import fill, open_queues

STORE = Path("store")
LOST = OSError(errno.EIO, "Input/output error")


class LosingDisk(SimulatedDisk):
    """Its file system has lost another program's page; all of our files are well."""

    def file_system(self, path: Path) -> SimulatedFileSystem | None:
        class Losing(SimulatedFileSystem):
            def sync(self) -> None:
                raise LOST

        return Losing(self, path)


class SplitDisk(SimulatedDisk):
    """One topic is a link to another disk."""

    def file_system(self, path: Path) -> SimulatedFileSystem | None:
        class First(SimulatedFileSystem):
            def holds(self, path: Path) -> bool:
                return path.parent.name != "topic_7"

        return First(self, path)


def written(queues: ConsumeQueues, queue_id: int = 0) -> ConsumeQueues:
    """With so many new queues that they are synced together: each has a file and two names."""
    for number in range(SYNCED_EACH_MAX):
        fill(queues.get_or_create(f"topic_{number}", queue_id), 3)
    queues.write_dirty()
    return queues


def new_disk(kind: type[SimulatedDisk] = SimulatedDisk) -> SimulatedDisk:
    disk = kind()
    disk.make_directory(Layout.under(STORE).consume_queues)
    return disk


def syncs(disk: SimulatedDisk, queues: ConsumeQueues) -> set[str]:
    disk.journal.clear()
    for sync in queues.take_unsynced():
        sync()
    return {operation.kind for operation in disk.journal}


def check_durable(disk: SimulatedDisk) -> None:
    for seed in range(5):
        found = open_queues(STORE, disk.cut_power(random.Random(seed)))
        assert [queue.max_offset for queue in found] == [3] * SYNCED_EACH_MAX


def test_one_call_makes_all_of_them_durable() -> None:
    disk = new_disk()
    queues = written(open_queues(STORE, disk))
    assert syncs(disk, queues) == {"sync_file_system"}
    assert queues.take_unsynced() == []
    check_durable(disk)


def test_what_a_dead_process_wrote_is_synced_file_by_file_as_well() -> None:
    """It may have been lost before this process began to watch the file system."""
    disk = new_disk()
    written(open_queues(STORE, disk))
    disk = disk.crash_process()
    queues = open_queues(STORE, disk)
    queues.mark_unsynced_from(0)
    assert syncs(disk, queues) == {"sync_file_system", "sync", "sync_directory"}
    check_durable(disk)
    written(queues, queue_id=1)
    assert syncs(disk, queues) == {"sync_file_system"}, "this process has written all of it"


def test_a_loss_of_ours_is_reported() -> None:
    disk = new_disk()
    (sync,) = written(open_queues(STORE, disk)).take_unsynced()
    disk.fail_syncs(LOST)
    with pytest.raises(OSError, match="Input/output"):
        sync()


def test_what_another_program_lost_is_no_failure_of_ours() -> None:
    disk = new_disk(LosingDisk)
    queues = written(open_queues(STORE, disk))
    assert syncs(disk, queues) == {"sync", "sync_directory"}
    assert queues.take_unsynced() == []
    check_durable(disk)


def test_with_a_queue_on_another_disk_each_file_is_synced_by_itself() -> None:
    disk = new_disk(SplitDisk)
    queues = written(open_queues(STORE, disk))
    queues.close()
    again = written(open_queues(STORE, disk))
    assert syncs(disk, again) >= {"sync"}
    assert "sync_file_system" not in {operation.kind for operation in disk.journal}
