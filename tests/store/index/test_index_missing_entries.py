"""An index that lacks messages before the recovery scan: start-up logs a warning that names the rebuild command."""

import logging

import pytest

from ariane.store.layout import Layout
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import ROOT, draft, opened, put

INDEX = Layout.under(ROOT).index
REBUILD = f"ariane store rebuild {ROOT} --index"


def stopped(messages: int, key: str = "k") -> SimulatedDisk:
    disk, clock = SimulatedDisk(), FakeClock()
    store = opened(disk, clock, index_entries=8)
    for number in range(messages):
        put(store, draft(b"x", key=f"{key}{number}" if key else ""))
    store.close()
    return disk


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "ariane store rebuild" in record.getMessage()]


def test_a_damaged_file_below_the_start_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    disk = stopped(20)
    disk.flip_bit(INDEX / disk.names(INDEX)[0], 36, 0)
    with caplog.at_level(logging.WARNING):
        opened(disk, index_entries=8)
    (message,) = warnings(caplog)
    assert REBUILD in message


def test_a_directory_of_index_files_that_was_removed_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    disk = stopped(5)
    for name in disk.names(INDEX):
        disk.remove(INDEX / name)
    with caplog.at_level(logging.WARNING):
        opened(disk, index_entries=8)
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("messages", [0, 3, 20])
def test_a_whole_index_is_not_complained_about(caplog: pytest.LogCaptureFixture, messages: int) -> None:
    disk = stopped(messages)
    with caplog.at_level(logging.WARNING):
        opened(disk, index_entries=8)
        opened(disk.crash_process(), index_entries=8)
    assert warnings(caplog) == []
