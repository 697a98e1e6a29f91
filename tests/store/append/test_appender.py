"""Drafts into the log: offsets without holes, sizes, transactions, and disks that refuse."""

import errno
from pathlib import Path

import pytest

from ariane.errors import MessageRefused, StoreFull
from ariane.store.append.appender import AppendResult
from ariane.store.append.draft import Appended, Draft
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import BOOT, bodies, draft, entries, opened, put, records

PREPARED, COMMITTED, ROLLBACK = 0x4, 0x8, 0xC
FULL = OSError(errno.ENOSPC, "No space left on device")
FILE_BYTES = 8192


def kinds(outcomes: list[AppendResult]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


def queue_offsets(store: MessageStore, queue_id: int = 0) -> list[int]:
    return [view.queue_offset for view in records(store) if view.queue_id == queue_id]


def assert_whole(store: MessageStore, expected: list[bytes], queue_id: int = 0) -> None:
    """The queue has these messages, densely, and each entry points to the record that says the same."""
    assert bodies(store, "orders", queue_id) == expected
    assert queue_offsets(store, queue_id) == list(range(len(expected)))
    queue = store.components.queues.get("orders", queue_id)
    assert queue is not None
    places = [view.physical_offset for view in records(store) if view.queue_id == queue_id]
    assert [entry[0] for entry in entries(queue)] == places


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_each_queue_counts_for_itself_and_without_holes() -> None:
    store = opened(SimulatedDisk())
    appended = put(store, *[draft(b"%d" % n, queue_id=n % 3) for n in range(30)])
    assert [item.queue_offset for item in appended] == [n // 3 for n in range(30)]
    for queue_id in range(3):
        assert_whole(store, [b"%d" % n for n in range(queue_id, 30, 3)], queue_id)


def test_records_stand_back_to_back_in_the_order_of_the_drafts() -> None:
    store = opened(SimulatedDisk())
    appended = put(store, *[draft(bytes(n * 10)) for n in range(10)])
    assert [item.physical_offset for item in appended[1:]] == [item.end for item in appended[:-1]]


def test_a_chunk_longer_than_a_file_goes_on_in_the_next() -> None:
    store = opened(SimulatedDisk())
    sent = [b"%02d" % n + bytes(1000) for n in range(20)]
    put(store, *[draft(body) for body in sent])
    assert len(store.components.commit_log.segments) > 2
    assert_whole(store, sent)


def test_messages_of_a_transaction_that_is_not_committed_take_no_offset() -> None:
    store = opened(SimulatedDisk())
    flags = (0, PREPARED, COMMITTED, ROLLBACK, 0)
    appended = put(store, *[draft(b"%d" % flag, sys_flag=flag) for flag in flags])
    assert [item.queue_offset for item in appended] == [0, 0, 1, 0, 2]
    assert bodies(store, "orders", 0) == [b"0", b"8", b"0"]
    assert [view.sys_flag for view in records(store)] == list(flags)


def test_a_restart_counts_transactions_the_same_way() -> None:
    disk = SimulatedDisk()
    put(opened(disk), *[draft(b"%d" % flag, sys_flag=flag) for flag in (PREPARED, 0, ROLLBACK, COMMITTED)])
    again = opened(disk.crash_process())
    assert bodies(again, "orders", 0) == [b"0", b"8"]
    assert put(again, draft(b"next"))[0].queue_offset == 2


def test_keys_are_the_same_after_a_restart_whatever_the_transaction() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    flags = {"prepared": PREPARED, "committed": COMMITTED, "rolled-back": ROLLBACK, "plain": 0}
    put(store, *[draft(b"", key=key, sys_flag=flag) for key, flag in flags.items()])
    again = opened(disk.crash_process())  # the keys were in memory only: they come from the log
    store.components.dispatcher.write_index()
    for now in (store, again):
        found = {key for key in flags if now.lookup.by_key("orders", key, 10, 0, 2**62)}
        assert found == {"prepared", "committed", "plain"}


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_begins_a_new_file_rather_than_span_two() -> None:
    store = opened(SimulatedDisk())
    put(store, draft(bytes(6000)))
    outcomes = store.append_together([draft(b"%d" % n + bytes(900)) for n in range(4)])
    assert kinds(outcomes) == [Appended] * 4
    files = {item.physical_offset // FILE_BYTES for item in outcomes if isinstance(item, Appended)}
    assert files == {1}
    assert queue_offsets(store) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "bad",
    [
        draft(bytes(9000)),
        draft(b"", topic="a/b"),
        draft(b"", queue_id=-1),
        draft(b"", queue_id=2**31),
        draft(b"", flag=2**31),
    ],
    ids=["too large", "illegal topic", "negative queue", "queue beyond 31 bits", "flag beyond 31 bits"],
)
def test_one_bad_message_refuses_its_whole_batch(bad: Draft) -> None:
    store = opened(SimulatedDisk())
    put(store, draft(b"before"))
    end = store.components.commit_log.max_offset
    outcomes = store.append_together([draft(b"good"), bad, draft(b"good")])
    assert kinds(outcomes) == [MessageRefused] * 3
    put(store, draft(b"after"))
    assert_whole(store, [b"before", b"after"])
    assert store.components.commit_log.max_offset > end


def test_a_batch_whose_write_fails_is_not_there_at_all() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, draft(b"before"))
    disk.fail_writes(FULL)
    assert kinds(store.append_together([draft(bytes(1500)) for _ in range(4)])) == [StoreFull] * 4
    disk.fail_writes(None)
    put(store, draft(b"after"))
    assert_whole(store, [b"before", b"after"])


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_a_message_above_the_limit_is_refused_and_its_neighbours_are_not() -> None:
    store = opened(SimulatedDisk(), max_message_bytes=1024)
    most = 1024  # of the body alone, as at Apache's broker
    outcomes = store.append([draft(b"a"), draft(bytes(most)), draft(bytes(most + 1)), draft(b"z")])
    assert kinds(outcomes) == [Appended, Appended, MessageRefused, Appended]
    assert "maxMessageSize" in str(outcomes[2])
    assert_whole(store, [b"a", bytes(most), b"z"])


def test_a_record_larger_than_a_file_is_refused_and_its_neighbours_are_not() -> None:
    store = opened(SimulatedDisk())
    most = FILE_BYTES - 8 - 91 - len("orders")
    outcomes = store.append([draft(b"a"), draft(bytes(most + 1)), draft(bytes(most)), draft(b"z")])
    assert kinds(outcomes) == [Appended, MessageRefused, Appended, Appended]
    assert_whole(store, [b"a", bytes(most), b"z"])


def test_properties_that_are_too_long_are_refused_and_the_neighbours_are_not() -> None:
    store = opened(SimulatedDisk(), segment_bytes=128 * 1024)
    long = draft(b"long")
    long.properties = bytes(32768)
    outcomes = store.append([draft(b"a"), long, draft(b"z")])
    assert kinds(outcomes) == [Appended, MessageRefused, Appended]
    assert "properties" in str(outcomes[1])
    assert_whole(store, [b"a", b"z"])


def test_nothing_to_append_is_fine() -> None:
    store = opened(SimulatedDisk())
    assert store.append([]) == []
    assert store.append_together([]) == []


# --- time -------------------------------------------------------------------------------------------------------------


def test_store_times_never_go_back_when_the_clock_does() -> None:
    disk = SimulatedDisk()
    first = put(opened(disk, FakeClock(2_000_000)), draft(b"late"))[0]
    again = opened(disk.crash_process(), FakeClock(1_000_000))
    second = put(again, draft(b"the clock was set back"))[0]
    assert (first.store_timestamp_ms, second.store_timestamp_ms) == (2_000_000, 2_000_000)
    again.close()
    third = put(opened(again.components.disk, FakeClock(1_500_000)), draft(b"still"))[0]
    assert third.store_timestamp_ms == 2_000_000


# --- full disks -------------------------------------------------------------------------------------------------------


def test_a_full_disk_at_the_end_of_a_file_takes_nothing_and_reads_go_on() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, draft(bytes(7000)))
    disk.space_left = 4096
    outcomes = store.append([draft(bytes(2000)), draft(b"small: still fits"), draft(bytes(2000))])
    assert kinds(outcomes) == [StoreFull, Appended, StoreFull]
    assert bodies(store, "orders", 0) == [bytes(7000), b"small: still fits"]
    disk.space_left = None
    put(store, draft(b"room again" + bytes(2000)))
    assert_whole(store, [bytes(7000), b"small: still fits", b"room again" + bytes(2000)])


