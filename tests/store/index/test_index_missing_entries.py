"""An index that lacks messages before the recovery scan: a start adds them again from the log, and says so."""

import logging

import pytest

from ariane.store.index import index as index_module
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import ROOT, draft, opened, put

INDEX = Layout.under(ROOT).index


def stopped(messages: int, key: str = "k") -> SimulatedDisk:
    disk, clock = SimulatedDisk(), FakeClock()
    store = opened(disk, clock, index_entries=8)
    for number in range(messages):
        put(store, draft(b"x", key=f"{key}{number}" if key else ""))
    store.close()
    return disk


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "index" in record.getMessage()]


def found(store: MessageStore, messages: int) -> int:
    """How many of the keys lead to exactly one message."""
    return sum(len(store.lookup.by_key("orders", f"k{number}", 10, 0, 2**62)) == 1 for number in range(messages))


@pytest.mark.parametrize("file", [0, 1, 2])
@pytest.mark.parametrize("position", [3, 9, 20, 30, 36], ids=["begin ms", "end ms", "begin", "end", "count"])
def test_a_damaged_header_is_noticed_and_the_messages_are_added_again(
    caplog: pytest.LogCaptureFixture, file: int, position: int
) -> None:
    disk = stopped(20)
    disk.flip_bit(INDEX / disk.names(INDEX)[file], position, 0)
    with caplog.at_level(logging.WARNING):
        store = opened(disk, index_entries=8)
    assert warnings(caplog)
    assert found(store, 20) == 20


@pytest.mark.parametrize("removed", [[0], [1], [2], [0, 1, 2]])
def test_files_that_were_removed_are_built_again(caplog: pytest.LogCaptureFixture, removed: list[int]) -> None:
    disk = stopped(20)
    for name in [disk.names(INDEX)[number] for number in removed]:
        disk.remove(INDEX / name)
    with caplog.at_level(logging.WARNING):
        store = opened(disk, index_entries=8)
    assert warnings(caplog)
    assert found(store, 20) == 20


def test_an_index_that_is_switched_on_gets_the_messages_that_are_there() -> None:
    disk, clock = SimulatedDisk(), FakeClock()
    store = opened(disk, clock, index_enable=False)
    put(store, *[draft(b"x", key=f"k{number}") for number in range(10)])
    store.close()
    assert found(opened(disk, clock), 10) == 10


@pytest.mark.parametrize("messages", [0, 3, 20])
@pytest.mark.parametrize("key", ["k", ""], ids=["keys", "no keys"])
def test_a_whole_index_is_not_complained_about(caplog: pytest.LogCaptureFixture, messages: int, key: str) -> None:
    disk = stopped(messages, key)
    with caplog.at_level(logging.WARNING):
        opened(disk.crash_process(), index_entries=8)
        opened(disk, index_entries=8)
        opened(disk.crash_process(), index_entries=8)
    assert warnings(caplog) == []


@pytest.mark.parametrize("position", [40, 80, 104, 108, 116, 120, 200], ids=str)
def test_a_flipped_bit_in_slots_or_entries_is_noticed_and_repaired(
    caplog: pytest.LogCaptureFixture, position: int
) -> None:
    """Sixteen slots begin at byte 40, entry 1 at byte 124."""
    disk = stopped(20)
    path = INDEX / disk.names(INDEX)[1]
    disk.flip_bit(path, position, 1)
    with caplog.at_level(logging.WARNING):
        store = opened(disk, index_entries=8)
    assert found(store, 20) == 20
    assert bool(warnings(caplog)) == (not 104 <= position < 124), "entry 0 is never used"


def test_a_large_file_is_checked_while_the_store_runs_and_built_again_by_the_next_start(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "CHECKED_AT_START_BYTES", 300)
    disk = stopped(20)
    disk.flip_bit(INDEX / disk.names(INDEX)[0], 200, 1)
    store = opened(disk, index_entries=8)
    index = store.components.index
    assert index is not None
    assert warnings(caplog) == []
    checks = 0
    while (check := index.next_check()) is not None:
        check()
        checks += 1
    assert checks >= 2
    assert len(warnings(caplog)) == 1
    assert "The next start builds it again" in warnings(caplog)[0]
    store.close()
    assert found(opened(disk, index_entries=8), 20) == 20
