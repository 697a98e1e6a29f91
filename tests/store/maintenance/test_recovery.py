"""A start builds queues again from the log, whatever their files say, and relies only on what a sync covered."""

import errno
import logging
import random

import pytest

from ariane.store.checkpoint import LastExit, last_exit
from ariane.store.config.table_file import save_config
from ariane.store.consume_queue.entry import ENTRY_BYTES
from ariane.store.consume_queue.saved_state import remove_saved_states
from ariane.store.disk import read_all, replace_all
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import BOOT, ROOT, bodies, draft, opened, put

LAYOUT = Layout.under(ROOT)


def filled(disk: SimulatedDisk, messages: int = 60) -> MessageStore:
    store = opened(disk, FakeClock())
    put(store, *[draft(f"{number}".encode(), queue_id=number % 2, key=f"k{number}") for number in range(messages)])
    return store


def stopped(messages: int = 60) -> SimulatedDisk:
    disk = SimulatedDisk()
    filled(disk, messages).close()
    return disk


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def expected(queue_id: int, messages: int = 60) -> list[bytes]:
    return [f"{number}".encode() for number in range(queue_id, messages, 2)]


def test_a_clean_start_reads_nothing_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    disk = stopped()
    caplog.set_level(logging.INFO)
    store = opened(disk)
    (record,) = [record for record in caplog.records if record.getMessage() == "store opened"]
    assert record.__dict__["dispatched"] == 0
    assert bodies(store, "orders", 0) == expected(0)


