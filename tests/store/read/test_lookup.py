"""Messages found without an offset in their queue: by time, by key, by their place in the log."""

import pytest

from ariane.store.index.entries import key_hash
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from ariane.wire.record.read import verify
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import draft, opened, put, shortened

EVER = 2**62

# --- by time ----------------------------------------------------------------------------------------------------------


def timed() -> MessageStore:
    """Three messages at 1000, two at 2000, one at 3000 ms."""
    clock = FakeClock(1000)
    store = opened(SimulatedDisk(clock), clock)
    for count in (3, 2, 1):
        put(store, *[draft(b"x") for _ in range(count)])
        clock._elapsed_s += 1
    return store


@pytest.mark.parametrize(
    ("at_ms", "offset"),
    [(0, 0), (1000, 0), (1001, 3), (2000, 3), (2001, 5), (3000, 5), (3001, 6), (EVER, 6), (-1, 0)],
)
def test_the_first_message_that_is_not_older(at_ms: int, offset: int) -> None:
    assert timed().lookup.offset_by_time("orders", 0, at_ms) == offset


def test_time_in_a_queue_that_is_not_there_or_begins_late() -> None:
    assert timed().lookup.offset_by_time("orders", 9, 1000) == 0
    assert shortened().lookup.offset_by_time("orders", 0, 0) == 2


def test_the_earliest_store_time() -> None:
    store = timed()
    assert store.lookup.earliest_store_time("orders", 0) == 1000
    assert store.lookup.earliest_store_time("orders", 9) == -1


# --- by key and by place ----------------------------------------------------------------------------------------------


def test_keys_whose_hashes_collide_do_not_get_each_others_messages() -> None:
    assert key_hash("orders", "Aa") == key_hash("orders", "BB")  # as in Java
    store = opened(SimulatedDisk())
    put(store, *[draft(key.encode(), key=key) for key in ("Aa", "BB", "Aa", "CC")])
    store.components.dispatcher.write_index()
    for key, count in (("Aa", 2), ("BB", 1), ("CC", 1), ("DD", 0)):
        found = store.lookup.by_key("orders", key, 10, 0, EVER)
        assert [verify(record).body(record) for record in found] == [key.encode()] * count  # type: ignore[union-attr]


def test_a_key_belongs_to_its_topic_and_its_time() -> None:
    clock = FakeClock(10_000)
    store = opened(SimulatedDisk(clock), clock)
    put(store, draft(b"", key="k"), draft(b"", topic="payments", key="k"))
    store.components.dispatcher.write_index()
    assert len(store.lookup.by_key("orders", "k", 10, 0, EVER)) == 1
    assert store.lookup.by_key("refunds", "k", 10, 0, EVER) == []
    assert store.lookup.by_key("orders", "k", 10, 0, 5_000) == []
    assert store.lookup.by_key("orders", "k", 10, 20_000, EVER) == []


def test_newest_first_and_no_more_than_asked_for() -> None:
    store = opened(SimulatedDisk())
    appended = put(store, *[draft(b"%d" % n, key="k") for n in range(5)])
    store.components.dispatcher.write_index()
    found = store.lookup.by_key("orders", "k", 2, 0, EVER)
    assert [bytes(record) for record in found] == [
        bytes(store.lookup.record_at(item.physical_offset) or b"") for item in (appended[4], appended[3])
    ]


def test_only_the_beginning_of_a_record_leads_to_it() -> None:
    store = opened(SimulatedDisk())
    begins = {appended.physical_offset for appended in put(store, draft(bytes(100)), draft(bytes(100)))}
    end = store.components.commit_log.max_offset
    for physical in (*range(-10, end + 10), 8191, 8192, 2**63 - 1, -(2**63)):
        assert (store.lookup.record_at(physical) is not None) == (physical in begins)
