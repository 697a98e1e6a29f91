"""When the event loop may sync the log itself: only while syncs are short, and at most one long one at a time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.store.maintenance.sync_policy import (
    AVERAGE_MAX_S,
    BYTES_MAX,
    LONG_S,
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    SHORT_S,
    SYNCS_MIN,
    SyncPolicy,
)

SMALL = 1000


class Disk:
    """Syncs one after the other, as the policy decides, by a clock of its own."""

    def __init__(self) -> None:
        self.policy = SyncPolicy()
        self.now = 0.0
        self.long_on_loop: list[float] = []
        """When the loop was held."""

    def sync(self, seconds: float, times: int = 1) -> None:
        for _ in range(times):
            self.now += seconds
            if self.policy.allows(SMALL):
                self.policy.synced_on_loop(seconds, self.now)
                if seconds > LONG_S:
                    self.long_on_loop.append(self.now)
            else:
                self.policy.synced_by_thread(seconds, self.now)

    def until_on_loop(self, seconds: float = SHORT_S) -> float:
        """Syncs of this duration until the loop may do them; how long that took."""
        began = self.now
        while not self.policy.allows(SMALL):
            self.sync(seconds)
            assert self.now < began + 2 * PAUSE_MAX_S
        return self.now - began


def test_the_loop_syncs_after_a_few_short_syncs_by_the_thread() -> None:
    disk = Disk()
    disk.sync(SHORT_S, SYNCS_MIN - 1)
    assert not disk.policy.allows(SMALL)
    disk.sync(SHORT_S)
    assert disk.policy.allows(SMALL)


def test_a_thread_that_waits_for_the_interpreter_lock_does_not_make_the_disk_slow() -> None:
    disk = Disk()
    disk.sync(3 * LONG_S, SYNCS_MIN - 1)
    disk.sync(SHORT_S)
    assert disk.policy.allows(SMALL)


def test_a_slow_disk_never_gets_to_the_loop() -> None:
    disk = Disk()
    disk.sync(SHORT_S * 1.01, 10_000)
    assert not disk.policy.allows(SMALL)
    assert (disk.policy.loop_syncs, disk.policy.thread_syncs) == (0, 10_000)


@pytest.mark.parametrize(("size", "is_allowed"), [(1, True), (BYTES_MAX, True), (BYTES_MAX + 1, False)])
def test_much_is_synced_by_the_thread(size: int, is_allowed: bool) -> None:
    disk = Disk()
    disk.until_on_loop()
    assert disk.policy.allows(size) is is_allowed


def test_one_long_sync_is_the_last_on_the_loop_until_a_pause_is_over() -> None:
    disk = Disk()
    disk.until_on_loop()
    disk.sync(LONG_S * 1.01)
    assert not disk.policy.allows(SMALL)
    assert disk.until_on_loop() >= PAUSE_MIN_S


def test_syncs_that_become_slower_little_by_little_leave_the_loop() -> None:
    disk = Disk()
    disk.until_on_loop()
    disk.sync(AVERAGE_MAX_S * 0.99, 1000)
    assert disk.policy.allows(SMALL)
    disk.sync(AVERAGE_MAX_S * 1.1, 1000)
    assert not disk.policy.allows(SMALL)


def test_a_rare_sync_that_is_not_quite_long_changes_nothing() -> None:
    disk = Disk()
    disk.until_on_loop()
    for _ in range(100):
        disk.sync(SHORT_S / 2, 99)
        disk.sync(LONG_S)
        assert disk.policy.allows(SMALL)


def test_a_disk_that_is_slow_again_and_again_is_tried_less_and_less_often() -> None:
    disk = Disk()
    pauses = []
    for _ in range(10):
        pauses.append(round(disk.until_on_loop()))
        disk.sync(LONG_S * 2)
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert (PAUSE_MIN_S, PAUSE_MAX_S) == (1, 60)


def test_a_long_sync_after_a_long_time_without_costs_the_shortest_pause() -> None:
    disk = Disk()
    for _ in range(5):
        disk.until_on_loop()
        disk.sync(LONG_S * 2)
    disk.until_on_loop()
    disk.now += 10 * PAUSE_MAX_S
    disk.sync(LONG_S * 2)
    assert disk.until_on_loop() < 2 * PAUSE_MIN_S


def test_a_disk_that_becomes_slow_while_the_thread_has_much_to_sync_is_noticed() -> None:
    disk = Disk()
    disk.until_on_loop()
    for _ in range(SYNCS_MIN):
        disk.policy.synced_by_thread(LONG_S * 2, disk.now)
    assert not disk.policy.allows(SMALL)


@given(
    st.lists(st.tuples(st.sampled_from([SHORT_S / 3, SHORT_S, AVERAGE_MAX_S, LONG_S, 4 * LONG_S]), st.integers(1, 99)))
)
def test_whatever_a_disk_does_the_loop_is_not_held_twice_within_a_pause(phases: list[tuple[float, int]]) -> None:
    disk = Disk()
    for seconds, times in phases * 5:
        disk.sync(seconds, times)
    assert all(later - earlier >= PAUSE_MIN_S for earlier, later in pairwise(disk.long_on_loop))
