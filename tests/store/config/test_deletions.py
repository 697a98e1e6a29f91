"""Deleted topics stay deleted: after a crash, a power cut, and when their queues are removed only half."""

import random
from pathlib import Path

import pytest

from ariane.errors import StoreCorrupt, StoreError
from ariane.store.config.deletions import FILE_NAME, Deletions
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from tests.simulation.simulated_disk import SimulatedDisk, os_error
from tests.store.stores import ROOT, bodies, draft, opened, put

CONFIG = ROOT / "config"


def filled(disk: SimulatedDisk, messages: int = 5) -> MessageStore:
    store = opened(disk)
    for number in range(messages):
        put(store, draft(b"old %d" % number, queue_id=number % 2, key=f"k{number}"), draft(b"other", topic="other"))
    return store


def test_a_deletion_is_durable_and_names_topic_and_offset() -> None:
    disk = SimulatedDisk()
    Deletions.load(disk, CONFIG).add(["orders", "bills"], 500)
    after = Deletions.load(disk.cut_power(random.Random(1)), CONFIG)
    assert after.ends == {"orders": 500, "bills": 500}
    assert [after.covers("orders", at) for at in (0, 499, 500)] == [True, True, False]
    assert not after.covers("others", 0)
    assert after.end_of("others") == 0


def test_a_later_deletion_counts_and_an_earlier_one_changes_nothing() -> None:
    deletions = Deletions()
    deletions.add(["orders"], 500)
    deletions.add(["orders"], 900)
    deletions.add(["orders"], 700)
    assert deletions.ends == {"orders": 900}


def test_an_entry_is_forgotten_with_its_messages_and_lowered_to_the_end_of_the_log() -> None:
    disk = SimulatedDisk()
    deletions = Deletions.load(disk, CONFIG)
    for topic, end in (("gone", 100), ("partly", 150), ("cut", 900)):
        deletions.add([topic], end)
    deletions.fit(100, 600)
    assert deletions.ends == {"partly": 150, "cut": 600}
    assert Deletions.load(disk, CONFIG).ends == deletions.ends


def test_a_deletion_that_cannot_be_saved_is_refused() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    disk.fail_writes(os_error(28))
    with pytest.raises(StoreError, match=r"deletedTopics\.json cannot be saved"):
        store.delete_topics("orders")
    disk.fail_writes(None)
    assert bodies(store, "orders", 0) == [b"old 0", b"old 2", b"old 4"]
    store.close()


def test_the_file_survives_damage_and_a_table_of_something_else_is_refused() -> None:
    disk = SimulatedDisk()
    Deletions.load(disk, CONFIG).add(["orders"], 500)
    disk.flip_bit(CONFIG / FILE_NAME, 45, 1)
    assert Deletions.read(disk, CONFIG).ends == {"orders": 500}
    assert Deletions.load(disk, CONFIG).ends == {"orders": 500}
    other = SimulatedDisk()
    other.make_directory(CONFIG)
    file = other.create(CONFIG / FILE_NAME, 2, allocated=0)
    file.write(b"{}", 0)
    with pytest.raises(StoreCorrupt, match="not a table of deleted topics"):
        Deletions.load(other, CONFIG)


@pytest.mark.parametrize("recreated", [False, True])
@pytest.mark.parametrize("crash", ["none", "kill", "power cut"])
def test_recovery_does_not_bring_a_deleted_topic_back(crash: str, recreated: bool) -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    store.delete_topics("orders")
    new = [b"new"] if recreated else []
    if recreated:
        put(store, draft(b"new"))
    store.flusher.sync_now()
    if crash == "none":
        store.close()
    if crash == "kill":
        disk = disk.crash_process()
    if crash == "power cut":
        disk = disk.cut_power(random.Random(7))
    again = opened(disk, boot="boot-2" if crash == "power cut" else "boot-1")
    assert bodies(again, "orders", 0) == new
    assert bodies(again, "orders", 1) == []
    assert len(bodies(again, "other", 0)) == 5
    put(again, draft(b"next"))
    assert bodies(again, "orders", 0) == [*new, b"next"]
    again.close()


def test_queues_that_a_crash_left_behind_are_removed_at_the_next_start() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    store.make_durable()
    store.components.deletions.add(["orders"], store.components.commit_log.max_offset)
    after = disk.crash_process()  # before its queues were removed
    assert "orders" in after.names(Layout.under(ROOT).consume_queues)
    again = opened(after)
    assert bodies(again, "orders", 0) == []
    assert len(bodies(again, "other", 0)) == 5
    again.close()


def test_records_written_where_a_power_cut_took_the_end_of_the_log_are_not_deleted() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 1)
    store.make_durable()
    put(store, *[draft(bytes(500)) for _ in range(6)])  # not synced
    store.delete_topics("orders")
    end_before = store.components.commit_log.max_offset
    for seed in range(50):
        after = disk.cut_power(random.Random(seed))
        again = opened(after, boot="boot-2")
        if again.components.commit_log.max_offset < end_before:
            break
    else:
        pytest.fail("no seed lost the end of the log")
    put(again, draft(b"new"))
    again.make_durable()
    last = opened(after.crash_process(), boot="boot-2")
    assert bodies(last, "orders", 0) == [b"new"]


def test_a_missing_directory_has_no_deletions(tmp_path: Path) -> None:
    assert Deletions.read(SimulatedDisk(), tmp_path).ends == {}