@pytest.mark.parametrize("bit", range(0, ENTRY_BYTES * 8, 7))
def test_a_flipped_bit_anywhere_in_an_entry_changes_nothing_and_is_reported(
    caplog: pytest.LogCaptureFixture, bit: int
) -> None:
    disk = stopped()
    path = LAYOUT.queue("orders", 0) / f"{200:020d}"  # not the last file: it is checked when it is first read
    disk.flip_bit(path, 60 + bit // 8, bit % 8)
    store = opened(disk)
    assert bodies(store, "orders", 0) == expected(0)
    assert errors(caplog) == ["a consume queue was damaged: its entries are repaired from the log"]
    caplog.clear()
    store.close()
    again = opened(disk)
    assert bodies(again, "orders", 0) == expected(0)
    assert errors(caplog) == [], "it was repaired on the disk, too"


@pytest.mark.parametrize("what", ["file", "queue", "all"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_removed_queue_files_are_built_again_with_a_line_for_each(
    caplog: pytest.LogCaptureFixture, what: str, is_clean: bool
) -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    store.make_durable()
    if is_clean:
        store.close()
    disk = disk.crash_process()
    for queue_id in (0, 1) if what == "all" else (0,):
        directory = LAYOUT.queue("orders", queue_id)
        for name in disk.names(directory)[1:2] if what == "file" else disk.names(directory):
            disk.remove(directory / name)
    again = opened(disk)
    assert errors(caplog) == ["a consume queue was damaged: it is built again from the log"] * (
        2 if what == "all" else 1
    )
    for queue_id in (0, 1):
        assert bodies(again, "orders", queue_id) == expected(queue_id)
        (appended,) = put(again, draft(b"new", queue_id=queue_id))
        assert appended.queue_offset == 30


def test_a_queue_without_a_record_in_the_log_keeps_its_end() -> None:
    clock = FakeClock()
    disk = SimulatedDisk(clock)
    store = opened(disk, clock)
    put(store, *[draft(bytes(700), topic="idle") for _ in range(25)])
    store.components.commit_log.roll()
    clock._elapsed_s += 73 * 3600
    put(store, *[draft(bytes(700)) for _ in range(30)])
    store.make_durable()
    while store.clean(manual=True).files:
        pass
    store.close()
    directory = LAYOUT.queue("idle", 0)
    for name in disk.names(directory):
        disk.remove(directory / name)
    again = opened(disk, clock)
    queue = again.components.queues.get("idle", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (25, 25)
    assert [appended.queue_offset for appended in put(again, draft(b"new", topic="idle"))] == [25]
    again.close()
    assert bodies(opened(disk, clock), "idle", 0) == [b"new"]


@pytest.mark.parametrize("deleted", [25, 60])
def test_old_files_of_a_queue_whose_records_retention_deleted_are_given_up(
    caplog: pytest.LogCaptureFixture, deleted: int
) -> None:
    """Less than a file of the queue is missing between them and the log, or more."""
    clock = FakeClock()
    disk = SimulatedDisk(clock)
    store = opened(disk, clock, queue_segment_bytes=800)
    put(store, *[draft(bytes(700)) for _ in range(10)])
    store.close()
    directory = LAYOUT.queue("orders", 0)
    old = {name: read_all(disk, directory / name, 800) or b"" for name in disk.names(directory)}
    store = opened(disk, clock, queue_segment_bytes=800)
    put(store, *[draft(bytes(700)) for _ in range(deleted)])
    store.components.commit_log.roll()
    clock._elapsed_s += 73 * 3600
    put(store, *[draft(b"%d" % number) for number in range(20)])
    store.make_durable()
    while store.clean(manual=True).files:
        pass
    store.close()
    for name in disk.names(directory):
        disk.remove(directory / name)
    for name, content in old.items():
        replace_all(disk, directory / name, content)
    remove_saved_states(disk, LAYOUT.queue_checksums)
    again = opened(disk, clock, queue_segment_bytes=800)
    queue = again.components.queues.get("orders", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (10 + deleted, 30 + deleted)
    assert bodies(again, "orders", 0) == [b"%d" % number for number in range(20)]
    assert errors(caplog) == ["a consume queue differed from the log: it is built again"]


@pytest.mark.parametrize("is_flipped", [True, False])
def test_without_a_saved_state_the_whole_log_decides(caplog: pytest.LogCaptureFixture, is_flipped: bool) -> None:
    """As in a store of Apache's or of an earlier version."""
    disk = stopped()
    for name in disk.names(LAYOUT.queue_checksums):
        disk.remove(LAYOUT.queue_checksums / name)
    if is_flipped:
        disk.flip_bit(LAYOUT.queue("orders", 0) / f"{200:020d}", 66, 3)
        disk.remove(LAYOUT.queue("orders", 1) / f"{0:020d}")
    store = opened(disk)
    assert [bodies(store, "orders", queue_id) for queue_id in (0, 1)] == [expected(0), expected(1)]
    assert len(errors(caplog)) == (2 if is_flipped else 0)


def test_a_deleted_topic_stays_deleted_when_queues_are_built_again() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    store.make_durable()
    store.delete_topics("orders")
    put(store, draft(b"again"))
    disk = disk.crash_process()
    for name in disk.names(LAYOUT.queue_checksums)[:1]:
        disk.remove(LAYOUT.queue_checksums / name)
    again = opened(disk)
    assert bodies(again, "orders", 0) == [b"again"]
    assert again.components.queues.get("orders", 1) is None


@pytest.mark.parametrize("has_copy", [True, False])
def test_a_damaged_table_of_topics_does_not_delete_a_topic(has_copy: bool) -> None:
    disk = stopped()
    save_config(disk, LAYOUT.config / "topics.json", b'{"topicConfigTable":{"orders":{}}}')
    damaged = (read_all(disk, LAYOUT.config / "topics.json", 4096) or b"").replace(b'"orders"', b'"orderr"')
    replace_all(disk, LAYOUT.config / "topics.json", damaged)
    if not has_copy:
        replace_all(disk, LAYOUT.config / "topics.json.bak", damaged)
    for queue_id in (0, 1):
        for name in disk.names(LAYOUT.queue("orders", queue_id)):
            disk.remove(LAYOUT.queue("orders", queue_id) / name)
        disk.remove_directory(LAYOUT.queue("orders", queue_id))
    disk.remove_directory(LAYOUT.consume_queues / "orders")
    remove_saved_states(disk, LAYOUT.queue_checksums)
    store = opened(disk)
    assert [bodies(store, "orders", queue_id) for queue_id in (0, 1)] == [expected(0), expected(1)]
    assert store.components.deletions.ends == {}


def test_a_missing_checkpoint_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    disk = stopped()
    disk.remove(LAYOUT.checkpoint)
    store = opened(disk)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "the checkpoint is missing or damaged: written again"
    ]
    assert bodies(store, "orders", 0) == expected(0)


# --- after a failed sync ----------------------------------------------------------------------------------------------


def with_failed_sync(disk: SimulatedDisk) -> int:
    """Number of messages that were acknowledged: all that were appended before the sync that failed."""
    store = filled(disk)
    store.flusher.flushed(store.flusher.sync_now())
    store.derived.write()
    put(store, *[draft(b"lost?", queue_id=number % 2) for number in range(10)])
    store.derived.write()
    error = OSError(errno.EIO, "I/O error")
    disk.fail_syncs(error)
    with pytest.raises(OSError, match="I/O error"):
        store.flusher.sync_now()
    store.flusher.failed(error)
    store.close()
    disk.fail_syncs(None)
    return 60


@pytest.mark.parametrize("seed", range(10))
def test_after_a_failed_sync_and_a_remount_everything_acknowledged_is_served(seed: int) -> None:
    """The machine did not start again: its boot id says that the page cache is there."""
    disk = SimulatedDisk()
    messages = with_failed_sync(disk)
    again = opened(disk.cut_power(random.Random(seed)), boot=BOOT)
    for queue_id in (0, 1):
        assert bodies(again, "orders", queue_id)[: messages // 2] == expected(queue_id, messages)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_served_after_a_failed_sync_is_on_the_disk(seed: int) -> None:
    """The page cache shows bytes that the disk does not have, and the next sync would not write them."""
    disk = SimulatedDisk()
    with_failed_sync(disk)
    assert last_exit(disk, LAYOUT.abort, BOOT) is LastExit.SYNC_FAILED
    killed = disk.crash_process()
    again = opened(killed, boot=BOOT)
    served = [bodies(again, "orders", queue_id) for queue_id in (0, 1)]
    assert sum(map(len, served)) == 70
    after = opened(killed.cut_power(random.Random(seed)), boot="another boot")
    assert [bodies(after, "orders", queue_id) for queue_id in (0, 1)] == served