def test_a_write_that_fails_takes_nothing_and_reads_go_on() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, draft(b"before"))
    disk.fail_writes(FULL)
    assert kinds(store.append([draft(bytes(1500)) for _ in range(4)])) == [StoreFull] * 4
    assert bodies(store, "orders", 0) == [b"before"]
    disk.fail_writes(None)
    put(store, draft(b"after"))
    assert_whole(store, [b"before", b"after"])


def test_an_error_of_ours_in_the_middle_of_a_chunk_leaves_no_hole() -> None:
    store = opened(SimulatedDisk())
    put(store, draft(b"before"))
    broken = draft(b"")
    broken.body = None  # type: ignore[assignment]
    with pytest.raises(TypeError):
        store.append([draft(b"lost"), draft(b"half", sys_flag=PREPARED), draft(b"lost", queue_id=1), broken])
    put(store, draft(b"after"), draft(b"other", queue_id=1))
    assert_whole(store, [b"before", b"after"])
    assert_whole(store, [b"other"], queue_id=1)


def test_records_of_a_write_that_failed_do_not_come_back_behind_later_ones() -> None:
    """Half of the failed write stands in the file. The next record has the length of its first: the second fits."""
    disk = SimulatedDisk()
    store = opened(disk)
    disk.fail_writes(FULL)
    assert kinds(store.append([draft(b"refused" + bytes(493)) for _ in range(12)])) == [StoreFull] * 12
    disk.fail_writes(None)
    put(store, draft(b"written" + bytes(493)))
    again = opened(disk.crash_process(), boot=BOOT)
    assert_whole(again, [b"written" + bytes(493)])


