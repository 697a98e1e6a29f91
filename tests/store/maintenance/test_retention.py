"""Which files go and when; and what stays whole for those who still read them."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ariane.errors import StoreFull
from ariane.store.append.draft import Appended
from ariane.store.blocking_io import IoSteps
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.maintenance.retention import FILES_PER_PASS, RetentionHold
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import HOST, ROOT, batch_of, bodies, draft, entries, opened, put, small

HOUR_S = 3600
Used = Callable[[float], None]


class FullerDisk(SimulatedDisk):
    """A disk whose use is what the test says; each deleted file frees a tenth of it."""

    used = 0.0
    freed_by_a_file = 0.1

    def used_ratio(self, path: Path) -> float:
        return self.used

    def remove(self, path: Path) -> None:
        super().remove(path)
        if path.parent.name == "commitlog":
            self.used -= self.freed_by_a_file


def at_hour(hour: int) -> FakeClock:
    """A clock that stands at this hour, local time."""
    return FakeClock(int(time.mktime((2026, 3, 2, hour, 30, 0, 0, 0, -1))) * 1000)


def filled(disk: SimulatedDisk, clock: FakeClock, files: int) -> MessageStore:
    """One message a file; the last file is the active one."""
    store = opened(disk, clock)
    put(store, *[draft(b"%d" % number + bytes(5000), key=f"k{number}") for number in range(files)])
    store.make_durable()
    return store


def age(clock: FakeClock, hours: float) -> None:
    clock._elapsed_s += hours * HOUR_S


def files_left(store: MessageStore) -> int:
    return len(store.components.commit_log.segments)


# --- by age -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hour", "files"), [(4, 2), (3, 0), (5, 0), (16, 0)])
def test_old_files_go_at_the_hour_and_at_no_other(hour: int, files: int) -> None:
    clock = at_hour(hour)
    store = filled(FullerDisk(clock), clock, 3)
    age(clock, 72)
    assert store.clean().files == files
    assert files_left(store) == 3 - files


def test_several_hours_may_be_named() -> None:
    clock = at_hour(16)
    store = opened(FullerDisk(clock), clock, delete_when="04;16")
    put(store, *[draft(bytes(5000)) for _ in range(3)])
    store.make_durable()
    age(clock, 72)
    assert store.clean().files == 2


def test_files_that_are_not_old_enough_stay_at_the_hour() -> None:
    clock = at_hour(4)
    store = filled(FullerDisk(clock), clock, 3)
    age(clock, 48)
    assert store.clean().files == 0


def test_a_file_ages_from_its_last_write() -> None:
    clock = at_hour(4)
    store = filled(FullerDisk(clock), clock, 2)
    age(clock, 48)
    put(store, *[draft(bytes(5000)) for _ in range(2)])
    store.make_durable()
    age(clock, 24)
    assert store.clean().files == 1
    assert store.reader.read("orders", 0, 1, 1).slices


def test_by_hand_old_files_go_at_any_hour_and_young_ones_stay() -> None:
    clock = at_hour(12)
    store = filled(FullerDisk(clock), clock, 3)
    assert store.clean(manual=True).files == 0
    age(clock, 72)
    assert store.clean(manual=True).files == 2


def test_a_round_deletes_no_more_than_ten() -> None:
    clock = at_hour(4)
    store = filled(FullerDisk(clock), clock, 15)
    age(clock, 72)
    assert [store.clean().files, store.clean().files] == [FILES_PER_PASS, 4]


# --- by use of the disk -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "is_old", "files"),
    [(0.75, True, 0), (0.76, True, 4), (0.76, False, 0), (0.85, False, 0), (0.86, False, 4), (0.95, False, 4)],
)
def test_a_full_disk_does_not_wait_for_the_hour(used: float, is_old: bool, files: int) -> None:
    clock = at_hour(12)
    disk = FullerDisk(clock)
    store = filled(disk, clock, 5)
    if is_old:
        age(clock, 72)
    disk.used, disk.freed_by_a_file = used, 0.0
    assert store.clean().files == files


def test_a_full_disk_costs_no_young_files_when_that_is_forbidden() -> None:
    clock = at_hour(12)
    disk = FullerDisk(clock)
    store = opened(disk, clock, clean_forcibly=False)
    put(store, *[draft(bytes(5000)) for _ in range(3)])
    store.make_durable()
    disk.used = 0.95
    cleaned = store.clean()
    assert (cleaned.files, cleaned.disk.is_full) == (0, True)


def test_above_ninety_percent_writes_are_refused_until_there_is_room() -> None:
    clock = at_hour(12)
    disk = FullerDisk(clock)
    store = filled(disk, clock, 1)
    disk.used = 0.91
    assert store.clean().disk.is_full
    (refused,) = store.append([draft(b"refused")])
    assert isinstance(refused, StoreFull)
    assert isinstance(store.append_together([draft(b"refused")])[0], StoreFull)
    assert isinstance(store.append_batch(batch_of(b"refused")), StoreFull)
    assert len(bodies(store, "orders", 0)) == 1
    disk.used = 0.90
    assert not store.clean().disk.is_full
    assert isinstance(store.append([draft(b"taken")])[0], Appended)


def test_files_that_a_round_deletes_count_for_the_same_round() -> None:
    clock = at_hour(12)
    disk = FullerDisk(clock)
    store = filled(disk, clock, 3)
    disk.used = 0.95
    cleaned = store.clean()
    assert (cleaned.files, cleaned.disk.is_full) == (2, False)


# --- what stays -------------------------------------------------------------------------------------------------------


def test_the_active_file_is_never_deleted() -> None:
    clock = at_hour(4)
    disk = FullerDisk(clock)
    store = filled(disk, clock, 1)
    age(clock, 10_000)
    disk.used = 0.99
    assert [store.clean().files, store.clean(manual=True).files] == [0, 0]
    assert bodies(store, "orders", 0) == [b"0" + bytes(5000)]


def test_a_file_stays_until_the_checkpoint_covers_what_was_made_of_it() -> None:
    clock = at_hour(4)
    disk = FullerDisk(clock)
    store = opened(disk, clock)
    put(store, *[draft(bytes(5000)) for _ in range(3)])
    age(clock, 72)
    disk.used = 0.95
    assert store.clean().files == 0
    store.make_durable()
    assert store.clean().files == 2


def test_queues_and_index_follow_the_log() -> None:
    clock = at_hour(4)
    disk = FullerDisk(clock)
    store = filled(disk, clock, 30)
    age(clock, 72)
    while store.clean().files:
        pass
    queue = store.components.queues.get("orders", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (29, 30)
    assert [entry[0] for entry in entries(queue)] == [store.components.commit_log.min_offset]
    assert disk.names(Layout.under(ROOT).queue("orders", 0)) == ["00000000000000000400"]  # 10 entries of 20 a file
    assert store.lookup.by_key("orders", "k3", 10, 0, 2**62) == []
    assert len(store.lookup.by_key("orders", "k29", 10, 0, 2**62)) == 1


def test_a_restart_finds_the_queue_where_it_was() -> None:
    clock = at_hour(4)
    disk = FullerDisk(clock)
    store = filled(disk, clock, 12)
    age(clock, 72)
    store.clean()
    for again in (opened(disk.crash_process(), clock), opened(disk.crash_process(), clock, boot="another")):
        queue = again.components.queues.get("orders", 0)
        assert queue is not None
        assert (queue.min_offset, queue.max_offset) == (10, 12)
        assert put(again, draft(b"next"))[0].queue_offset == 12


def test_a_slice_outlives_the_file_it_is_of(tmp_path: Path) -> None:
    clock = FakeClock(int(time.time() * 1000))
    store = MessageStore.open(small(tmp_path / "store"), clock, HOST, disk=RealDisk())
    put(store, *[draft(b"%d" % number * 5000) for number in range(3)])
    store.make_durable()
    held = store.reader.read("orders", 0, 0, 1).slices[0]
    before = bytes(held)
    age(clock, 73)
    assert store.clean(manual=True).files == 2
    assert not (tmp_path / "store" / "commitlog" / f"{0:020d}").exists()
    store.close()
    assert bytes(held) == before


# --- undelivered messages ---------------------------------------------------------------------------------------------


def holding(offset: int | None) -> RetentionHold:
    def oldest_undelivered() -> IoSteps[int | None]:
        yield None
        return offset

    return oldest_undelivered


@pytest.mark.parametrize(("used", "held_file", "files"), [(0.88, 2, 2), (0.88, 0, 0), (0.88, None, 4), (0.92, 0, 4)])
def test_a_nearly_full_disk_keeps_undelivered_messages_but_a_full_one_does_not(
    used: float, held_file: int | None, files: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = at_hour(12)
    disk = FullerDisk(clock)
    disk.freed_by_a_file = 0.0
    store = filled(disk, clock, 5)
    held = None if held_file is None else list(store.components.commit_log.segments)[held_file].base + 10
    store.add_retention_hold(holding(None))
    store.add_retention_hold(holding(held))
    disk.used = used
    assert store.clean().files == files
    texts = ("holds pending delayed messages", "with undelivered messages deleted")
    logged = [record.levelname for record in caplog.records if any(text in record.getMessage() for text in texts)]
    assert bool(logged) is (held is not None)
    assert ("ERROR" in logged) is (used > 0.9)


def test_a_file_that_is_kept_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = at_hour(12)
    disk = FullerDisk(clock)
    store = filled(disk, clock, 3)
    store.add_retention_hold(holding(0))
    disk.used = 0.88
    for _ in range(3):
        assert store.clean().files == 0
    assert len([record for record in caplog.records if "holds pending delayed messages" in record.getMessage()]) == 1


def test_a_file_that_is_old_enough_is_deleted_with_undelivered_messages() -> None:
    clock = at_hour(4)
    store = filled(FullerDisk(clock), clock, 3)
    store.add_retention_hold(holding(0))
    age(clock, 72)
    assert store.clean().files == 2
