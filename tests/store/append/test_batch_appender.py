"""Batches into the log: the bytes of messages that come together one by one, and all of them or none."""

import errno
from ipaddress import IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import MessageRefused, StoreFull
from ariane.model.message import HostPort
from ariane.store.append.batch import AppendedBatch, BatchKeys, DraftBatch
from ariane.store.append.draft import Appended
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from ariane.wire.host import encode_host
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import BOOT, HOST, batch_of, bodies, draft, entries, opened, put, records

V6 = encode_host(HostPort(IPv6Address("::1"), 10911))
FILE_BYTES = 8192


def log_bytes(store: MessageStore) -> list[bytes]:
    return [bytes(segment.file.view()) for segment in store.components.commit_log.segments]


def found(store: MessageStore, key: str) -> list[int]:
    store.components.dispatcher.write_index()
    assert store.components.index is not None
    return store.components.index.query("orders", key, 10, 0, 2**62).offsets


def queue_entries(store: MessageStore) -> list[tuple[int, int, int]]:
    queue = store.components.queues.get("orders", 0)
    return [] if queue is None else entries(queue)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=600), min_size=1, max_size=6), min_size=1, max_size=6),
    st.sampled_from([HOST, V6]),
    st.booleans(),
    st.sampled_from([b"", b"\x02"]),
)
def test_a_batch_leaves_what_its_messages_would_leave(
    batches: list[list[bytes]], born_host: bytes, with_checksum: bool, end: bytes
) -> None:
    one, other = (opened(SimulatedDisk(), FakeClock(), seal_records=with_checksum) for _ in range(2))
    for contents in batches:
        batch = batch_of(*contents, born_host=born_host, properties_end=end)
        appended = one.append_batch(batch)
        assert isinstance(appended, AppendedBatch)
        assert list(appended) == other.append_together(batch.drafts())
    assert log_bytes(one) == log_bytes(other)
    assert queue_entries(one) == queue_entries(other)
    assert [found(one, f"k{n}") for n in range(6)] == [found(other, f"k{n}") for n in range(6)]


def test_messages_of_a_batch_may_have_different_numbers_of_keys() -> None:
    store = opened(SimulatedDisk())
    appended = store.append_batch(batch_of(b"a", b"b", b"c", keys=BatchKeys(["x", "y", "z"], [2, 0, 1])))
    assert isinstance(appended, AppendedBatch)
    first, _, last = appended.physical_offsets
    assert [found(store, key) for key in "xyz"] == [[first], [first], [last]]


def test_a_batch_without_keys_is_not_indexed() -> None:
    store = opened(SimulatedDisk())
    assert isinstance(store.append_batch(batch_of(b"a", b"b", keys=BatchKeys([], 0))), AppendedBatch)
    assert store.components.dispatcher.pending_key_count == 0


def test_a_batch_begins_a_new_file_rather_than_span_two() -> None:
    store = opened(SimulatedDisk())
    put(store, draft(bytes(6000)))
    appended = store.append_batch(batch_of(*[bytes(900)] * 4))
    assert isinstance(appended, AppendedBatch)
    assert {offset // FILE_BYTES for offset in appended.physical_offsets} == {1}
    assert [view.queue_offset for view in records(store)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "bad",
    [
        batch_of(b"a", bytes(9000)),
        batch_of(b"a", b"b", topic="a/b"),
        batch_of(b"a", b"b", queue_id=-1),
        batch_of(b"a", b"b", flags=[0, 2**31]),
        batch_of(b"a", b"b", born_host=b"nowhere"),
    ],
    ids=["too large", "illegal topic", "negative queue", "flag beyond 31 bits", "no host"],
)
def test_a_batch_that_cannot_be_stored_is_refused_whole(bad: DraftBatch) -> None:
    store = opened(SimulatedDisk())
    put(store, draft(b"before"))
    end = store.components.commit_log.max_offset
    assert isinstance(store.append_batch(bad), MessageRefused)
    assert store.components.commit_log.max_offset == end
    put(store, draft(b"after"))
    assert bodies(store, "orders", 0) == [b"before", b"after"]


@pytest.mark.parametrize("with_checksum", [False, True])
def test_a_batch_whose_write_fails_is_not_there_at_all(with_checksum: bool) -> None:
    disk = SimulatedDisk()
    store = opened(disk, seal_records=with_checksum)
    put(store, draft(b"before"))
    disk.fail_writes(OSError(errno.ENOSPC, "No space left on device"))
    assert isinstance(store.append_batch(batch_of(bytes(1500), bytes(1500))), StoreFull)
    disk.fail_writes(None)
    assert store.components.dispatcher.pending_key_count == 0
    put(store, draft(b"after"))
    assert bodies(store, "orders", 0) == [b"before", b"after"]


def test_a_batch_is_there_after_a_crash_of_the_process() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    appended = store.append_batch(batch_of(b"a", b"b"))
    assert isinstance(appended, AppendedBatch)
    again = opened(disk.crash_process(), boot=BOOT)
    assert bodies(again, "orders", 0) == [b"a", b"b"]
    assert found(again, "k1") == [appended.physical_offsets[1]]


def test_listeners_learn_of_a_batch_once_for_each_tags_code() -> None:
    store = opened(SimulatedDisk())
    all_topics: list[tuple[str, int, int, int]] = []
    invoices: list[tuple[str, int, int, int]] = []
    store.components.dispatcher.on_arrival(lambda *arrival: all_topics.append(arrival))
    store.components.dispatcher.on_arrival(lambda *arrival: invoices.append(arrival), topic="invoices")
    store.append_batch(batch_of(b"a", b"b", b"c", tags_codes=[7, 8, 7]))
    put(store, draft(b"d", topic="invoices"), draft(b"e", topic="invoices"))
    assert sorted(all_topics) == [("invoices", 0, 2, 0), ("orders", 0, 3, 7), ("orders", 0, 3, 8)]
    assert invoices == [("invoices", 0, 2, 0)]


def test_what_became_of_a_batch_is_a_sequence() -> None:
    batch = AppendedBatch([10, 30], [20, 5], 7, 1000)
    assert list(batch) == [Appended(10, 7, 20, 1000), Appended(30, 8, 5, 1000)]
    assert batch[-1].end == 35
    assert batch[1:] == [Appended(30, 8, 5, 1000)]
    with pytest.raises(IndexError):
        batch[2]
