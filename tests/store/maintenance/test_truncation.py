"""A store that is opened with a request to cut its log: what is left, what is kept aside, and what is refused."""

import random

import pytest

from ariane.errors import StoreCorrupt, StoreMismatch, WritesSuspended
from ariane.store.config.truncation_request import FILE_NAME, TruncationRequest, read_request, write_request
from ariane.store.disk import read_all, replace_all
from ariane.store.following import FollowingLog
from ariane.store.maintenance import truncation
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import draft, opened, opened_gated, put, records
from tests.store.truncated import (
    LAYOUT,
    History,
    check_same,
    found_by_key,
    log_bytes,
    play,
    queue_entries,
    random_history,
    whole_end,
)


def played(disk: SimulatedDisk, history: History, steps: int | None = None) -> list[int]:
    store = opened(disk)
    ends = play(store, history.steps[:steps])
    store.close()
    return ends


@pytest.mark.parametrize("seed", range(60))
def test_a_store_that_was_cut_equals_one_that_never_had_the_rest(seed: int) -> None:
    rng = random.Random(seed)
    history = random_history(rng, rng.randint(1, 25))
    disk, clock = SimulatedDisk(), FakeClock()
    store = opened(disk, clock)
    ends = play(store, history.steps)
    kept = rng.randrange(len(ends) + 1)
    to = ([0, *ends])[kept]
    way = rng.choice(("asked", "asked again", "stopped before", "killed before"))
    if way == "stopped before":
        store.close()
        store = opened(disk, clock)
    elif way == "killed before":
        disk = disk.crash_process()
        store = opened(disk, clock)
    tail = log_bytes(store)[to : whole_end(store)]
    store.request_truncation(to, epoch=7, confirmed=rng.randint(0, to))
    if way == "asked again":
        store.request_truncation(to, epoch=7)
    store.close()
    store = opened(disk, clock)
    never = opened(SimulatedDisk(), clock)
    play(never, history.steps[:kept])
    never.close()
    never = opened(never.components.disk, clock)
    names = disk.names(LAYOUT.quarantine)
    assert names == ([f"{to:020d}-{len(tail)}-epoch-7"] if tail else [])
    assert [read_all(disk, LAYOUT.quarantine / name, 2**30) for name in names] == ([tail] if tail else [])
    assert read_request(disk, LAYOUT.config) is None
    check_same(store, never, history.keys)


def test_of_a_long_tail_the_newest_whole_records_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "QUARANTINED_BYTES_MAX", 10_000)
    disk = SimulatedDisk()
    store = opened(disk)
    first = put(store, draft(b"stays"))[0]
    for _ in range(30):
        put(store, draft(bytes(700)))
    starts = [view.physical_offset for view in records(store)]
    end = whole_end(store)
    store.request_truncation(first.end, epoch=3)
    store.close()
    opened(disk)
    (name,) = disk.names(LAYOUT.quarantine)
    begin, length = int(name.split("-")[0]), int(name.split("-")[1])
    assert begin + length == end
    assert begin == min(start for start in starts if end - start <= 10_000)


def test_a_cut_between_no_two_records_is_refused_before_anything_is_written() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    first, second = put(store, draft(bytes(700)), draft(bytes(700)))
    for to in (first.end - 1, first.end + 1, 1, second.end - 700):
        with pytest.raises(StoreMismatch, match=f"cut at {to}: no record ends there"):
            store.request_truncation(to, epoch=1)
    with pytest.raises(StoreMismatch, match=f"it has 0 to {second.end}"):
        store.request_truncation(second.end + 1, epoch=1)
    with pytest.raises(StoreMismatch, match="never removed"):
        store.request_truncation(first.end, epoch=1, confirmed=first.end + 1)
    assert read_request(disk, LAYOUT.config) is None
    put(store, draft(b"goes on"))


def test_a_body_that_looks_like_a_record_is_no_place_to_cut() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    (inner,) = put(store, draft(b"inner"))
    copy = bytearray(log_bytes(store)[: inner.end])
    place = inner.end + 88
    copy[28:36] = place.to_bytes(8, "big")
    (outer,) = put(store, draft(bytes(copy)))
    assert log_bytes(store)[place : place + len(copy)] == copy
    with pytest.raises(StoreMismatch, match="no record ends there"):
        store.request_truncation(place, epoch=1)
    assert outer.end > place


def test_what_the_gate_has_confirmed_is_not_cut() -> None:
    store = opened_gated(SimulatedDisk())
    assert store.gate is not None
    store.gate.begin_epoch(1)
    first, second = put(store, draft(b"one"), draft(b"two"))
    store.gate.confirm(second.end, 1)
    with pytest.raises(StoreMismatch, match=f"it is confirmed up to {second.end}"):
        store.request_truncation(first.end, epoch=2)


def test_nothing_is_appended_after_the_request() -> None:
    store = opened(SimulatedDisk())
    (first,) = put(store, draft(b"one"))
    store.request_truncation(first.end, epoch=1)
    (refused,) = store.append([draft(b"two")])
    assert isinstance(refused, WritesSuspended)