class FlakyDisk(SimulatedDisk):
    """Fails the operations of one kind for which a test asks, by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, set[int]] = {}
        self.counted: dict[str, int] = {}

    def fail(self, kind: str, *numbers: int) -> None:
        self.counted[kind] = 0
        self.failing[kind] = set(numbers)

    def _step(self, operation: object, error: OSError | None = None) -> None:
        kind = operation.kind  # type: ignore[attr-defined]
        self.counted[kind] = number = self.counted.get(kind, 0) + 1
        super()._step(operation, FULL if number in self.failing.get(kind, ()) else error)  # type: ignore[arg-type]


def test_a_write_and_a_roll_that_fail_in_one_chunk_leave_no_hole() -> None:
    disk = FlakyDisk()
    store = opened(disk)
    put(store, draft(b"before"))
    disk.fail("write", 1)
    disk.fail("create", 1)
    outcomes = store.append([draft(bytes(5000)), draft(bytes(5000)), draft(b"small")])
    assert kinds(outcomes) == [StoreFull, StoreFull, Appended]
    put(store, draft(b"after"))
    assert_whole(store, [b"before", b"small", b"after"])


@pytest.mark.parametrize("kind", ["create", "sync", "sync_directory"])
def test_a_file_that_could_not_be_made_is_made_at_the_next_attempt(kind: str) -> None:
    disk = FlakyDisk()
    store = opened(disk)
    put(store, draft(bytes(7000)))
    disk.fail(kind, 1)
    assert kinds(store.append([draft(bytes(7000))])) == [StoreFull]
    put(store, draft(bytes(7001)))
    assert_whole(store, [bytes(7000), bytes(7001)])


def test_a_blank_that_cannot_be_written_leaves_the_old_file_active() -> None:
    disk = FlakyDisk()
    store = opened(disk)
    put(store, draft(bytes(7000)))
    disk.fail("write", 1)
    assert kinds(store.append([draft(bytes(7000)), draft(b"fits")])) == [StoreFull, Appended]
    put(store, draft(bytes(7001)))
    assert_whole(store, [bytes(7000), b"fits", bytes(7001)])
    assert_whole(opened(disk.crash_process()), [bytes(7000), b"fits", bytes(7001)])


def test_a_store_that_never_had_space_says_so() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    disk.space_left = 0
    (outcome,) = store.append([draft(b"x")])
    assert isinstance(outcome, StoreFull)
    assert "8192 bytes" in str(outcome)
    assert store.reader.read("orders", 0, 0, 1).slices == []
    assert disk.names(Path("/store/commitlog")) == []


def test_the_entry_of_a_delayed_message_counts_from_its_store_time() -> None:
    """As recovery and `store verify` do it, also when the clock stands behind the last store time."""
    clock = FakeClock()
    store = opened(SimulatedDisk(clock), clock)
    put(store, draft(b"now"))
    message = draft(b"later")
    message.delay_ms = 5000
    (appended,) = put(store, message)
    queue = store.components.queues.get("orders", 0)
    assert queue is not None
    assert ENTRY.unpack(queue.entries(1, 1))[2] == appended.store_timestamp_ms + 5000
