"""Entries of many queues in one memory, and each in its own queue again."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES
from ariane.store.consume_queue.new_entries import NewEntries, pack_numbered
from tests.store.queues import entry, numbers, open_queues


@dataclass(eq=False)
class Queue:
    """As much of one as entries are given to."""

    tail: bytearray = field(default_factory=bytearray)

    def entries(self) -> list[tuple[int, ...]]:
        return list(ENTRY.iter_unpack(self.tail))


@given(
    rounds=st.lists(st.lists(st.integers(0, 11), max_size=200), min_size=1, max_size=4),
    owners=st.sampled_from([12, 2**16 + 12]),
)
def test_each_queue_gets_its_entries_in_their_order(rounds: list[list[int]], owners: int) -> None:
    new: NewEntries[Queue] = NewEntries()
    shared = Queue()
    for _ in range(owners - 12):  # so many that their numbers take more than two bytes
        new.register(shared)
    queues = [Queue() for _ in range(12)]
    places = [new.register(queue) for queue in queues]
    model: list[list[tuple[int, int, int]]] = [[] for _ in queues]
    for number, chosen in enumerate(rounds):
        for place, owner in enumerate(chosen):
            fields = (place << 40, number, -place)
            new.packed += pack_numbered(places[owner], *fields)
            model[owner].append(fields)
        new.distribute()
        assert not new.packed
        assert [queue.entries() for queue in queues] == model
    assert new.dirty == {queue for queue, entries in zip(queues, model, strict=True) if entries}


def test_a_number_that_is_free_is_given_again() -> None:
    new: NewEntries[Queue] = NewEntries()
    first, second, third = Queue(), Queue(), Queue()
    assert [new.register(first), new.register(second)] == [0, 1]
    new.unregister(0)
    assert new.register(third) == 0
    new.packed += pack_numbered(0, *entry(7))
    new.distribute()
    assert third.entries() == [entry(7)]
    assert not first.tail


@pytest.mark.parametrize("count", [2, 300])
def test_entries_of_a_deleted_topic_do_not_reach_the_next_one(count: int, tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    old, kept = queues.get_or_create("old", 0), queues.get_or_create("kept", 0)
    for number in range(count):
        old.append(*entry(number))
        kept.append(*entry(number))
    queues.delete_topic("old")
    new = queues.get_or_create("new", 0)
    assert new.max_offset == 0
    new.append(*entry(count))
    assert numbers(new) == [count]
    assert numbers(kept) == list(range(count))
    assert queues.dirty == {new, kept}


def test_the_end_of_the_last_record_is_known_before_anybody_reads(tmp_path: Path) -> None:
    queue = open_queues(tmp_path).get_or_create("orders", 0)
    queue.append(*entry(4))
    assert queue.max_physical == 500
    assert len(queue.tail) == ENTRY_BYTES
