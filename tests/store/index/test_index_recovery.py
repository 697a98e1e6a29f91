"""An index after crashes of the process and of the machine, after damage, and before a log that got shorter."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ariane.errors import StoreError
from ariane.store.index.entries import KeyedMessage, entries_position, file_bytes
from ariane.store.index.file import IndexCapacity
from ariane.store.index.index import Index
from ariane.store.layout import Layout
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.index.indexes import EVER, NOW_MS, ROOT, TINY, contents, expected, found, indexed, message, opened

DIRECTORY = Layout.under(ROOT).index
PAGES = IndexCapacity(slots=1500, entries=700)  # slots on two pages, entries on four


def synced(index: Index) -> None:
    with index.syncing() as plan:
        plan.run()


class Restarts(RuleBasedStateMachine):
    """A log, of which an index is kept through everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.index = opened(self.disk, PAGES)
        self.log: list[KeyedMessage] = []
        self.durable = 0

    @rule(seed=st.integers(0, 2**32), count=st.integers(1, 150))
    def put(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        messages = []
        for _ in range(count):
            keys = [f"k{rng.randrange(200)}" for _ in range(rng.choice((0, 1, 2, 2, 3, 20)))]
            physical = self.end
            self.log.append((physical, NOW_MS + physical * 10, "orders", keys))
            messages.append(self.log[-1])
        self.index.put(messages)

    @property
    def end(self) -> int:
        return self.log[-1][0] + 100 if self.log else 0

    @rule()
    def sync(self) -> None:
        synced(self.index)
        self.durable = self.end

    @rule(seed=st.integers(0, 2**32), lost=st.integers(0, 300), again=st.booleans())
    def cut_power(self, seed: int, lost: int, again: bool) -> None:
        """The log may lose some of its end, even messages that are durable in the index."""
        rng = random.Random(seed)
        self.disk = self.disk.cut_power(rng)
        del self.log[max(len(self.log) - lost, 0) :]
        self.durable = min(self.durable, self.end)
        self.recover(self.durable)
        if again:
            self.index.put(self.log[len(self.log) // 2 :])
            self.disk = self.disk.cut_power(rng)
            self.recover(self.durable)
        self.follow(rng)

    @rule(seed=st.integers(0, 2**32))
    def crash_process(self, seed: int) -> None:
        self.disk = self.disk.crash_process()
        self.recover(self.end)
        self.follow(random.Random(seed))

    def recover(self, durable: int) -> None:
        self.index = opened(self.disk, PAGES)
        self.index.after_crash(durable)
        assert self.index.end_physical < max(durable, 1)
        known = [message for message in self.log if message[0] <= self.index.end_physical]
        assert indexed(self.disk, PAGES) == expected(known)

    def follow(self, rng: random.Random) -> None:
        """Dispatch begins again at the index's end or before it."""
        begin = rng.randint(0, max(self.index.end_physical, 0))
        self.index.put([message for message in self.log if message[0] >= begin])

    @rule()
    def restart(self) -> None:
        synced(self.index)
        self.durable = self.end
        self.index.close()
        self.index = opened(self.disk, PAGES)
        self.index.after_clean_stop()

    @rule(lost=st.integers(1, 200))
    def shorten_log(self, lost: int) -> None:
        del self.log[max(len(self.log) - lost, 0) :]
        self.durable = min(self.durable, self.end)
        self.index.truncate(self.end)

    @invariant()
    def index_is_that_of_the_log(self) -> None:
        assert indexed(self.disk, PAGES) == expected(self.log)
        assert self.index.end_physical == max((message[0] for message in self.log if message[3]), default=-1)


Restarts.TestCase.settings = settings(deadline=None, max_examples=50, stateful_step_count=25)
TestRestarts: Any = Restarts.TestCase


def filled(disk: SimulatedDisk) -> list[KeyedMessage]:
    """Three files of TINY, closed: seven entries, seven, and six; the eighth has two keys, one in each file."""
    messages = [message(number * 10, f"k{number}", *(["split"] if number == 6 else [])) for number in range(19)]
    index = opened(disk)
    index.put(messages)
    synced(index)
    index.close()
    return messages


def after_clean_stop(disk: SimulatedDisk) -> Index:
    index = opened(disk)
    index.after_clean_stop()
    return index


def test_an_index_after_a_clean_stop_is_as_it_was() -> None:
    disk = SimulatedDisk()
    filled(disk)
    before = contents(disk)
    assert after_clean_stop(disk).end_physical == 180
    assert contents(disk) == before


@pytest.mark.parametrize("file", [0, 1, 2])
@pytest.mark.parametrize("position", [16, 24, 36, 39])
@pytest.mark.parametrize("bit", [0, 6])
def test_a_header_that_does_not_fit_its_entries_costs_its_file_and_the_newer_ones(
    file: int, position: int, bit: int
) -> None:
    disk = SimulatedDisk()
    messages = filled(disk)
    disk.flip_bit(DIRECTORY / disk.names(DIRECTORY)[file], position, bit)
    index = after_clean_stop(disk)
    assert index.end_physical < messages[-1][0]
    index.put(messages)
    assert indexed(disk) == expected(messages)
    assert found(index, "split") == [60]


@pytest.mark.parametrize("seed", range(10))
def test_what_a_dead_process_had_written_is_synced_by_the_next(seed: int) -> None:
    disk = SimulatedDisk()
    messages = [message(number, f"k{number}") for number in range(20)]
    opened(disk).put(messages)
    disk = disk.crash_process()
    index = opened(disk)
    index.after_crash(20)
    synced(index)
    disk = disk.cut_power(random.Random(seed))
    index = opened(disk)
    index.after_crash(20)
    assert indexed(disk) == expected(messages)


def test_a_directory_that_was_removed_is_built_anew_from_the_log() -> None:
    disk = SimulatedDisk()
    messages = filled(disk)
    for name in disk.names(DIRECTORY):
        disk.remove(DIRECTORY / name)
    index = after_clean_stop(disk)
    assert index.end_physical == -1
    index.put(messages)
    assert indexed(disk) == expected(messages)


@pytest.mark.parametrize("limit", range(0, 200, 5))
def test_a_truncated_index_takes_the_same_messages_again(limit: int) -> None:
    disk = SimulatedDisk()
    messages = filled(disk)
    before = contents(disk)
    index = after_clean_stop(disk)
    index.truncate(limit)
    assert indexed(disk) == expected(message for message in messages if message[0] < limit)
    index.put(messages)
    assert contents(disk) == before


def test_files_that_apache_synced_are_known_by_the_time_of_its_checkpoint() -> None:
    disk = SimulatedDisk()
    filled(disk)
    index = after_clean_stop(disk)
    assert index.durable_at(0) == 0
    assert index.durable_at(NOW_MS + 59) == 0
    assert index.durable_at(NOW_MS + 60) == 60
    assert index.durable_at(NOW_MS + 10**6) == 120  # the last file is not full


def test_an_empty_file_of_apache_goes_on_from_the_one_before() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    index.put([message(number, "a") for number in range(7)])
    index.close()
    file = disk.create(DIRECTORY / "30000000000000000", file_bytes(*TINY), allocated=0)
    file.write((NOW_MS + 6).to_bytes(8, "big") * 2 + (6).to_bytes(8, "big") * 2, 0)
    index = after_clean_stop(disk)
    assert index.end_physical == 6
    index.put([message(6, "a"), message(7, "a")])
    assert found(index, "a") == list(range(7, -1, -1))
    assert len(disk.names(DIRECTORY)) == 2


def test_a_file_left_empty_does_not_hide_older_ones() -> None:
    disk = SimulatedDisk()
    filled(disk)
    disk.create(DIRECTORY / "30000000000000000", file_bytes(*TINY), allocated=0)
    index = after_clean_stop(disk)
    assert found(index, "k0", at=(NOW_MS, EVER[1])) == [0]
    index.put([message(500, "k0")])
    assert found(index, "k0", at=(NOW_MS, EVER[1])) == [500, 0]


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_damage_anywhere_costs_answers_but_never_more(data: st.DataObject) -> None:
    """Whatever the bytes are: no hang, no other error, and messages put again are found."""
    disk = SimulatedDisk()
    messages = filled(disk)
    for _ in range(data.draw(st.integers(1, 6))):
        path = DIRECTORY / data.draw(st.sampled_from(disk.names(DIRECTORY)))
        position = data.draw(st.integers(0, file_bytes(*TINY) - 1))
        file = disk.open(path, writable=True)
        file.write(data.draw(st.binary(min_size=1, max_size=file.size - position)), position)
    index = opened(disk)
    if data.draw(st.booleans()):
        index.after_clean_stop()
    else:
        index.after_crash(data.draw(st.integers(0, 200)))
    for number in range(19):
        index.query("orders", f"k{number}", 1000, *EVER)
    index.truncate(data.draw(st.integers(0, 200)))
    index.put(messages)
    new = index.end_physical + 1
    if new < 2**63 - 1000:
        index.put([message(new, "new", at_ms=2**62)])
        assert new in found(index, "new")


@pytest.mark.parametrize("size", [0, 1, 40, entries_position(TINY.slots), file_bytes(*TINY) - 1])
def test_a_file_cut_short_is_refused_or_removed(size: int) -> None:
    disk = SimulatedDisk()
    filled(disk)
    path = DIRECTORY / disk.names(DIRECTORY)[1]
    file = disk.open(path, writable=False)
    start = file.read(size, 0)
    disk.remove(path)
    disk.create(path, size, allocated=0).write(start, 0)
    if any(start[:40]):
        with pytest.raises(StoreError, match="bytes, 3 slots and 8 entries need 212"):
            opened(disk)
    else:
        index = after_clean_stop(disk)
        index.put([message(500, "a")])
        assert found(index, "a") == [500]