def test_a_request_written_by_hand_is_checked_at_the_start_and_changes_nothing_if_it_is_wrong() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    first, _ = put(store, draft(b"one"), draft(b"two"))
    store.close()
    before = {path: read_all(disk, LAYOUT.commit_log / path, 2**20) for path in disk.names(LAYOUT.commit_log)}
    for wrong in (TruncationRequest(first.end - 3, 1), TruncationRequest(first.end, 1, confirmed=first.end + 1)):
        write_request(disk, LAYOUT.config, wrong)
        with pytest.raises(StoreMismatch, match="cannot be cut"):
            opened(disk)
    replace_all(disk, LAYOUT.config / FILE_NAME, b'{"to":0,"epoch":1}')
    with pytest.raises(StoreCorrupt, match="it has no checksum"):
        opened(disk)
    disk.remove(LAYOUT.config / FILE_NAME)
    assert before == {path: read_all(disk, LAYOUT.commit_log / path, 2**20) for path in disk.names(LAYOUT.commit_log)}
    assert disk.names(LAYOUT.quarantine) == []
    assert len(list(records(opened(disk)))) == 2


@pytest.mark.parametrize("begin", [0, 16384])
def test_a_store_that_was_wiped_begins_anew_where_it_was_asked_to(begin: int) -> None:
    disk, history = SimulatedDisk(), random_history(random.Random(4), 20)
    ends = played(disk, history)
    store = opened(disk)
    with pytest.raises(StoreMismatch, match="cannot begin at 100"):
        store.request_wipe(100, epoch=5)
    store.request_wipe(begin, epoch=5)
    store.close()
    store = opened(disk)
    assert (store.components.commit_log.min_offset, whole_end(store)) == (begin, begin)
    assert queue_entries(store) == {}
    assert set(map(tuple, found_by_key(store, history.keys).values())) == {()}
    (name,) = disk.names(LAYOUT.quarantine)
    assert name == f"{0:020d}-{ends[-1]}-epoch-5"
    (outcome,) = put(store, draft(b"new", key="new"))
    assert outcome.physical_offset == begin
    store.close()
    assert len(list(records(opened(disk)))) == 1


def test_damage_before_the_cut_does_not_prevent_it() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    first, second, third = put(store, *[draft(bytes(700)) for _ in range(3)])
    store.make_durable()
    (name,) = disk.names(LAYOUT.commit_log)
    disk.flip_bit(LAYOUT.commit_log / name, first.end + 2, 3)
    store.request_truncation(third.physical_offset, epoch=1)
    store.close()
    assert whole_end(opened(disk)) == second.end


def test_a_saved_state_that_says_more_is_durable_than_is_left_does_not_make_the_cut_look_like_damage() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    (first,) = put(store, draft(bytes(700)))
    with store.checkpoint_pass() as work:
        put(store, draft(bytes(700)))
        store.finish_checkpoint(work.run(disk, LAYOUT))
    store.request_truncation(first.end, epoch=1)
    store.close()
    assert whole_end(opened(disk)) == first.end
    assert not any("epoch" not in name for name in disk.names(LAYOUT.quarantine))


def test_however_long_nothing_is_confirmed_a_saved_state_is_left_to_begin_with(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    store = opened_gated(disk)
    gate = store.gate
    assert gate is not None
    gate.begin_epoch(1)
    for _ in range(20):
        (last,) = put(store, draft(bytes(700)))
        gate.confirm(last.end, 1)
        store.make_durable()
    kept = last.end
    for _ in range(3):
        put(store, draft(bytes(700)))
        for _ in range(3):
            store.make_durable()
        store.close()
        store = opened_gated(disk)
    store.request_truncation(kept, epoch=2)
    store.close()
    caplog.clear()
    store = opened_gated(disk)
    assert whole_end(store) == kept
    assert "no saved state" not in caplog.text
    assert len(list(records(store))) == 20


def test_a_slave_whose_log_ends_inside_a_record_can_be_cut() -> None:
    master = opened(SimulatedDisk())
    first, second, _ = put(master, *[draft(b"x" * 700, key=f"k{n}") for n in range(3)])
    disk = SimulatedDisk()
    store = opened(disk)
    following = FollowingLog(store)
    following.append(0, log_bytes(master)[:-100])
    following.run_dry()
    assert (following.dispatched_to, following.end) == (second.end, len(log_bytes(master)) - 100)
    store.request_truncation(first.end, epoch=4)
    with pytest.raises(WritesSuspended):
        following.append(following.end, bytes(10))
    store.close()
    again = FollowingLog(opened(disk))
    assert (again.dispatched_to, again.end) == (first.end, first.end)
    (name,) = disk.names(LAYOUT.quarantine)
    assert name == f"{first.end:020d}-{len(log_bytes(master)) - 100 - first.end}-epoch-4"
    again.append(first.end, log_bytes(master)[first.end :])
    again.run_dry()
    check_same(opened(disk.crash_process()), master, ["k0", "k1", "k2"])
