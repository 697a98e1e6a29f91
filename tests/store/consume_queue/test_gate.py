"""The gate: readers see a message when it is confirmed, not before, and what they saw never changes."""

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ariane.errors import OutcomeUnknown, StoreError
from ariane.store.append.draft import Appended
from ariane.store.consume_queue.gate import Gate
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.following import FollowingLog
from ariane.store.message_store import MessageStore
from ariane.store.read.result import ReadStatus
from ariane.testing import FakeClock
from ariane.wire.record.read import RecordView, verify
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import batch_of, bodies, draft, opened, opened_gated, put
from tests.store.test_following import log_of, pieces_of

Arrival = tuple[str, int, int, int]


def gated(disk: SimulatedDisk | None = None, boot: str = "boot-1", epoch: int | None = 1) -> MessageStore:
    store = opened_gated(disk or SimulatedDisk(FakeClock()), boot=boot)
    if epoch is not None:
        gate_of(store).begin_epoch(epoch)
    return store


def gate_of(store: MessageStore) -> Gate:
    assert store.gate is not None
    return store.gate


def queue_of(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> ConsumeQueue:
    queue = store.components.queues.get(topic, queue_id)
    assert queue is not None
    return queue


def arrivals_of(store: MessageStore) -> list[Arrival]:
    arrivals: list[Arrival] = []
    store.components.dispatcher.on_arrival(lambda *arrival: arrivals.append(arrival))
    return arrivals


# --- without a gate ---------------------------------------------------------------------------------------------------


def test_without_a_gate_both_ends_of_a_queue_are_one_slot() -> None:
    store = opened(SimulatedDisk(FakeClock()))
    put(store, draft(b"one"))
    assert store.gate is None
    assert vars(ConsumeQueue)["visible_end"] is vars(ConsumeQueue)["max_offset"]
    assert (queue_of(store).visible_end, queue_of(store).max_offset) == (1, 1)


# --- confirmations ----------------------------------------------------------------------------------------------------


def test_a_message_is_visible_when_all_of_its_record_is_confirmed() -> None:
    store = gated()
    one, two, three = put(store, *[draft(b"%d" % number) for number in (1, 2, 3)])
    assert bodies(store, "orders", 0) == []
    assert gate_of(store).confirm(two.end - 1, epoch=1)
    assert bodies(store, "orders", 0) == [b"1"]
    assert gate_of(store).confirm(two.end, epoch=1)
    assert bodies(store, "orders", 0) == [b"1", b"2"]
    assert (queue_of(store).visible_end, queue_of(store).max_offset) == (2, 3)
    assert gate_of(store).confirm(three.end, epoch=1)
    assert bodies(store, "orders", 0) == [b"1", b"2", b"3"]
    assert one.end < two.end


def test_a_smaller_confirmation_and_one_of_another_epoch_change_nothing() -> None:
    store = gated(epoch=None)
    one, two = put(store, draft(b"1"), draft(b"2"))
    gate = gate_of(store)
    assert not gate.confirm(one.end, epoch=0), "no epoch has begun"
    gate.begin_epoch(4)
    assert not gate.confirm(two.end, epoch=3)
    assert not gate.confirm(two.end, epoch=5)
    assert gate.confirm(one.end, epoch=4)
    assert not gate.confirm(one.end, epoch=4)
    assert not gate.confirm(0, epoch=4)
    gate.end_epoch()
    assert not gate.confirm(two.end, epoch=4)
    gate.begin_epoch(5)
    assert gate.confirmed_to == one.end
    assert bodies(store, "orders", 0) == [b"1"]
    with pytest.raises(ValueError, match="epochs only grow"):
        gate.begin_epoch(5)


def test_messages_of_several_queues_and_kinds_of_append_are_shown_in_the_order_of_the_log() -> None:
    store = gated()
    ends = [
        *[appended.end for appended in put(store, draft(b"a"), draft(b"b", queue_id=1), draft(b"c", "payments"))],
        *[appended.end for appended in _appended(store.append_batch(batch_of(b"d", b"e", b"f")))],
        *[appended.end for appended in _appended(store.append_together([draft(b"g"), draft(b"h", queue_id=0)]))],
    ]
    assert ends == sorted(ends)
    shown: list[int] = []
    for end in ends:
        gate_of(store).confirm(end, epoch=1)
        shown.append(sum(queue.visible_end for queue in store.components.queues))
    assert shown == list(range(1, len(ends) + 1))
    assert bodies(store, "orders", 0) == [b"a", b"d", b"e", b"f", b"g", b"h"]


def _appended(outcomes: object) -> list[Appended]:
    assert not isinstance(outcomes, StoreError)
    return list(outcomes)  # type: ignore[call-overload, no-any-return]


def test_listeners_hear_of_a_message_when_it_is_visible() -> None:
    store = gated()
    arrivals = arrivals_of(store)
    one, two = put(store, draft(b"1", tag="paid"), draft(b"2", queue_id=1))
    assert arrivals == []
    gate_of(store).confirm(one.end, epoch=1)
    assert [arrival[:3] for arrival in arrivals] == [("orders", 0, 1)]
    gate_of(store).confirm(two.end, epoch=1)
    assert [arrival[:3] for arrival in arrivals] == [("orders", 0, 1), ("orders", 1, 1)]


def test_what_is_written_behind_the_confirmation_is_visible_at_once() -> None:
    """At a slave, to which its master's confirmations may come before the records."""
    store = gated()
    gate_of(store).confirm(2**40, epoch=1)
    put(store, draft(b"1"))
    assert bodies(store, "orders", 0) == [b"1"]


def test_an_append_that_fails_holds_nothing_back() -> None:
    store = gated()
    (one,) = put(store, draft(b"1"))
    (refused,) = store.append([draft(bytes(9000))])
    assert isinstance(refused, StoreError)
    (two,) = put(store, draft(b"2"))
    gate_of(store).confirm(two.end, epoch=1)
    assert bodies(store, "orders", 0) == [b"1", b"2"]
    assert one.queue_offset + 1 == two.queue_offset


def test_a_deleted_topic_shows_nothing_of_what_it_held_back() -> None:
    store = gated()
    old = put(store, *[draft(b"old", queue_id=number % 2) for number in range(6)])
    store.delete_topics("orders")
    (new,) = put(store, draft(b"new"))
    gate_of(store).confirm(old[-1].end, epoch=1)
    assert (queue_of(store).visible_end, queue_of(store).max_offset) == (0, 1)
    gate_of(store).confirm(new.end, epoch=1)
    assert bodies(store, "orders", 0) == [b"new"]


# --- readers ----------------------------------------------------------------------------------------------------------


def test_a_reader_between_the_two_ends_waits_and_is_not_moved() -> None:
    store = gated()
    one, *_ = put(store, *[draft(b"%d" % number) for number in range(3)])
    for offset in (1, 2, 3):
        result = store.reader.read("orders", 0, offset, 32)
        assert (result.status, result.next_offset) == (ReadStatus.OFFSET_OVERFLOW_ONE, offset)
        assert result.max_offset == 0
    gate_of(store).confirm(one.end, epoch=1)
    assert store.reader.read("orders", 0, 2, 32).status is ReadStatus.OFFSET_OVERFLOW_ONE
    beyond = store.reader.read("orders", 0, 4, 32)
    assert (beyond.status, beyond.next_offset) == (ReadStatus.OFFSET_OVERFLOW_BADLY, 1)


def test_lookups_find_nothing_that_is_not_confirmed() -> None:
    store = gated()
    one, two = put(store, draft(b"1", key="k"), draft(b"2", key="k"))
    store.components.dispatcher.write_index()
    gate_of(store).confirm(one.end, epoch=1)
    assert store.lookup.record_at(one.physical_offset) is not None
    assert store.lookup.record_at(two.physical_offset) is None
    assert [_view(record).physical_offset for record in store.lookup.by_key("orders", "k", 9, 0, 2**62)] == [0]
    assert store.lookup.offset_by_time("orders", 0, 2**62) == 1
    gate_of(store).confirm(two.end, epoch=1)
    assert store.lookup.record_at(two.physical_offset) is not None
    assert len(store.lookup.by_key("orders", "k", 9, 0, 2**62)) == 2


def _view(record: memoryview) -> RecordView:
    view = verify(record)
    assert isinstance(view, RecordView)
    return view


def test_retention_keeps_what_is_not_confirmed() -> None:
    clock = FakeClock()
    store = opened_gated(SimulatedDisk(clock), clock)
    gate_of(store).begin_epoch(1)
    appended = put(store, *[draft(bytes(5000)) for _ in range(4)])  # one a file
    store.make_durable()
    clock._elapsed_s += 100 * 3600
    assert store.clean(manual=True).files == 0
    gate_of(store).confirm(appended[1].end, epoch=1)  # the end of its file is not, which a blank record fills
    assert store.clean(manual=True).files == 1
    gate_of(store).confirm(appended[3].end, epoch=1)
    assert store.clean(manual=True).files == 2
    assert (queue_of(store).min_offset, queue_of(store).visible_end) == (3, 4)


# --- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
def test_after_a_start_nothing_is_visible_until_it_is_confirmed_again(is_clean: bool) -> None:
    disk = SimulatedDisk(FakeClock())
    store = gated(disk)
    appended = put(store, *[draft(b"%d" % number, queue_id=number % 2) for number in range(6)])
    gate_of(store).confirm(appended[-1].end, epoch=1)
    if is_clean:
        store.close()
    store = gated(disk if is_clean else disk.crash_process(), epoch=2)
    arrivals = arrivals_of(store)
    assert bodies(store, "orders", 0) == []
    put(store, draft(b"6"))
    gate_of(store).confirm(appended[3].end, epoch=2)
    assert (bodies(store, "orders", 0), bodies(store, "orders", 1)) == ([b"0", b"2"], [b"1", b"3"])
    assert sorted(arrivals) == [("orders", 0, 2, 0), ("orders", 1, 2, 0)]
    gate_of(store).confirm(appended[5].end, epoch=2)
    assert (bodies(store, "orders", 0), bodies(store, "orders", 1)) == ([b"0", b"2", b"4"], [b"1", b"3", b"5"])
    gate_of(store).confirm(store.components.commit_log.max_offset, epoch=2)
    assert bodies(store, "orders", 0) == [b"0", b"2", b"4", b"6"]


@pytest.mark.parametrize("size", [700, 5000])
def test_a_slave_shows_what_its_master_has_confirmed(size: int) -> None:
    """Records that the general dispatch takes, and simple ones, in one turn."""
    source = opened(SimulatedDisk(FakeClock()))
    for number in range(40):
        put(source, draft(b"%d" % number, queue_id=number % 3, tag=f"T{number % 2}"))
        if number % 7 == 0:
            put(source, draft(b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC", sys_flag=4))
    views = {(view.queue_id, view.queue_offset): view for view in _records(source)}
    store = gated()
    following = FollowingLog(store)
    for offset, data in pieces_of(log_of(source), [size]):
        following.append(offset, data)
        following.run_dry()
        gate_of(store).confirm(offset + len(data) // 2, epoch=1)
        for queue in store.components.queues.of_topic("orders").values():
            last = views.get((queue.queue_id, queue.visible_end - 1))
            following_one = views.get((queue.queue_id, queue.visible_end))
            confirmed_to = gate_of(store).confirmed_to
            assert last is None or last.physical_offset + last.size <= confirmed_to
            is_there = following_one is not None and queue.visible_end < queue.max_offset
            assert not is_there or following_one.physical_offset + following_one.size > confirmed_to  # type: ignore[union-attr]
    gate_of(store).confirm(following.end, epoch=1)
    for queue_id in range(3):
        assert bodies(store, "orders", queue_id) == bodies(source, "orders", queue_id)


def _records(store: MessageStore) -> list[RecordView]:
    slices = [store.reader.read("orders", queue_id, 0, 32).slices for queue_id in range(3)]
    return [_view(record) for some in slices for record in some]


def test_a_queue_that_begins_anew_at_a_slave_forgets_what_it_held_back() -> None:
    """The master's topic was deleted and created again: the slave sees that by the queue offset of a record."""
    source = opened(SimulatedDisk(FakeClock()))
    old = put(source, *[draft(b"old") for _ in range(3)])
    source.delete_topics("orders")
    new = put(source, draft(b"new"), draft(b"newer"))
    store = gated()
    following = FollowingLog(store)
    following.append(0, log_of(source))
    following.run_dry()
    gate_of(store).confirm(old[-1].end, epoch=1)
    assert (queue_of(store).visible_end, queue_of(store).max_offset) == (0, 2)
    gate_of(store).confirm(new[0].end, epoch=1)
    assert bodies(store, "orders", 0) == [b"new"]
    gate_of(store).confirm(new[1].end, epoch=1)
    assert bodies(store, "orders", 0) == [b"new", b"newer"]


# --- who waits --------------------------------------------------------------------------------------------------------


def test_a_wait_ends_when_it_is_confirmed_or_at_its_deadline() -> None:
    store = gated()
    gate, outcomes = gate_of(store), list[object]()
    one, two, three = put(store, *[draft(b"%d" % number) for number in range(3)])
    gate.when_confirmed(one.end, outcomes.append, 10.0)
    gate.when_confirmed(two.end, outcomes.append, 20.0)
    gate.when_confirmed(three.end, outcomes.append, 30.0)
    assert (outcomes, gate.deadline) == ([], 10.0)
    gate.confirm(one.end, epoch=1)
    assert (outcomes, gate.deadline) == ([None], 20.0)
    gate.expired(20.0)
    assert [type(outcome) for outcome in outcomes] == [type(None), TimeoutError]
    gate.when_confirmed(one.end, outcomes.append)
    assert outcomes[2] is None
    assert gate.deadline == 30.0


def test_the_end_of_an_epoch_ends_every_wait_as_unknown_at_once() -> None:
    store = gated()
    gate, outcomes, actions = gate_of(store), list[object](), list[str]()
    one, two = put(store, draft(b"1"), draft(b"2"))
    gate.confirm(one.end, epoch=1)
    for end in (one.end, two.end, two.end):
        gate.when_confirmed(end, outcomes.append)
    gate.after_confirmed(one.end, lambda: actions.append("one"))
    gate.after_confirmed(two.end, lambda: actions.append("two"))
    gate.begin_epoch(2)
    assert [type(outcome) for outcome in outcomes] == [type(None), OutcomeUnknown, OutcomeUnknown]
    gate.confirm(two.end, epoch=2)
    assert actions == ["one"], "what was noted in an epoch that has ended is not carried over"
    gate.end_epoch()
    gate.when_confirmed(two.end + 1, outcomes.append)
    assert isinstance(outcomes[3], OutcomeUnknown)


# --- a model ----------------------------------------------------------------------------------------------------------


class GateMachine(RuleBasedStateMachine):
    """`seen` is what any reader ever got, by queue and offset; a confirmation never goes beyond what is durable, as one
    of a group with SYNC_FLUSH."""

    @initialize()
    def begin(self) -> None:
        self.disk = SimulatedDisk(FakeClock())
        self.epoch = self.boot = 1
        self.number = 0
        self.written: list[tuple[int, int, int, bytes]] = []  # end in the log, queue, offset, body
        self.seen: dict[tuple[int, int], bytes] = {}
        self.best = 0
        self._opened(self.disk)

    def _opened(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.store = gated(disk, boot=f"boot-{self.boot}", epoch=self.epoch)
        self.confirmed_to = 0

    def _note(self, appended: Appended, queue_id: int, body: bytes) -> None:
        self.written.append((appended.end, queue_id, appended.queue_offset, body))

    @rule(queue_ids=st.lists(st.integers(0, 2), min_size=1, max_size=8), size=st.integers(0, 900))
    def append(self, queue_ids: list[int], size: int) -> None:
        drafts = []
        for queue_id in queue_ids:
            self.number += 1
            drafts.append(draft(b"%d:" % self.number + bytes(size), queue_id=queue_id))
        for appended, made in zip(put(self.store, *drafts), drafts, strict=True):
            self._note(appended, made.queue_id, made.body)

    @rule(count=st.integers(1, 6), queue_id=st.integers(0, 2))
    def append_batch(self, count: int, queue_id: int) -> None:
        contents = [b"b%d" % (self.number + n) for n in range(count)]
        self.number += count
        for appended, body in zip(
            _appended(self.store.append_batch(batch_of(*contents, queue_id=queue_id))), contents, strict=True
        ):
            self._note(appended, queue_id, body)

    @rule(part=st.floats(0, 1))
    def confirm(self, part: float) -> None:
        flusher = self.store.flusher
        flusher.flushed(flusher.sync_now())
        low, high = self.confirmed_to, flusher.flushed_to
        offset = low + round((high - low) * part)
        assert gate_of(self.store).confirm(offset, self.epoch) == (offset > low)
        self.confirmed_to = offset
        self.best = max(self.best, offset)

    @rule()
    def begin_an_epoch(self) -> None:
        self.epoch += 1
        gate_of(self.store).begin_epoch(self.epoch)

    @rule(is_full=st.booleans())
    def write_derived(self, is_full: bool) -> None:
        if is_full:
            self.store.make_durable()
        else:
            self.store.derived.write()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self._next(self.disk)

    @rule()
    def kill_the_process(self) -> None:
        self._next(self.disk.crash_process())

    @rule(seed=st.integers(0, 2**32))
    def cut_the_power(self, seed: int) -> None:
        self.boot += 1
        self._next(self.disk.cut_power(random.Random(seed)))
        end = self.store.components.commit_log.max_offset
        assert end >= self.best, "a confirmed message is lost"
        self.written = [row for row in self.written if row[0] <= end]

    def _next(self, disk: SimulatedDisk) -> None:
        self.epoch += 1
        self._opened(disk)

    @invariant()
    def readers_see_what_is_confirmed_and_no_more(self) -> None:
        for queue_id in range(3):
            queue = self.store.components.queues.get("orders", queue_id)
            confirmed = [row for row in self.written if row[1] == queue_id and row[0] <= self.confirmed_to]
            if queue is None:
                assert not confirmed
                continue
            assert queue.visible_end == len(confirmed)
            assert queue.min_offset <= queue.visible_end <= queue.max_offset
            assert len(queue.entries(0, 10**6)) == 20 * len(confirmed)
            cached = queue.cached_entries(0, 10**6)
            assert cached is None or len(cached) == 20 * len(confirmed)

    @invariant()
    def what_was_seen_never_changes(self) -> None:
        for queue_id in range(3):
            for offset, body in enumerate(bodies(self.store, "orders", queue_id)):
                assert self.seen.setdefault((queue_id, offset), body) == body


TestGate = GateMachine.TestCase
TestGate.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
