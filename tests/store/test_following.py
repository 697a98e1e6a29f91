"""The log of a slave: any cut of the master's bytes gives the same log, queues and index, also after a crash."""

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import StoreFull, StoreMismatch, StoreReadOnly
from ariane.store.following import FollowingLog
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from ariane.wire.record.read import RecordView
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import BOOT, bodies, draft, entries, opened, put, records

FILE_BYTES = 8192


def master(messages: int = 60, size: int = 300) -> MessageStore:
    """Several files, queues and tags; delayed and prepared messages, which are dispatched differently."""
    store = opened(SimulatedDisk(FakeClock()))
    for number in range(messages):
        put(store, draft(bytes([number % 256]) * size, queue_id=number % 3, key=f"k{number}", tag=f"T{number % 2}"))
        if number % 10 == 0:
            put(store, draft(b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC", key="h", sys_flag=4))
    return store


def log_of(store: MessageStore) -> bytes:
    log = store.components.commit_log
    return b"".join(bytes(segment.file.view()) for segment in log.segments)[: log.max_offset - log.min_offset]


def pieces_of(data: bytes, sizes: list[int], begin: int = 0) -> list[tuple[int, bytes]]:
    """Offset and bytes of each frame; none crosses the end of a file."""
    pieces, at, number = [], 0, 0
    while at < len(data):
        offset = begin + at
        size = min(sizes[number % len(sizes)], FILE_BYTES - offset % FILE_BYTES, len(data) - at)
        pieces.append((offset, data[at : at + size]))
        at, number = at + size, number + 1
    return pieces


def state(store: MessageStore) -> dict[str, object]:
    """What consumers and operators can see."""
    store.derived.write()
    queues = {(queue.topic, queue.queue_id): entries(queue) for queue in store.components.queues}
    found = {f"k{number}": store.lookup.by_key("orders", f"k{number}", 10, 0, 2**62) for number in (0, 7, 59)}
    return {
        "log": log_of(store),
        "queues": {key: rows for key, rows in queues.items() if rows},
        "keys": {key: [bytes(record) for record in hits] for key, hits in found.items()},
    }


def followed(disk: SimulatedDisk) -> tuple[MessageStore, FollowingLog]:
    store = opened(disk)
    return store, FollowingLog(store)


@given(
    sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=10),
    dispatches=st.lists(st.booleans(), min_size=1, max_size=10),
)
def test_any_cut_of_the_masters_bytes_gives_the_same_store(sizes: list[int], dispatches: list[bool]) -> None:
    source = master()
    store, following = followed(SimulatedDisk(FakeClock()))
    for number, (offset, data) in enumerate(pieces_of(log_of(source), sizes)):
        following.append(offset, data)
        if dispatches[number % len(dispatches)]:
            following.dispatch()
    following.run_dry()
    assert state(store) == state(source)
    assert following.dispatched_to == source.components.commit_log.max_offset
    assert store.components.commit_log.max_offset == following.end


@given(
    sizes=st.lists(st.integers(1, 3_000), min_size=1, max_size=5),
    crash_after=st.integers(0, 60),
    end_of_run=st.sampled_from(["stop", "kill", "power cut"]),
    seed=st.integers(0, 1_000),
)
def test_after_a_crash_a_slave_goes_on_where_its_whole_records_end(
    sizes: list[int], crash_after: int, end_of_run: str, seed: int
) -> None:
    source, disk = master(), SimulatedDisk(FakeClock())
    data = log_of(source)
    store, following = followed(disk)
    for number, (offset, piece) in enumerate(pieces_of(data, sizes)):
        if number >= crash_after:
            break
        following.append(offset, piece)
        if number % 3 == 0:
            following.dispatch()
        if number % 5 == 0:
            store.make_durable()
    end = following.end
    if end_of_run == "stop":
        following.run_dry()
        store.close()
    else:
        disk = disk.crash_process() if end_of_run == "kill" else disk.cut_power(random.Random(seed))
    store = opened(disk, boot=BOOT if end_of_run == "kill" else "boot-2")
    following = FollowingLog(store)
    assert following.end <= end
    assert following.end in {0, *(view.physical_offset + view.size for view in records(source))}
    for offset, piece in pieces_of(data[following.end :], sizes, following.end):
        following.append(offset, piece)
    following.run_dry()
    assert state(store) == state(source)


def test_an_empty_slave_may_begin_with_any_file() -> None:
    source = master()
    log = source.components.commit_log
    begin = log.max_offset - log.max_offset % FILE_BYTES
    assert begin > FILE_BYTES
    disk = SimulatedDisk(FakeClock())
    store, following = followed(disk)
    assert following.is_empty
    with pytest.raises(StoreMismatch):
        following.append(begin + 1, b"x")
    following.append(begin, log_of(source)[begin:])
    following.run_dry()
    assert (following.begin, following.end) == (begin, log.max_offset)
    read = bodies(store, "orders", 0)
    assert read
    assert read == bodies(source, "orders", 0)[-len(read) :]
    store.close()
    assert opened(disk).components.commit_log.min_offset == begin


def test_an_empty_slave_whose_first_write_failed_begins_there_all_the_same() -> None:
    """As on a file system that has no space for the copy of a block it writes to."""
    source = master()
    log = source.components.commit_log
    begin = log.max_offset - log.max_offset % FILE_BYTES
    disk = SimulatedDisk(FakeClock())
    store, following = followed(disk)
    disk.fail_writes(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(StoreFull):
        following.append(begin, log_of(source)[begin:])
    disk.fail_writes(None)
    following.run_dry()
    assert (following.begin, following.end, following.dispatched_to) == (begin, begin, begin)
    following.append(begin, log_of(source)[begin:])
    assert following.undispatched_records() > 0
    following.run_dry()
    assert following.dispatched_to == log.max_offset
    read = bodies(store, "orders", 0)
    assert read
    assert read == bodies(source, "orders", 0)[-len(read) :]


def test_bytes_that_do_not_follow_the_end_are_refused() -> None:
    _, following = followed(SimulatedDisk(FakeClock()))
    following.append(0, b"abc")
    for offset in (0, 2, 4, FILE_BYTES):
        with pytest.raises(StoreMismatch, match="do not follow its end at 3"):
            following.append(offset, b"x")


def test_bytes_across_the_end_of_a_file_are_refused_as_those_of_a_master_with_other_files() -> None:
    _, following = followed(SimulatedDisk(FakeClock()))
    with pytest.raises(StoreMismatch, match="mappedFileSizeCommitLog"):
        following.append(0, bytes(FILE_BYTES + 1))
    assert following.is_empty


def test_a_file_of_the_master_that_ends_earlier_is_noticed() -> None:
    source = master()  # files of 8192 bytes
    store = opened(SimulatedDisk(FakeClock()), segment_bytes=2 * FILE_BYTES)
    following = FollowingLog(store)
    following.append(0, log_of(source)[: 2 * FILE_BYTES])
    with pytest.raises(StoreMismatch, match="the end of a file at 8192"):
        following.run_dry()


def test_a_slave_takes_no_messages_of_its_own() -> None:
    store, _ = followed(SimulatedDisk(FakeClock()))
    with pytest.raises(StoreReadOnly, match="slave"):
        store.append([draft(b"x")])


def test_damage_in_the_masters_log_is_passed_and_kept_aside() -> None:
    source = master()
    data = bytearray(log_of(source))
    damaged = [view for view in records(source) if view.topic == "orders"][5]
    data[damaged.body_position + damaged.physical_offset - damaged.position] ^= 1
    store, following = followed(SimulatedDisk(FakeClock()))
    for offset, piece in pieces_of(bytes(data), [700]):
        following.append(offset, piece)
        following.dispatch()
    following.run_dry()
    assert following.dispatched_to == source.components.commit_log.max_offset
    assert store.components.disk.names(store.components.layout.quarantine)
    assert len([view for view in records(source) if isinstance(view, RecordView)]) > 60


def test_zeros_in_the_masters_log_stop_the_dispatch_until_records_follow_never_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, following = followed(SimulatedDisk(FakeClock()))
    following.append(0, bytes(1000))
    following.run_dry()
    following.append(1000, bytes(10))
    following.run_dry()
    assert (following.end, following.dispatched_to) == (1010, 0)
    assert [record.message for record in caplog.records].count(
        "the log of the master has no record here: nothing behind it is served"
    ) == 1
    store.close()


def test_records_that_arrived_are_counted_by_their_sizes() -> None:
    source = master()
    _, following = followed(SimulatedDisk(FakeClock()))
    data = log_of(source)
    first = next(iter(records(source)))
    following.append(0, data[: first.size - 1])
    assert following.undispatched_records() == 0
    following.append(first.size - 1, data[first.size - 1 : first.size + 4])
    assert following.undispatched_records() == 1
    following.run_dry()
    assert following.undispatched_records() == 0
